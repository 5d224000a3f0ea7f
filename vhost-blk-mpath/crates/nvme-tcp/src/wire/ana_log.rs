//! The Asymmetric Namespace Access log page (Base 5.16.1.13).

/// ANA state of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnaState {
    /// Optimized.
    Optimized,
    /// Non-optimized.
    NonOptimized,
    /// Inaccessible.
    Inaccessible,
    /// Persistent loss.
    PersistentLoss,
    /// Change: a transition to another state, for at most ANATT.
    Change,
}

impl AnaState {
    /// Parses a number of 4 bits.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x1 => Self::Optimized,
            0x2 => Self::NonOptimized,
            0x3 => Self::Inaccessible,
            0x4 => Self::PersistentLoss,
            0xf => Self::Change,
            _ => return None,
        })
    }

    /// The number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Optimized => 0x1,
            Self::NonOptimized => 0x2,
            Self::Inaccessible => 0x3,
            Self::PersistentLoss => 0x4,
            Self::Change => 0xf,
        }
    }
}

impl std::fmt::Display for AnaState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
            Self::PersistentLoss => "persistent-loss",
            Self::Change => "change",
        })
    }
}

/// One group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnaGroup {
    /// ANA Group ID, from 1.
    pub id: u32,
    /// Change count of the group.
    pub change_count: u64,
    /// State.
    pub state: AnaState,
    /// Namespaces of the group; empty if only groups were requested.
    pub nsids: Vec<u32>,
}

/// The whole log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnaLog {
    /// Change count of the log.
    pub change_count: u64,
    /// Groups, at most 65535.
    pub groups: Vec<AnaGroup>,
}

/// Why a log was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnaLogError {
    /// The log is shorter than its groups and namespaces.
    #[error("the ANA log ends inside group {index}")]
    Truncated {
        /// Index of the truncated group; 0 also for a truncated header.
        index: u16,
    },
    /// The state of a group is not assigned.
    #[error("ANA group {group}: unknown state {state:#x}")]
    State {
        /// ANA Group ID.
        group: u32,
        /// The state.
        state: u8,
    },
}

const HEADER_LEN: usize = 16;
const GROUP_LEN: usize = 32;

impl AnaLog {
    /// Bytes of a log with `groups` groups and `nsids` namespaces in all.
    #[must_use]
    pub const fn len_for(groups: usize, nsids: usize) -> usize {
        HEADER_LEN + groups * GROUP_LEN + nsids * 4
    }

    /// Parses a log; bytes after the last group are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, AnaLogError> {
        let cut = |index| AnaLogError::Truncated { index };
        let (header, mut rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(cut(0))?;
        let &[c0, c1, c2, c3, c4, c5, c6, c7, n0, n1, ..] = header;
        let mut log = Self { change_count: u64::from_le_bytes([c0, c1, c2, c3, c4, c5, c6, c7]), groups: Vec::new() };
        for index in 0..u16::from_le_bytes([n0, n1]) {
            let (group, tail) = rest.split_first_chunk::<GROUP_LEN>().ok_or(cut(index))?;
            let &[i0, i1, i2, i3, n0, n1, n2, n3, c0, c1, c2, c3, c4, c5, c6, c7, state, ..] = group;
            let id = u32::from_le_bytes([i0, i1, i2, i3]);
            let nnsids = u32::from_le_bytes([n0, n1, n2, n3]);
            let list_len = (nnsids as usize).checked_mul(4).ok_or(cut(index))?;
            let (list, tail) = tail.split_at_checked(list_len).ok_or(cut(index))?;
            let state = state & 0xf;
            log.groups.push(AnaGroup {
                id,
                change_count: u64::from_le_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
                state: AnaState::from_code(state).ok_or(AnaLogError::State { group: id, state })?,
                nsids: list.as_chunks().0.iter().map(|&nsid| u32::from_le_bytes(nsid)).collect(),
            });
            rest = tail;
        }
        Ok(log)
    }

    /// The log in wire format.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let nsids = self.groups.iter().map(|group| group.nsids.len()).sum();
        let mut bytes = Vec::with_capacity(Self::len_for(self.groups.len(), nsids));
        bytes.extend_from_slice(&self.change_count.to_le_bytes());
        bytes.extend_from_slice(&(self.groups.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        for group in &self.groups {
            bytes.extend_from_slice(&group.id.to_le_bytes());
            bytes.extend_from_slice(&(group.nsids.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&group.change_count.to_le_bytes());
            bytes.push(group.state.code());
            bytes.extend_from_slice(&[0; 15]);
            bytes.extend(group.nsids.iter().flat_map(|nsid| nsid.to_le_bytes()));
        }
        bytes
    }

    /// The state of a group.
    #[must_use]
    pub fn state_of(&self, group: u32) -> Option<AnaState> {
        self.groups.iter().find(|candidate| candidate.id == group).map(|group| group.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_group() -> impl Strategy<Value = AnaGroup> {
        let state = prop_oneof![
            Just(AnaState::Optimized),
            Just(AnaState::NonOptimized),
            Just(AnaState::Inaccessible),
            Just(AnaState::PersistentLoss),
            Just(AnaState::Change),
        ];
        (any::<u32>(), any::<u64>(), state, proptest::collection::vec(any::<u32>(), 0..5))
            .prop_map(|(id, change_count, state, nsids)| AnaGroup { id, change_count, state, nsids })
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(change_count: u64, groups in proptest::collection::vec(any_group(), 0..6), cut: usize) {
            let log = AnaLog { change_count, groups };
            let bytes = log.emit();
            prop_assert_eq!(AnaLog::parse(&bytes), Ok(log));
            let cut = cut % bytes.len();
            let parsed = AnaLog::parse(&bytes[..cut]);
            let refused = matches!(parsed, Err(AnaLogError::Truncated { .. }));
            prop_assert!(refused, "{parsed:?}");
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = AnaLog::parse(&bytes);
        }
    }

    #[test]
    fn field_offsets_match_the_specification() {
        let group = AnaGroup { id: 7, change_count: 2, state: AnaState::Change, nsids: vec![9] };
        let bytes = AnaLog { change_count: 5, groups: vec![group] }.emit();
        assert_eq!(
            (bytes[0], bytes[8], bytes[16], bytes[20], bytes[24], bytes[32], bytes[48]),
            (5, 1, 7, 1, 2, 0xf, 9)
        );
        let mut unknown = bytes;
        unknown[32] = 5;
        assert_eq!(AnaLog::parse(&unknown), Err(AnaLogError::State { group: 7, state: 5 }));
    }
}
