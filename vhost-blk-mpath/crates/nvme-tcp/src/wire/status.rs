//! The status field of a completion (Base 2.1, 4.2.3, figures 100 to 107).

/// Status of a completion: bits 31:17 of dword 3, so SC 7:0, SCT 10:8, CRD 12:11, M 13, DNR 14. Zero is success.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    /// Do Not Retry.
    pub const DNR: u16 = 1 << 14;
    const MORE: u16 = 1 << 13;

    /// A status of type `sct` (0–7) and code `sc`, retryable.
    #[must_use]
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self((sct as u16 & 7) << 8 | sc as u16)
    }

    /// This status with Do Not Retry set.
    #[must_use]
    pub const fn with_dnr(self) -> Self {
        Self(self.0 | Self::DNR)
    }

    /// This status with Command Retry Delay `crd` (0–3).
    #[must_use]
    pub const fn with_crd(self, crd: u8) -> Self {
        Self(self.0 & !(3 << 11) | (crd as u16 & 3) << 11)
    }

    /// Status Code Type: 0 generic, 1 command specific, 2 media and data integrity, 3 path related, 7 vendor.
    #[must_use]
    pub const fn sct(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }

    /// Status Code.
    #[must_use]
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Command Retry Delay: index 1–3 into CRDT, 0 for none.
    #[must_use]
    pub const fn crd(self) -> u8 {
        (self.0 >> 11 & 3) as u8
    }

    /// Do Not Retry: the controller expects the same command to fail again, on any path.
    #[must_use]
    pub const fn dnr(self) -> bool {
        self.0 & Self::DNR != 0
    }

    /// More: the error log has more information.
    #[must_use]
    pub const fn more(self) -> bool {
        self.0 & Self::MORE != 0
    }

    /// Whether type and code are those of `other`. DNR, M and CRD are ignored.
    #[must_use]
    #[inline]
    pub const fn is(self, other: Self) -> bool {
        self.0 & 0x7ff == other.0 & 0x7ff
    }

    /// Whether the command has succeeded.
    #[must_use]
    #[inline]
    pub const fn is_success(self) -> bool {
        self.is(Self::SUCCESS)
    }

    /// `Ok` for success, this status otherwise.
    pub const fn result(self) -> Result<(), Self> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }

    /// Whether the controller does not have the namespace. Then its namespaces should be identified again.
    #[must_use]
    pub const fn is_missing_namespace(self) -> bool {
        self.is(Self::INVALID_NAMESPACE) || self.is(Self::NAMESPACE_NOT_ATTACHED)
    }

    /// Whether the ANA state of the namespace is the reason. Then the ANA log should be read again.
    #[must_use]
    pub const fn is_ana_error(self) -> bool {
        self.is(Self::ANA_PERSISTENT_LOSS) || self.is(Self::ANA_INACCESSIBLE) || self.is(Self::ANA_TRANSITION)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name)?,
            None => write!(f, "Status Code Type {:#x} Status Code {:#04x}", self.sct(), self.sc())?,
        }
        if self.dnr() { f.write_str(", Do Not Retry") } else { Ok(()) }
    }
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Status({self}: {:#06x})", self.0)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_names_of_a_status() {
        let status = Status::ANA_INACCESSIBLE.with_crd(2).with_dnr();
        assert_eq!((status.sct(), status.sc(), status.crd(), status.dnr()), (3, 2, 2, true));
        assert_eq!(status.0, 0x5302);
        assert!(status.is_ana_error() && !status.more());
        assert_eq!(status.to_string(), "Asymmetric Access Inaccessible, Do Not Retry");
        assert_eq!(Status::new(7, 0xc1).to_string(), "Status Code Type 0x7 Status Code 0xc1");
        assert_eq!(Status::SUCCESS.result(), Ok(()));
    }
}
