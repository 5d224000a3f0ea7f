//! Decides: an NVMe status means retry, another path, or an error (docs/nvme-statuses.md).
//!
//! Every status of NVMe, with what it speaks of. This table decides what follows from a status, and `make references` writes
//! `docs/nvme-statuses.md` from it.

use super::Status;

/// The subject of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The stored data: every path gives this answer.
    Medium,
    /// The command: every path refuses it.
    Command,
    /// The path, its controller or its connection: another path may carry out the command.
    Path,
    /// A moment of the controller: the command may succeed later.
    Moment,
}

/// The host's answer to an error of a command, the best answer first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// Repeats it, within the limit of retries.
    Repeat,
    /// Sends it over another path. Other commands for the namespace avoid the path too.
    OtherPath,
    /// Fails the request.
    Fail,
}

// A row: name, type, code, subject, the specification's name, and the sections about the code in addition to its figure.
macro_rules! statuses {
    ($($name:ident = $sct:literal, $sc:literal, $subject:ident, $text:literal $(, $sections:literal)?;)*) => {
        impl Status {
            /// Successful Completion.
            pub const SUCCESS: Self = Self::new(0, 0);
            $(#[doc = concat!("`", $text, "`.")] pub const $name: Self = Self::new($sct, $sc);)*

            /// The specification's name of the code. DNR, M and CRD are ignored.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match (self.sct(), self.sc()) {
                    (0, 0) => Some("Successful Completion"),
                    $(($sct, $sc) => Some($text),)*
                    _ => None,
                }
            }

            /// The subject of an error, if the code is known.
            const fn listed_subject(self) -> Option<Subject> {
                match (self.sct(), self.sc()) {
                    $(($sct, $sc) => Some(Subject::$subject),)*
                    _ => None,
                }
            }

            /// The sections of the specification about the code, in addition to the figure that lists the code.
            #[cfg(test)]
            const fn sections(self) -> &'static str {
                match (self.sct(), self.sc()) {
                    $(($sct, $sc) => concat!($($sections)?),)*
                    _ => "",
                }
            }

            /// Every known error.
            pub const ERRORS: &[Self] = &[$(Self::$name,)*];
        }
    };
}

