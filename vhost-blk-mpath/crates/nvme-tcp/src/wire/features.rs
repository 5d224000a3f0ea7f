//! Features (Base 5.27.1).

/// Feature identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureId(pub u8);

impl FeatureId {
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: Self = Self(0x06);
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: Self = Self(0x07);
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENT_CONFIGURATION: Self = Self(0x0b);
    /// Keep Alive Timer, in milliseconds.
    pub const KEEP_ALIVE_TIMER: Self = Self(0x0f);
    /// Host Behavior Support.
    pub const HOST_BEHAVIOR: Self = Self(0x16);
    /// Host Identifier.
    pub const HOST_ID: Self = Self(0x81);
}

/// Value of [`FeatureId::NUMBER_OF_QUEUES`], the same in command and result: I/O queues, 0's-based.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberOfQueues {
    /// NSQR / NSQA: submission queues, 0's-based.
    pub submission: u16,
    /// NCQR / NCQA: completion queues, 0's-based.
    pub completion: u16,
}

impl NumberOfQueues {
    /// Parses dword 11 of the command or dword 0 of the completion.
    #[must_use]
    pub const fn from_value(value: u32) -> Self {
        Self { submission: value as u16, completion: (value >> 16) as u16 }
    }

    /// Dword 11 of the command or dword 0 of the completion.
    #[must_use]
    pub const fn to_value(self) -> u32 {
        self.submission as u32 | (self.completion as u32) << 16
    }
}

/// Value of [`FeatureId::ASYNC_EVENT_CONFIGURATION`]; OAES of Identify Controller has the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AsyncEventMask(pub u32);

impl AsyncEventMask {
    /// Namespace Attribute Notices.
    pub const NAMESPACE_ATTRIBUTE: Self = Self(1 << 8);
    /// Asymmetric Namespace Access Change Notices.
    pub const ANA_CHANGE: Self = Self(1 << 11);
    /// Discovery Log Page Change Notification; discovery controllers only.
    pub const DISCOVERY_CHANGE: Self = Self(1 << 31);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits that are set in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The bits that are set in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn number_of_queues_round_trips(submission: u16, completion: u16) {
            let queues = NumberOfQueues { submission, completion };
            prop_assert_eq!(NumberOfQueues::from_value(queues.to_value()), queues);
        }
    }
}
