//! Settings of a listener: ANA states and faults. They are given at the start, and changed later by the control API.
//!
//! A setting is written `NAME=VALUE` on the command line and in the API.

mod text;

pub(crate) use text::{BLACK_HOLES, CROSS_RESETS, place, word};

use monotonic::Duration;
use nvme_tcp::wire::{AnaState, Status};
use nvme_tcp_target::{AnswerFault, FaultyCommands};
use uuid::Uuid;

/// The longest time that a command is delayed or held. Every host gives a command up sooner.
pub const MAX_DELAY: Duration = Duration::from_secs(600);

/// One setting and its new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// `ana=STATE`, `ana=GROUP:STATE`: the ANA state of all groups on the port, or of one. Each namespace has its own group, whose
    /// ID is the NSID.
    Ana {
        /// The group; `None` for all.
        group: Option<u32>,
        state: AnaState,
    },
    /// `delay=TIME`: the delay of each I/O command, at most [`MAX_DELAY`].
    Delay(Duration),
    /// `rate=SIZE|off`: the limit of I/O data of the port, in bytes per second. Data are served in order of arrival. The delay is
    /// added afterwards.
    Rate(Option<u64>),
    /// `hold=on|off|TIME`: holding of commands that change data.
    Hold(Hold),
    /// `black-hole=stall|mute|off`: the port keeps its connections and sends nothing.
    BlackHole(Option<BlackHole>),
    /// `cross-reset=on|fail|mute`: how the port answers a Cross-Controller Reset.
    CrossReset(CrossReset),
    /// `listen=on|off`: whether the port accepts new connections. Existing connections stay.
    Listen(bool),
    /// `reset=all|admin|io`: closes connections with RST, immediately.
    Reset(Queues),
    /// `header-digests=COUNT`: corrupts the next COUNT header digests that are sent.
    HeaderDigests(u32),
    /// `data-digests=COUNT`: corrupts the next COUNT data digests that are sent.
    DataDigests(u32),
    /// `fail=COUNT:SCT/SC[/crdN][/dnr]`: the next COUNT I/O commands fail with this status and are not executed.
    Fail {
        count: u32,
        /// The status, never success.
        status: Status,
    },
    /// `swallow=`, `lose-answer=`, `answer-early=`, `answer-twice=` or `short-read=COUNT[:OPERATION[:NSID]]`, or
    /// `answer-late=COUNT:TIME[:OPERATION[:NSID]]`: the next COUNT matching I/O commands get this fault. OPERATION is read, write,
    /// write-zeroes, dsm or flush. Without OPERATION or NSID, any matches. TIME is at most [`MAX_DELAY`].
    Answer {
        fault: AnswerFault,
        /// The commands. A count of zero ends the fault.
        commands: FaultyCommands,
    },
    /// `uuid=NSID:UUID|own`: the UUID that the port reports for a namespace.
    Uuid {
        nsid: u32,
        /// The reported value; `None` for its own.
        uuid: Option<Uuid>,
    },
    /// `nguid=NSID:UUID|own`: the NGUID that the port reports for a namespace.
    Nguid {
        nsid: u32,
        /// The reported value; `None` for its own.
        nguid: Option<Uuid>,
    },
    /// `size=NSID:SIZE|own`: the size that the port reports for a namespace, 0 for none. It does not affect I/O.
    Size {
        nsid: u32,
        /// The reported size in bytes; `None` for its own.
        bytes: Option<u64>,
    },
}

/// Holding of commands that change data (Write, Write Zeroes, Dataset Management).
///
/// A held command is accepted: its ANA state and range are checked. It is executed when it is released, even after its connection
/// or controller has ended. Only a Cross-Controller Reset of its controller discards it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Commands are executed immediately, including those that were held.
    Off,
    /// Commands are held until [`Hold::Off`].
    On,
    /// Each command is held for this time from its arrival, at most [`MAX_DELAY`], or until [`Hold::Off`].
    For(Duration),
}

/// How a port is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlackHole {
    /// The port reads, executes and sends nothing, like a stopped target whose kernel still runs.
    Stall,
    /// The port reads and executes commands, and sends nothing.
    Mute,
}

/// How a port answers Cross-Controller Resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossReset {
    On,
    /// Resets fail with Internal Error, and nothing is reset.
    Fail,
    /// Resets are not answered, and nothing is reset.
    Mute,
}

/// A selection of connections of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queues {
    All,
    /// Admin queues. Their controllers end with them.
    Admin,
    Io,
}

/// Why a setting is not possible with a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("ana group {group} does not exist: this target has groups 1 to {groups}, one for each namespace")]
    Group { group: u32, groups: usize },
    #[error("namespace {nsid} does not exist: this target has namespaces 1 to {namespaces}")]
    Nsid { nsid: u32, namespaces: usize },
    #[error(
        "size {bytes} of namespace {nsid}: give a multiple of the block size {block_size}, or 0 for a namespace that is gone"
    )]
    Size { nsid: u32, bytes: u64, block_size: u32 },
    #[error(
        "{0} is not possible for the discovery service: it takes only listen, reset, black-hole, header-digests and data-digests"
    )]
    Discovery(String),
}

/// Checks that a setting is possible with this number of namespaces and block size.
pub(crate) fn check_for_target(setting: &Setting, namespaces: usize, block_size: u32) -> Result<(), SettingError> {
    let exists = |id: u32| (1..=namespaces).contains(&(id as usize));
    match *setting {
        Setting::Ana { group: Some(group), .. } if !exists(group) => {
            Err(SettingError::Group { group, groups: namespaces })
        }
        Setting::Uuid { nsid, .. }
        | Setting::Nguid { nsid, .. }
        | Setting::Size { nsid, .. }
        | Setting::Answer { commands: FaultyCommands { nsid: Some(nsid), .. }, .. }
            if !exists(nsid) =>
        {
            Err(SettingError::Nsid { nsid, namespaces })
        }
        Setting::Size { nsid, bytes: Some(bytes) } if !bytes.is_multiple_of(u64::from(block_size)) => {
            Err(SettingError::Size { nsid, bytes, block_size })
        }
        _ => Ok(()),
    }
}

/// Checks that a setting is possible for the discovery service.
pub(crate) fn check_for_discovery(setting: &Setting) -> Result<(), SettingError> {
    match setting {
        Setting::Listen(_)
        | Setting::Reset(_)
        | Setting::BlackHole(_)
        | Setting::HeaderDigests(_)
        | Setting::DataDigests(_) => Ok(()),
        _ => Err(SettingError::Discovery(setting.to_string())),
    }
}