statuses! {
    INVALID_OPCODE = 0, 0x01, Command, "Invalid Command Opcode";
    INVALID_FIELD = 0, 0x02, Command, "Invalid Field in Command";
    COMMAND_ID_CONFLICT = 0, 0x03, Moment, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, Moment, "Data Transfer Error";
    POWER_LOSS = 0, 0x05, Moment, "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = 0, 0x06, Moment, "Internal Error";
    ABORT_REQUESTED = 0, 0x07, Moment, "Command Abort Requested", "5.1.1, 7.1";
    ABORTED_SQ_DELETION = 0, 0x08, Path, "Command Aborted due to SQ Deletion", "5.2.4";
    ABORTED_FAILED_FUSED = 0, 0x09, Command, "Command Aborted due to Failed Fused Command", "3.4.2";
    ABORTED_MISSING_FUSED = 0, 0x0a, Command, "Command Aborted due to Missing Fused Command", "3.4.2";
    INVALID_NAMESPACE = 0, 0x0b, Path, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = 0, 0x0c, Command, "Command Sequence Error";
    INVALID_SGL_SEGMENT = 0, 0x0d, Command, "Invalid SGL Segment Descriptor", "4.3.2";
    INVALID_SGL_COUNT = 0, 0x0e, Command, "Invalid Number of SGL Descriptors", "4.3.2";
    DATA_SGL_LENGTH_INVALID = 0, 0x0f, Command, "Data SGL Length Invalid", "4.3.2";
    METADATA_SGL_LENGTH_INVALID = 0, 0x10, Command, "Metadata SGL Length Invalid", "4.3.2";
    SGL_DESCRIPTOR_TYPE_INVALID = 0, 0x11, Command, "SGL Descriptor Type Invalid", "4.3.2";
    INVALID_CMB_USE = 0, 0x12, Command, "Invalid Use of Controller Memory Buffer", "8.2.1";
    PRP_OFFSET_INVALID = 0, 0x13, Command, "PRP Offset Invalid", "4.3.1";
    ATOMIC_WRITE_UNIT_EXCEEDED = 0, 0x14, Command, "Atomic Write Unit Exceeded", "NVM";
    OPERATION_DENIED = 0, 0x15, Command, "Operation Denied";
    SGL_OFFSET_INVALID = 0, 0x16, Command, "SGL Offset Invalid", "4.3.2";
    HOST_ID_INCONSISTENT = 0, 0x18, Path, "Host Identifier Inconsistent Format", "5.1.25.1.28";
    KEEP_ALIVE_EXPIRED = 0, 0x19, Path, "Keep Alive Timer Expired", "3.9";
    KEEP_ALIVE_INVALID = 0, 0x1a, Command, "Keep Alive Timeout Invalid", "3.9";
    ABORTED_PREEMPT = 0, 0x1b, Command, "Command Aborted due to Preempt and Abort", "7.5";
    SANITIZE_FAILED = 0, 0x1c, Medium, "Sanitize Failed", "8.1.24";
    SANITIZE_IN_PROGRESS = 0, 0x1d, Medium, "Sanitize In Progress", "8.1.24";
    SGL_DATA_BLOCK_GRANULARITY_INVALID = 0, 0x1e, Command, "SGL Data Block Granularity Invalid", "NVM";
    NOT_SUPPORTED_IN_CMB = 0, 0x1f, Command, "Command Not Supported for Queue in CMB", "5.1.22, 8.2.1";
    NAMESPACE_WRITE_PROTECTED = 0, 0x20, Medium, "Namespace is Write Protected", "8.1.16";
    COMMAND_INTERRUPTED = 0, 0x21, Moment, "Command Interrupted", "5.1.25.1.14";
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22, Moment, "Transient Transport Error";
    PROHIBITED_BY_LOCKDOWN = 0, 0x23, Command, "Command Prohibited by Command and Feature Lockdown", "8.1.5";
    ADMIN_MEDIA_NOT_READY = 0, 0x24, Moment, "Admin Command Media Not Ready", "3.5.3";
    INVALID_KEY_TAG = 0, 0x25, Command, "Invalid Key Tag", "8.1.13";
    DISPERSED_NOT_ENABLED = 0, 0x26, Path, "Host Dispersed Namespace Support Not Enabled", "8.1.9";
    HOST_ID_NOT_INITIALIZED = 0, 0x27, Path, "Host Identifier Not Initialized";
    INCORRECT_KEY = 0, 0x28, Command, "Incorrect Key", "8.1.13";
    FDP_DISABLED = 0, 0x29, Command, "FDP Disabled", "8.1.10";
    INVALID_PLACEMENT_HANDLES = 0, 0x2a, Command, "Invalid Placement Handle List", "8.1.10";
    LBA_OUT_OF_RANGE = 0, 0x80, Command, "LBA Out of Range", "NVM";
    CAPACITY_EXCEEDED = 0, 0x81, Medium, "Capacity Exceeded", "NVM";
    NAMESPACE_NOT_READY = 0, 0x82, Moment, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0, 0x83, Command, "Reservation Conflict", "8.1.22";
    FORMAT_IN_PROGRESS = 0, 0x84, Moment, "Format In Progress", "5.1.10";
    INVALID_VALUE_SIZE = 0, 0x85, Command, "Invalid Value Size", "KV";
    INVALID_KEY_SIZE = 0, 0x86, Command, "Invalid Key Size", "KV";
    KEY_DOES_NOT_EXIST = 0, 0x87, Command, "KV Key Does Not Exist", "KV";
    UNRECOVERED_ERROR = 0, 0x88, Medium, "Unrecovered Error", "KV";
    KEY_EXISTS = 0, 0x89, Command, "Key Exists", "KV";

    COMPLETION_QUEUE_INVALID = 1, 0x00, Command, "Completion Queue Invalid", "5.2.2";
    INVALID_QUEUE_IDENTIFIER = 1, 0x01, Command, "Invalid Queue Identifier", "5.2.1, 5.2.2, 5.2.3, 5.2.4";
    INVALID_QUEUE_SIZE = 1, 0x02, Command, "Invalid Queue Size", "5.2.1, 5.2.2";
    ABORT_LIMIT_EXCEEDED = 1, 0x03, Moment, "Abort Command Limit Exceeded", "5.1.1";
    ASYNC_EVENT_LIMIT_EXCEEDED = 1, 0x05, Command, "Asynchronous Event Request Limit Exceeded", "5.1.2";
    INVALID_FIRMWARE_SLOT = 1, 0x06, Command, "Invalid Firmware Slot", "5.1.8";
    INVALID_FIRMWARE_IMAGE = 1, 0x07, Command, "Invalid Firmware Image", "5.1.8";
    INVALID_INTERRUPT_VECTOR = 1, 0x08, Command, "Invalid Interrupt Vector", "5.2.1";
    INVALID_LOG_PAGE = 1, 0x09, Command, "Invalid Log Page", "5.1.12";
    INVALID_FORMAT = 1, 0x0a, Command, "Invalid Format", "5.1.10, 5.1.21";
    FIRMWARE_NEEDS_CONVENTIONAL_RESET = 1, 0x0b, Command, "Firmware Activation Requires Conventional Reset",
        "5.1.8, 5.1.22";
    INVALID_QUEUE_DELETION = 1, 0x0c, Command, "Invalid Queue Deletion", "5.2.3";
    FEATURE_NOT_SAVEABLE = 1, 0x0d, Command, "Feature Identifier Not Saveable", "5.1.25";
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, Command, "Feature Not Changeable", "5.1.25";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0f, Command, "Feature Not Namespace Specific", "5.1.25";
    FIRMWARE_NEEDS_SUBSYSTEM_RESET = 1, 0x10, Command, "Firmware Activation Requires NVM Subsystem Reset",
        "5.1.8, 5.1.22";
    FIRMWARE_NEEDS_CONTROLLER_RESET = 1, 0x11, Command, "Firmware Activation Requires Controller Level Reset",
        "5.1.8, 5.1.22";
    FIRMWARE_TAKES_TOO_LONG = 1, 0x12, Command, "Firmware Activation Requires Maximum Time Violation", "5.1.8";
    FIRMWARE_PROHIBITED = 1, 0x13, Command, "Firmware Activation Prohibited", "5.1.8";
    OVERLAPPING_RANGE = 1, 0x14, Command, "Overlapping Range", "5.1.8, 5.1.9, 5.1.25";
    NAMESPACE_INSUFFICIENT_CAPACITY = 1, 0x15, Command, "Namespace Insufficient Capacity", "5.1.21";
    NAMESPACE_ID_UNAVAILABLE = 1, 0x16, Command, "Namespace Identifier Unavailable", "5.1.21";
    NAMESPACE_ALREADY_ATTACHED = 1, 0x18, Command, "Namespace Already Attached", "5.1.20";
    NAMESPACE_IS_PRIVATE = 1, 0x19, Command, "Namespace Is Private", "5.1.20";
    NAMESPACE_NOT_ATTACHED = 1, 0x1a, Path, "Namespace Not Attached", "5.1.20";
    THIN_PROVISIONING_NOT_SUPPORTED = 1, 0x1b, Command, "Thin Provisioning Not Supported", "5.1.21";
    CONTROLLER_LIST_INVALID = 1, 0x1c, Command, "Controller List Invalid", "5.1.20";
    SELF_TEST_IN_PROGRESS = 1, 0x1d, Moment, "Device Self-test In Progress", "5.1.5";
    BOOT_PARTITION_WRITE_PROHIBITED = 1, 0x1e, Command, "Boot Partition Write Prohibited", "5.1.8";
    INVALID_CONTROLLER_IDENTIFIER = 1, 0x1f, Command, "Invalid Controller Identifier",
        "5.1.4, 5.1.16, 5.1.17, 5.1.26, 5.1.27, 5.2.6";
    INVALID_SECONDARY_STATE = 1, 0x20, Command, "Invalid Secondary Controller State", "5.2.6";
    INVALID_RESOURCE_COUNT = 1, 0x21, Command, "Invalid Number of Controller Resources", "5.2.6";
    INVALID_RESOURCE_IDENTIFIER = 1, 0x22, Command, "Invalid Resource Identifier", "5.2.6";
    SANITIZE_PROHIBITED = 1, 0x23, Command, "Sanitize Prohibited While Persistent Memory Region is Enabled", "5.1.22";
    ANA_GROUP_INVALID = 1, 0x24, Command, "ANA Group Identifier Invalid", "5.1.21";
    ANA_ATTACH_FAILED = 1, 0x25, Command, "ANA Attach Failed", "5.1.20";
    INSUFFICIENT_CAPACITY = 1, 0x26, Command, "Insufficient Capacity", "5.1.3";
    ATTACHMENT_LIMIT_EXCEEDED = 1, 0x27, Command, "Namespace Attachment Limit Exceeded", "5.1.20";
    PROHIBITION_NOT_SUPPORTED = 1, 0x28, Command, "Prohibition of Command Execution Not Supported", "5.1.15";
    COMMAND_SET_NOT_SUPPORTED = 1, 0x29, Command, "I/O Command Set Not Supported", "5.1.20, 5.1.21";
    COMMAND_SET_NOT_ENABLED = 1, 0x2a, Path, "I/O Command Set Not Enabled", "5.1.20";
    COMMAND_SET_COMBINATION_REJECTED = 1, 0x2b, Command, "I/O Command Set Combination Rejected", "5.1.25";
    INVALID_COMMAND_SET = 1, 0x2c, Command, "Invalid I/O Command Set", "5.1.13";
    IDENTIFIER_UNAVAILABLE = 1, 0x2d, Command, "Identifier Unavailable", "5.1.3";
    NAMESPACE_IS_DISPERSED = 1, 0x2e, Command, "Namespace Is Dispersed", "7.5, 7.6, 7.7, 7.8";
    INVALID_DISCOVERY_INFORMATION = 1, 0x2f, Command, "Invalid Discovery Information", "5.3.3";
    ZONING_LOCKED = 1, 0x30, Command, "Zoning Data Structure Locked", "5.3.4, 5.3.5, 5.3.6";
    ZONING_NOT_FOUND = 1, 0x31, Command, "Zoning Data Structure Not Found", "5.3.4, 5.3.5, 5.3.6";
    INSUFFICIENT_DISCOVERY_RESOURCES = 1, 0x32, Command, "Insufficient Discovery Resources", "5.3.3";
    FUNCTION_DISABLED = 1, 0x33, Command, "Requested Function Disabled", "5.3.4, 5.3.5, 5.3.6";
    ZONE_GROUP_ORIGINATOR_INVALID = 1, 0x34, Command, "ZoneGroup Originator Invalid", "5.3.6";
    INVALID_HOST = 1, 0x35, Command, "Invalid Host", "5.3.8";
    INVALID_SUBSYSTEM = 1, 0x36, Command, "Invalid NVM Subsystem", "5.3.8";
    INVALID_DATA_QUEUE = 1, 0x37, Command, "Invalid Controller Data Queue", "5.1.4, 5.1.11, 5.1.25, 5.1.27";
    NOT_ENOUGH_RESOURCES = 1, 0x38, Moment, "Not Enough Resources", "5.1.4, 5.1.27";
    CONTROLLER_SUSPENDED = 1, 0x39, Moment, "Controller Suspended", "5.1.22, 5.1.27";
    CONTROLLER_NOT_SUSPENDED = 1, 0x3a, Command, "Controller Not Suspended", "5.1.27";
    DATA_QUEUE_FULL = 1, 0x3b, Command, "Controller Data Queue Full", "5.1.27";
    STREAM_ALLOCATION_FAILED = 1, 0x7f, Command, "Stream Resource Allocation Failed", "8.1.8";
    CONNECT_INCOMPATIBLE_FORMAT = 1, 0x80, Command, "Connect Incompatible Format / Conflicting Attributes",
        "6.3, 6.4, NVM";
    CONNECT_CONTROLLER_BUSY = 1, 0x81, Command, "Connect Controller Busy / Invalid Protection Information",
        "6.3, 6.4, NVM";
    CONNECT_INVALID_PARAMETERS = 1, 0x82, Command, "Connect Invalid Parameters / Attempted Write to Read Only Range",
        "6.3, NVM";
    CONNECT_RESTART_DISCOVERY = 1, 0x83, Command, "Connect Restart Discovery / Command Size Limit Exceeded", "6.3, NVM";
    CONNECT_INVALID_HOST = 1, 0x84, Command, "Connect Invalid Host", "6.3";
    INCOMPATIBLE_NAMESPACE = 1, 0x85, Command, "Invalid Queue Type / Incompatible Namespace or Format", "6.4, NVM";
    FAST_COPY_NOT_POSSIBLE = 1, 0x86, Command, "Fast Copy Not Possible", "NVM";
    OVERLAPPING_IO_RANGE = 1, 0x87, Command, "Overlapping I/O Range", "NVM";
    NAMESPACE_NOT_REACHABLE = 1, 0x88, Path, "Namespace Not Reachable", "8.1.19";
    INSUFFICIENT_RESOURCES = 1, 0x89, Moment, "Insufficient Resources", "NVM";
    DISCOVERY_RESTART = 1, 0x90, Command, "Discovery Restart", "5.1.12";
    AUTHENTICATION_REQUIRED = 1, 0x91, Path, "Authentication Required", "8.3.4";
    ZONE_BOUNDARY_ERROR = 1, 0xb8, Command, "Zone Boundary Error", "ZNS";
    ZONE_IS_FULL = 1, 0xb9, Command, "Zone Is Full", "ZNS";
    ZONE_IS_READ_ONLY = 1, 0xba, Medium, "Zone Is Read Only", "ZNS";
    ZONE_IS_OFFLINE = 1, 0xbb, Medium, "Zone Is Offline", "ZNS";
    ZONE_INVALID_WRITE = 1, 0xbc, Command, "Zone Invalid Write", "ZNS";
    TOO_MANY_ACTIVE_ZONES = 1, 0xbd, Command, "Too Many Active Zones", "ZNS";
    TOO_MANY_OPEN_ZONES = 1, 0xbe, Command, "Too Many Open Zones", "ZNS";
    INVALID_ZONE_TRANSITION = 1, 0xbf, Command, "Invalid Zone State Transition", "ZNS";

    WRITE_FAULT = 2, 0x80, Medium, "Write Fault";
    UNRECOVERED_READ_ERROR = 2, 0x81, Medium, "Unrecovered Read Error";
    GUARD_CHECK_ERROR = 2, 0x82, Medium, "End-to-end Guard Check Error";
    APPLICATION_TAG_CHECK_ERROR = 2, 0x83, Medium, "End-to-end Application Tag Check Error";
    REFERENCE_TAG_CHECK_ERROR = 2, 0x84, Medium, "End-to-end Reference Tag Check Error";
    COMPARE_FAILURE = 2, 0x85, Medium, "Compare Failure", "NVM";
    ACCESS_DENIED = 2, 0x86, Medium, "Access Denied";
    DEALLOCATED_BLOCK = 2, 0x87, Medium, "Deallocated or Unwritten Logical Block", "NVM";
    STORAGE_TAG_CHECK_ERROR = 2, 0x88, Medium, "End-to-End Storage Tag Check Error";

    INTERNAL_PATH_ERROR = 3, 0x00, Path, "Internal Path Error";
    ANA_PERSISTENT_LOSS = 3, 0x01, Path, "Asymmetric Access Persistent Loss", "8.1.1.7";
    ANA_INACCESSIBLE = 3, 0x02, Path, "Asymmetric Access Inaccessible", "8.1.1.6";
    ANA_TRANSITION = 3, 0x03, Path, "Asymmetric Access Transition", "8.1.1.8";
    CONTROLLER_PATHING_ERROR = 3, 0x60, Path, "Controller Pathing Error";
    HOST_PATHING_ERROR = 3, 0x70, Path, "Host Pathing Error";
    ABORTED_BY_HOST = 3, 0x71, Path, "Command Aborted by Host";
}

