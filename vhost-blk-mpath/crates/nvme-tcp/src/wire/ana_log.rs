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
        let mut parser = AnaLogParser::default();
        parser.take(bytes, |_| true)?;
        parser.finish()
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

    /// The state of the group that lists a namespace.
    #[must_use]
    pub fn listed_state_of(&self, nsid: u32) -> Option<AnaState> {
        self.groups.iter().find(|group| group.nsids.contains(&nsid)).map(|group| group.state)
    }

    /// The state of a group.
    #[must_use]
    pub fn state_of(&self, group: u32) -> Option<AnaState> {
        self.groups.iter().find(|candidate| candidate.id == group).map(|group| group.state)
    }
}

/// A parser of a log that is read in parts. It keeps all groups, and only those of their namespaces that the caller wants.
#[derive(Debug, Clone, Default)]
pub struct AnaLogParser {
    log: AnaLog,
    /// Groups after those in `log`. `None` before the header.
    groups_left: Option<u16>,
    /// Namespaces of the last group in `log` that are still to come.
    nsids_left: u32,
}

/// The number of bytes that holds any group without its namespaces, and the header.
pub const ANA_LOG_PART_MIN: u32 = GROUP_LEN as u32;

impl AnaLogParser {
    /// Takes the next part of the log, of at least [`ANA_LOG_PART_MIN`] bytes. Returns how many of its bytes are parsed: the next
    /// part starts after these. `is_wanted`: the namespaces to keep.
    pub fn take(&mut self, part: &[u8], is_wanted: impl Fn(u32) -> bool) -> Result<usize, AnaLogError> {
        let mut rest = part;
        loop {
            if let Some(group) = self.log.groups.last_mut()
                && self.nsids_left > 0
            {
                let there = self.nsids_left.min((rest.len() / 4) as u32);
                let (list, tail) = rest.split_at(there as usize * 4);
                let nsids = list.as_chunks().0.iter().map(|&nsid| u32::from_le_bytes(nsid));
                group.nsids.extend(nsids.filter(|&nsid| is_wanted(nsid)));
                self.nsids_left -= there;
                rest = tail;
                if self.nsids_left > 0 {
                    break;
                }
            }
            rest = match self.groups_left {
                Some(0) => break,
                Some(left) => {
                    let Some((group, tail)) = rest.split_first_chunk::<GROUP_LEN>() else { break };
                    self.begin_group(group)?;
                    self.groups_left = Some(left - 1);
                    tail
                }
                None => {
                    let Some((header, tail)) = rest.split_first_chunk::<HEADER_LEN>() else { break };
                    let (change_count, groups) = parse_header(header);
                    (self.log.change_count, self.groups_left) = (change_count, Some(groups));
                    tail
                }
            };
        }
        Ok(part.len() - rest.len())
    }

    fn begin_group(&mut self, group: &[u8; GROUP_LEN]) -> Result<(), AnaLogError> {
        let &[i0, i1, i2, i3, n0, n1, n2, n3, c0, c1, c2, c3, c4, c5, c6, c7, state, ..] = group;
        let (id, state) = (u32::from_le_bytes([i0, i1, i2, i3]), state & 0xf);
        self.nsids_left = u32::from_le_bytes([n0, n1, n2, n3]);
        self.log.groups.push(AnaGroup {
            id,
            change_count: u64::from_le_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
            state: AnaState::from_code(state).ok_or(AnaLogError::State { group: id, state })?,
            nsids: Vec::new(),
        });
        Ok(())
    }

    /// Whether the whole log is parsed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.groups_left == Some(0) && self.nsids_left == 0
    }

    /// Whether another reading of the header, of at least 16 bytes, shows the same log.
    #[must_use]
    pub fn is_unchanged(&self, header: &[u8]) -> bool {
        let groups = self.log.groups.len() as u16 + self.groups_left.unwrap_or(0);
        header.first_chunk().is_some_and(|header| parse_header(header) == (self.log.change_count, groups))
    }

    /// The part of the log that is parsed.
    #[must_use]
    pub fn into_parsed(self) -> AnaLog {
        self.log
    }

    /// The log.
    pub fn finish(self) -> Result<AnaLog, AnaLogError> {
        if self.is_complete() {
            return Ok(self.log);
        }
        let begun = self.log.groups.len() as u16;
        Err(AnaLogError::Truncated { index: if self.nsids_left > 0 { begun - 1 } else { begun } })
    }
}

/// Change count and number of groups.
fn parse_header(header: &[u8; HEADER_LEN]) -> (u64, u16) {
    let &[c0, c1, c2, c3, c4, c5, c6, c7, n0, n1, ..] = header;
    (u64::from_le_bytes([c0, c1, c2, c3, c4, c5, c6, c7]), u16::from_le_bytes([n0, n1]))
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

        /// Parts of any sizes make the same log, with the wanted namespaces alone.
        #[test]
        fn parts_make_the_whole(
            change_count: u64, groups in proptest::collection::vec(any_group(), 0..6), sizes in proptest::collection::vec(32usize..90, 1..9),
        ) {
            let mut log = AnaLog { change_count, groups };
            let bytes = log.emit();
            let (mut parser, mut done) = (AnaLogParser::default(), 0);
            for size in sizes.iter().cycle() {
                if parser.is_complete() {
                    break;
                }
                let end = bytes.len().min(done + size);
                done += parser.take(&bytes[done..end], |nsid| nsid % 2 == 0).unwrap();
            }
            prop_assert_eq!(done, bytes.len());
            prop_assert!(parser.is_unchanged(&bytes));
            log.groups.iter_mut().for_each(|group| group.nsids.retain(|nsid| nsid % 2 == 0));
            prop_assert_eq!(parser.finish(), Ok(log));
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
