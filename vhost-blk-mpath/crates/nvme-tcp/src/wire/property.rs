//! Controller properties (Base 3.1.3).

/// Offsets of the properties that a fabrics host uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropertyOffset(pub u32);

impl PropertyOffset {
    /// CAP, 8 bytes.
    pub const CAP: Self = Self(0x00);
    /// VS, 4 bytes.
    pub const VS: Self = Self(0x08);
    /// CC, 4 bytes.
    pub const CC: Self = Self(0x14);
    /// CSTS, 4 bytes.
    pub const CSTS: Self = Self(0x1c);
}

/// CAP: Controller Capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Capabilities of a fabrics controller with the NVM command set: `mqes` 0's-based, `to` in units of 500 ms.
    #[must_use]
    pub const fn new(mqes: u16, to: u8) -> Self {
        const CQR: u64 = 1 << 16;
        const CSS_NVM: u64 = 1 << 37;
        Self(mqes as u64 | CQR | (to as u64) << 24 | CSS_NVM)
    }

    /// MQES: the most entries of a queue, 0's-based.
    #[must_use]
    pub const fn mqes(self) -> u16 {
        self.0 as u16
    }

    /// TO: the longest the controller may take to become ready or not ready.
    #[must_use]
    pub const fn timeout(self) -> monotonic::Duration {
        monotonic::Duration::from_millis((self.0 >> 24 & 0xff) * 500)
    }

    /// MPSMIN: the smallest memory page has `2^(12 + MPSMIN)` bytes. It is the unit of MDTS.
    #[must_use]
    pub const fn mpsmin(self) -> u8 {
        (self.0 >> 48 & 0xf) as u8
    }
}

/// VS: the NVM Express version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Version(pub u32);

impl Version {
    /// Version `major.minor`.
    #[must_use]
    pub const fn new(major: u16, minor: u8) -> Self {
        Self((major as u32) << 16 | (minor as u32) << 8)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0 >> 16, self.0 >> 8 & 0xff, self.0 & 0xff)
    }
}

/// CC: Controller Configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControllerConfiguration(pub u32);

impl ControllerConfiguration {
    /// IOSQES 6 (64 bytes), IOCQES 4 (16 bytes), NVM command set, 4 KiB pages: the only values that fabrics use. Disabled.
    pub const DISABLED: Self = Self(0x0046_0000);
    /// The values of [`Self::DISABLED`], enabled.
    pub const ENABLED: Self = Self(Self::DISABLED.0 | 1);
    /// Enabled, with a normal shutdown requested.
    pub const SHUTDOWN: Self = Self(Self::ENABLED.0 | 1 << 14);

    /// EN.
    #[must_use]
    pub const fn is_enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether SHN requests a shutdown, normal or abrupt.
    #[must_use]
    pub const fn requests_shutdown(self) -> bool {
        self.0 >> 14 & 3 != 0
    }
}

/// SHST: the state of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownStatus {
    /// No shutdown was requested.
    None,
    /// The shutdown is under way.
    Occurring,
    /// The shutdown is complete.
    Complete,
}

/// CSTS: Controller Status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControllerStatus(pub u32);

impl ControllerStatus {
    /// A status with these fields.
    #[must_use]
    pub const fn new(ready: bool, fatal: bool, shutdown: ShutdownStatus) -> Self {
        Self(ready as u32 | (fatal as u32) << 1 | (shutdown as u32) << 2)
    }

    /// RDY.
    #[must_use]
    pub const fn is_ready(self) -> bool {
        self.0 & 1 != 0
    }

    /// CFS: Controller Fatal Status.
    #[must_use]
    pub const fn is_fatal(self) -> bool {
        self.0 & 2 != 0
    }

    /// SHST.
    #[must_use]
    pub const fn shutdown(self) -> ShutdownStatus {
        match self.0 >> 2 & 3 {
            0 => ShutdownStatus::None,
            2 => ShutdownStatus::Complete,
            _ => ShutdownStatus::Occurring,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_match_the_specification() {
        let cap = Capabilities::new(127, 30);
        assert_eq!((cap.mqes(), cap.timeout().as_secs()), (127, 15));
        assert_eq!(ControllerConfiguration::ENABLED.0, 0x46_0001);
        assert!(ControllerConfiguration::SHUTDOWN.requests_shutdown());
        for shutdown in [ShutdownStatus::None, ShutdownStatus::Occurring, ShutdownStatus::Complete] {
            let csts = ControllerStatus::new(true, false, shutdown);
            assert_eq!((csts.is_ready(), csts.is_fatal(), csts.shutdown()), (true, false, shutdown));
        }
        assert_eq!(Version::new(1, 4).to_string(), "1.4.0");
    }
}