/// Statuses whose answer is not that of their subject, and why. The flag is DNR; without a flag the answer holds for both.
const EXCEPTIONS: [(Status, Option<bool>, Answer, &str); 4] = [
    (
        Status::INVALID_OPCODE,
        None,
        Answer::Fail,
        "no controller of the subsystem knows the command, and the guest is told so",
    ),
    (
        Status::INVALID_FIELD,
        None,
        Answer::Fail,
        "no controller of the subsystem takes the command, and the guest is told so",
    ),
    (
        Status::RESERVATION_CONFLICT,
        None,
        Answer::Fail,
        "another host has the reservation, and SPDK sends no DNR with it",
    ),
    (
        Status::NAMESPACE_NOT_READY,
        Some(true),
        Answer::OtherPath,
        "here DNR says that a later time does not help, and not that another controller does not",
    ),
];

impl Status {
    /// The subject of an error. An unknown code has the subject of its type.
    #[must_use]
    pub const fn subject(self) -> Subject {
        match (self.listed_subject(), self.sct()) {
            (Some(subject), _) => subject,
            (None, 1) => Subject::Command,
            (None, 2) => Subject::Medium,
            (None, 3) => Subject::Path,
            (None, _) => Subject::Moment,
        }
    }

    /// The answer to an error.
    #[must_use]
    pub fn answer(self) -> Answer {
        let of_exception =
            EXCEPTIONS.iter().find(|(status, dnr, ..)| self.is(*status) && dnr.is_none_or(|dnr| dnr == self.dnr()));
        match (of_exception, self.subject()) {
            (Some((_, _, answer, _)), _) => *answer,
            (None, Subject::Path) => Answer::OtherPath,
            (None, _) if self.dnr() => Answer::Fail,
            (None, _) => Answer::Repeat,
        }
    }

