//! The status field of a completion (Base 3.3.3.2.1, figures 92 to 99).

/// Status of a completion: bits 31:17 of dword 3, so SC 7:0, SCT 10:8, CRD 12:11, M 13, DNR 14. Zero is success.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $sct:literal, $sc:literal, $text:literal;)*) => {
        impl Status {
            $(#[doc = $text] #[doc = "."] pub const $name: Self = Self::new($sct, $sc);)*

            /// The specification's name of the code. DNR, M and CRD are ignored.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match (self.sct(), self.sc()) {
                    $(($sct, $sc) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, 0x00, "Successful Completion";
    INVALID_OPCODE = 0, 0x01, "Invalid Command Opcode";
    INVALID_FIELD = 0, 0x02, "Invalid Field in Command";
    COMMAND_ID_CONFLICT = 0, 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, "Data Transfer Error";
    POWER_LOSS = 0, 0x05, "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = 0, 0x06, "Internal Error";
    ABORT_REQUESTED = 0, 0x07, "Command Abort Requested";
    ABORTED_SQ_DELETION = 0, 0x08, "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED = 0, 0x09, "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED = 0, 0x0a, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE = 0, 0x0b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = 0, 0x0c, "Command Sequence Error";
    INVALID_SGL_SEGMENT = 0, 0x0d, "Invalid SGL Segment Descriptor";
    INVALID_SGL_COUNT = 0, 0x0e, "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH_INVALID = 0, 0x0f, "Data SGL Length Invalid";
    METADATA_SGL_LENGTH_INVALID = 0, 0x10, "Metadata SGL Length Invalid";
    SGL_DESCRIPTOR_TYPE_INVALID = 0, 0x11, "SGL Descriptor Type Invalid";
    PRP_OFFSET_INVALID = 0, 0x13, "PRP Offset Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = 0, 0x14, "Atomic Write Unit Exceeded";
    OPERATION_DENIED = 0, 0x15, "Operation Denied";
    SGL_OFFSET_INVALID = 0, 0x16, "SGL Offset Invalid";
    HOST_ID_INCONSISTENT = 0, 0x18, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_EXPIRED = 0, 0x19, "Keep Alive Timer Expired";
    KEEP_ALIVE_INVALID = 0, 0x1a, "Keep Alive Timeout Invalid";
    ABORTED_PREEMPT = 0, 0x1b, "Command Aborted due to Preempt and Abort";
    SANITIZE_FAILED = 0, 0x1c, "Sanitize Failed";
    SANITIZE_IN_PROGRESS = 0, 0x1d, "Sanitize In Progress";
    SGL_DATA_BLOCK_GRANULARITY_INVALID = 0, 0x1e, "SGL Data Block Granularity Invalid";
    NAMESPACE_WRITE_PROTECTED = 0, 0x20, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = 0, 0x21, "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22, "Transient Transport Error";
    ADMIN_MEDIA_NOT_READY = 0, 0x24, "Admin Command Media Not Ready";
    LBA_OUT_OF_RANGE = 0, 0x80, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0, 0x81, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0, 0x82, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0, 0x83, "Reservation Conflict";
    FORMAT_IN_PROGRESS = 0, 0x84, "Format In Progress";
    COMPLETION_QUEUE_INVALID = 1, 0x00, "Completion Queue Invalid";
    INVALID_QUEUE_IDENTIFIER = 1, 0x01, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = 1, 0x02, "Invalid Queue Size";
    ABORT_LIMIT_EXCEEDED = 1, 0x03, "Abort Command Limit Exceeded";
    ASYNC_EVENT_LIMIT_EXCEEDED = 1, 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_LOG_PAGE = 1, 0x09, "Invalid Log Page";
    FEATURE_NOT_SAVEABLE = 1, 0x0d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0f, "Feature Not Namespace Specific";
    CONNECT_INCOMPATIBLE_FORMAT = 1, 0x80, "Connect Incompatible Format";
    CONNECT_CONTROLLER_BUSY = 1, 0x81, "Connect Controller Busy";
    CONNECT_INVALID_PARAMETERS = 1, 0x82, "Connect Invalid Parameters";
    CONNECT_RESTART_DISCOVERY = 1, 0x83, "Connect Restart Discovery";
    CONNECT_INVALID_HOST = 1, 0x84, "Connect Invalid Host";
    DISCOVERY_RESTART = 1, 0x90, "Discovery Restart";
    AUTHENTICATION_REQUIRED = 1, 0x91, "Authentication Required";
    WRITE_FAULT = 2, 0x80, "Write Fault";
    UNRECOVERED_READ_ERROR = 2, 0x81, "Unrecovered Read Error";
    GUARD_CHECK_ERROR = 2, 0x82, "End-to-end Guard Check Error";
    APPLICATION_TAG_CHECK_ERROR = 2, 0x83, "End-to-end Application Tag Check Error";
    REFERENCE_TAG_CHECK_ERROR = 2, 0x84, "End-to-end Reference Tag Check Error";
    COMPARE_FAILURE = 2, 0x85, "Compare Failure";
    ACCESS_DENIED = 2, 0x86, "Access Denied";
    DEALLOCATED_BLOCK = 2, 0x87, "Deallocated or Unwritten Logical Block";
    INTERNAL_PATH_ERROR = 3, 0x00, "Internal Path Error";
    ANA_PERSISTENT_LOSS = 3, 0x01, "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = 3, 0x02, "Asymmetric Access Inaccessible";
    ANA_TRANSITION = 3, 0x03, "Asymmetric Access Transition";
    CONTROLLER_PATHING_ERROR = 3, 0x60, "Controller Pathing Error";
    HOST_PATHING_ERROR = 3, 0x70, "Host Pathing Error";
    ABORTED_BY_HOST = 3, 0x71, "Command Aborted by Host";
}

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

    /// Do Not Retry: the same command would fail again, on any path.
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
    pub const fn is(self, other: Self) -> bool {
        self.0 & 0x7ff == other.0 & 0x7ff
    }

    /// Whether the command has succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.is(Self::SUCCESS)
    }

    /// `Ok` for success, this status otherwise.
    pub const fn result(self) -> Result<(), Self> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }

    /// Whether another path may succeed: a path related status, or the command was aborted with its queue.
    #[must_use]
    pub const fn is_path_error(self) -> bool {
        self.sct() == 3 || self.is(Self::ABORTED_SQ_DELETION)
    }

    /// Whether the medium or the data on it is the reason (status code type 2, "Media and Data Integrity Errors").
    #[must_use]
    pub const fn is_media_error(self) -> bool {
        self.sct() == 2
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
        assert!(status.is_path_error() && status.is_ana_error() && !status.more());
        assert_eq!(status.to_string(), "Asymmetric Access Inaccessible, Do Not Retry");
        assert_eq!(Status::new(7, 0xc1).to_string(), "Status Code Type 0x7 Status Code 0xc1");
        assert!(Status::ABORTED_SQ_DELETION.is_path_error() && !Status::INTERNAL_ERROR.is_path_error());
        assert!(Status::UNRECOVERED_READ_ERROR.is_media_error() && !Status::LBA_OUT_OF_RANGE.is_media_error());
        assert_eq!(Status::SUCCESS.result(), Ok(()));
    }
}
