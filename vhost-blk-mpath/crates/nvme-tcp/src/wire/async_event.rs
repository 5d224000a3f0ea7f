//! The result of an Asynchronous Event Request (Base 5.2.1).

use super::LogPage;

/// Dword 0 of the completion of an Asynchronous Event Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Asynchronous Event Type: 0 error, 1 SMART, 2 notice, 6 I/O command specific, 7 vendor (3 bits).
    pub kind: u8,
    /// Asynchronous Event Information.
    pub information: u8,
    /// The log page to read. Reading it clears the event.
    pub log_page: LogPage,
}

impl AsyncEvent {
    /// Namespace Attribute Changed.
    pub const NAMESPACE_CHANGED: Self = Self { kind: 2, information: 0, log_page: LogPage::CHANGED_NAMESPACES };
    /// Asymmetric Namespace Access Change.
    pub const ANA_CHANGED: Self = Self { kind: 2, information: 3, log_page: LogPage::ANA };

    /// Discovery Log Page Change.
    pub const DISCOVERY_CHANGED: Self = Self { kind: 2, information: 0xf0, log_page: LogPage::DISCOVERY };

    /// Parses dword 0.
    #[must_use]
    pub const fn from_dw0(dw0: u32) -> Self {
        Self { kind: dw0 as u8 & 7, information: (dw0 >> 8) as u8, log_page: LogPage((dw0 >> 16) as u8) }
    }

    /// Dword 0.
    #[must_use]
    pub const fn to_dw0(self) -> u32 {
        self.kind as u32 & 7 | (self.information as u32) << 8 | (self.log_page.0 as u32) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_round_trip(kind in 0u8..8, information: u8, page: u8) {
            let event = AsyncEvent { kind, information, log_page: LogPage(page) };
            prop_assert_eq!(AsyncEvent::from_dw0(event.to_dw0()), event);
        }
    }

    #[test]
    fn the_ana_event_has_the_documented_number() {
        assert_eq!(AsyncEvent::ANA_CHANGED.to_dw0(), 0x000c_0302);
        assert_eq!(AsyncEvent::NAMESPACE_CHANGED.to_dw0(), 0x0004_0002);
        assert_eq!(AsyncEvent::DISCOVERY_CHANGED.to_dw0(), 0x0070_f002);
    }
}