    /// Whether a flush that ends with this error may have lost data of the cache: the medium or the controller failed while it
    /// carried out the command. Other errors say that the command was not carried out.
    #[must_use]
    pub const fn may_lose_cache(self) -> bool {
        let is_unknown = self.listed_subject().is_none() && !matches!(self.subject(), Subject::Path);
        let is_refused = self.is(Self::SANITIZE_IN_PROGRESS) || self.is(Self::NAMESPACE_WRITE_PROTECTED);
        (matches!(self.subject(), Subject::Medium) && !is_refused) || self.is(Self::INTERNAL_ERROR) || is_unknown
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fmt::Write;
    use std::path::Path;

    use super::*;

    /// By status code type: the heading, and the section and figures of the base specification.
    const TYPES: [(&str, &str, &str); 4] = [
        ("Generic", "4.2.3.1", "figure 102"),
        ("Command specific", "4.2.3.2", "figures 103 to 105"),
        ("Media and data integrity", "4.2.3.3", "figure 106"),
        ("Path related", "4.2.3.4", "figure 107"),
    ];

    /// The sections that the table names, and their titles.
    const SECTIONS: [(&str, &str); 61] = [
        ("3.4.2", "Fused Operations"),
        ("3.5.3", "Controller Ready Modes During Initialization"),
        ("3.9", "Keep Alive"),
        ("4.3.1", "Physical Region Page Entry and List"),
        ("4.3.2", "Scatter Gather List"),
        ("5.1.1", "Abort command"),
        ("5.1.2", "Asynchronous Event Request command"),
        ("5.1.3", "Capacity Management command"),
        ("5.1.4", "Controller Data Queue command"),
        ("5.1.5", "Device Self-test command"),
        ("5.1.8", "Firmware Commit command"),
        ("5.1.9", "Firmware Image Download command"),
        ("5.1.10", "Format NVM command"),
        ("5.1.11", "Get Features command"),
        ("5.1.12", "Get Log Page command"),
        ("5.1.13", "Identify command"),
        ("5.1.15", "Lockdown command"),
        ("5.1.16", "Migration Receive command"),
        ("5.1.17", "Migration Send command"),
        ("5.1.20", "Namespace Attachment command"),
        ("5.1.21", "Namespace Management command"),
        ("5.1.22", "Sanitize command"),
        ("5.1.25", "Set Features command"),
        ("5.1.25.1.14", "Host Behavior Support"),
        ("5.1.25.1.28", "Host Identifier"),
        ("5.1.26", "Track Receive command"),
        ("5.1.27", "Track Send command"),
        ("5.2.1", "Create I/O Completion Queue command"),
        ("5.2.2", "Create I/O Submission Queue command"),
        ("5.2.3", "Delete I/O Completion Queue command"),
        ("5.2.4", "Delete I/O Submission Queue command"),
        ("5.2.6", "Virtualization Management command"),
        ("5.3.3", "Discovery Information Management command"),
        ("5.3.4", "Fabric Zoning Lookup command"),
        ("5.3.5", "Fabric Zoning Receive command"),
        ("5.3.6", "Fabric Zoning Send command"),
        ("5.3.8", "Manage Exported NVM Subsystem command"),
        ("6.3", "Connect Command and Response"),
        ("6.4", "Disconnect Command and Response"),
        ("7.1", "Cancel command"),
        ("7.5", "Reservation Acquire command"),
        ("7.6", "Reservation Register command"),
        ("7.7", "Reservation Release command"),
        ("7.8", "Reservation Report command"),
        ("8.1.1.6", "ANA Inaccessible state"),
        ("8.1.1.7", "ANA Persistent Loss state"),
        ("8.1.1.8", "ANA Change state"),
        ("8.1.5", "Command and Feature Lockdown"),
        ("8.1.8", "Directives"),
        ("8.1.9", "Dispersed Namespaces"),
        ("8.1.10", "Flexible Data Placement"),
        ("8.1.13", "Key Per I/O"),
        ("8.1.16", "Namespace Write Protection"),
        ("8.1.19", "Reachability Reporting architecture"),
        ("8.1.22", "Reservations"),
        ("8.1.24", "Sanitize Operations"),
        ("8.2.1", "Controller Memory Buffer"),
        ("8.3.4", "NVMe over Fabrics Secure Channel and In-band Authentication"),
        ("NVM", "NVM Command Set Specification, NVM Command Set Specific Status Values"),
        ("ZNS", "Zoned Namespace Command Set Specification"),
        ("KV", "Key Value Command Set Specification"),
    ];

    const INTRODUCTION: &str = "\
# NVMe statuses: what follows from an error

Written by `make references` from the table by which the code decides
(`vhost-blk-mpath/crates/nvme-tcp/src/wire/status_table.rs`).

The column *clause* names the figure that lists the code, and then the [sections](#sections) of the commands and functions
that the code belongs to. The numbers are those of the NVM Express Base Specification 2.1.

Contents: [rules](#rules), [exceptions](#exceptions), [unknown codes](#unknown-codes), [generic](#generic),
[command specific](#command-specific), [media and data integrity](#media-and-data-integrity), [path related](#path-related),
[sections](#sections).

## Rules

A status speaks of one of four things:

| it speaks of | DNR clear | DNR set |
|---|---|---|
| the medium: every path gives this answer | repeated | the request fails |
| the command: every path refuses it | repeated | the request fails |
| the path: another path may carry it out | another path | another path |
| a moment of the controller: it may succeed later | repeated | the request fails |

* **Repeated**: up to five times, after the delay that the controller asks for (CRD), on another path if there is one. If a
  request was split into commands, only the failed commands are repeated.
* **Another path**: the request goes to another path, and its limits do not count this. The path rests for this disk, from 0.1
  to 10 s, until a request succeeds there. After Invalid Namespace or Format, the namespaces of the controller are read again.
  If every path answers so, the disk is `waiting`, and requests fail after `fast-io-fail-tmo` alone.
* **DNR** (Do Not Retry) says that every controller of the subsystem would fail the command (section 4.2.3, figure 100). So a
  controller's moment with DNR ends the request, as with Linux and SPDK. A status of a path with DNR does not: a controller
  cannot know what other controllers have.
* **A flush** is repeated where the status says that it was not carried out. After a status with *loss* in the column *flush*,
  the cache may have lost data although a repeated flush succeeds. So the loss is reported
  ([promise 4](failure-model.md#4-flushes)).
";

    fn subject_words(subject: Subject) -> &'static str {
        match subject {
            Subject::Medium => "medium",
            Subject::Command => "command",
            Subject::Path => "path",
            Subject::Moment => "moment",
        }
    }

    fn answer_words(answer: Answer) -> &'static str {
        match answer {
            Answer::OtherPath => "another path",
            Answer::Repeat => "repeated",
            Answer::Fail => "fails",
        }
    }

    /// The figures that list the code, and the sections about the code.
    fn clause(status: Status) -> String {
        let figures = match (status.sct(), status.sc()) {
            (0, _) => "figure 102",
            (1, ..0x80) => "figure 103",
            // Commands of fabrics and I/O commands use the same codes.
            (1, 0x80..=0x83 | 0x85) => "figures 104 and 105",
            (1, 0x84 | 0x90 | 0x91) => "figure 105",
            (1, _) => "figure 104",
            (2, _) => "figure 106",
            _ => "figure 107",
        };
        let sections = status.sections();
        if sections.is_empty() { figures.to_owned() } else { format!("{figures}; {sections}") }
    }

    fn row(code: &str, name: &str, status: Status, clause: &str) -> String {
        let flush = if status.may_lose_cache() { "loss" } else { "" };
        let answers = [status, status.with_dnr()].map(|status| answer_words(status.answer()));
        format!(
            "| {code} | {name} | {} | {} | {} | {flush} | {clause} |\n",
            subject_words(status.subject()),
            answers[0],
            answers[1]
        )
    }

    const HEAD: &str =
        "| code | status | speaks of | DNR clear | DNR set | flush | clause |\n|---|---|---|---|---|---|---|\n";

    fn page() -> String {
        let mut text = INTRODUCTION.to_owned();
        text.push_str("\n## Exceptions\n\n| status | DNR | answer | because |\n|---|---|---|---|\n");
        for (status, dnr, answer, why) in EXCEPTIONS {
            let dnr = dnr.map_or("any", |dnr| if dnr { "set" } else { "clear" });
            let (name, answer) = (status.name().unwrap(), answer_words(answer));
            let _ = writeln!(text, "| {name} | {dnr} | {answer} | {why} |");
        }
        text.push_str("\n## Unknown codes\n\nReserved codes, and those of vendors.\n\n");
        text.push_str(HEAD);
        for sct in 0..8 {
            let figures = TYPES.get(usize::from(sct)).map_or("figure 101", |kind| kind.2);
            text.push_str(&row(&format!("{sct}/any"), "unknown", Status::new(sct, 0xff), figures));
        }
        for (sct, (heading, section, figures)) in (0..).zip(TYPES) {
            let _ = write!(text, "\n## {heading}\n\nBase specification, section {section}, {figures}.\n\n{HEAD}");
            for &status in Status::ERRORS.iter().filter(|status| status.sct() == sct) {
                let (code, name) = (format!("{sct}/{:02x}h", status.sc()), status.name().unwrap());
                text.push_str(&row(&code, name, status, &clause(status)));
            }
        }
        text.push_str("\n## Sections\n\n| section | title |\n|---|---|\n");
        for (section, title) in SECTIONS {
            let _ = writeln!(text, "| {section} | {title} |");
        }
        text
    }

    #[test]
    fn the_page_of_statuses_is_checked_in() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/nvme-statuses.md");
        if std::env::var_os("WRITE_REFERENCES").is_some() {
            return std::fs::write(path, page()).unwrap();
        }
        let is_same = std::fs::read_to_string(path).is_ok_and(|written| written == page());
        assert!(is_same, "docs/nvme-statuses.md is not as the code generates it; `make references` writes it");
    }

    #[test]
    fn the_sections_of_the_table_and_their_titles_agree() {
        let sections = |status: &Status| status.sections().split(", ").filter(|section| !section.is_empty());
        let named: HashSet<&str> = Status::ERRORS.iter().flat_map(sections).collect();
        assert_eq!(named, HashSet::from(SECTIONS.map(|(section, _)| section)));
    }

    #[test]
    fn each_status_is_listed_once_in_order() {
        assert!(Status::ERRORS.is_sorted_by(|one, next| one.0 < next.0));
    }

    #[test]
    fn what_speaks_of_a_path_never_fails_a_request() {
        let all =
            (0..8).flat_map(|sct| (0..=255).map(move |sc| Status::new(sct, sc))).filter(|status| !status.is_success());
        for status in all {
            for status in [status, status.with_dnr()] {
                let is_of_path = status.subject() == Subject::Path;
                assert!(!is_of_path || status.answer() == Answer::OtherPath, "{status}");
                let is_exception = EXCEPTIONS.iter().any(|(exception, ..)| status.is(*exception));
                assert!(is_exception || is_of_path || (status.answer() == Answer::Repeat) != status.dnr(), "{status}");
            }
        }
    }
}
