//! Settings of a listener: what it does to its hosts, changed by flags at the start and by the control API later.
//!
//! Each one is written `NAME=VALUE`, in the same way everywhere.

mod text;

use std::time::Duration;

use nvme_tcp::target::{AnswerFault, FaultyCommands};
use nvme_tcp::wire::{AnaState, Status};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Longest time that a command is delayed or held: beyond it every host has long given it up.
pub const MAX_DELAY: Duration = Duration::from_secs(600);

/// One setting and its new value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Setting {
    /// `ana=STATE`, `ana=GROUP:STATE`: how the port reaches the namespaces of all ANA groups or of one. Each namespace is
    /// a group, with its NSID as the group's id.
    Ana {
        /// The group; all of them if `None`.
        group: Option<u32>,
        /// Its new state.
        state: AnaState,
    },
    /// `delay=TIME`: every I/O command takes at least so long, up to [`MAX_DELAY`].
    Delay(Duration),
    /// `rate=SIZE|off`: I/O data that the port carries per second, in bytes and in the order of their arrival. Before the delay.
    Rate(Option<u64>),
    /// `hold=on|off|TIME`: what happens to commands that change data.
    Hold(Hold),
    /// `black-hole=stall|mute|off`: the port keeps its connections and says nothing.
    BlackHole(Option<BlackHole>),
    /// `cross-reset=on|fail|mute`: what the port makes of a Cross-Controller Reset that it is asked for.
    CrossReset(CrossReset),
    /// `listen=on|off`: whether the port takes new connections; those it has stay.
    Listen(bool),
    /// `reset=all|admin|io`: connections are closed with RST, at once.
    Reset(Queues),
    /// `header-digests=COUNT`: so many of the next header digests sent are wrong, where they are in use.
    HeaderDigests(u32),
    /// `data-digests=COUNT`: so many of the next data digests sent are wrong, where they are in use.
    DataDigests(u32),
    /// `fail=COUNT:SCT/SC[/crdN][/dnr]`: so many of the next I/O commands are answered with this status and not executed.
    Fail {
        /// How many.
        count: u32,
        /// What they are answered with, never success.
        status: Status,
    },
    /// `swallow=`, `lose-answer=`, `answer-early=`, `answer-twice=` or `short-read=COUNT[:OPERATION[:NSID]]`, or
    /// `answer-late=COUNT:TIME[:OPERATION[:NSID]]`: so many of the next I/O commands meet this fault. OPERATION is read, write, write-zeroes,
    /// dsm or flush; without it, or without NSID, any will do. TIME is up to [`MAX_DELAY`].
    Answer {
        /// What becomes of them.
        fault: AnswerFault,
        /// Which, and how many; with none, the fault ends.
        commands: FaultyCommands,
    },
    /// `uuid=NSID:UUID|own`: the namespace shows this UUID.
    Uuid {
        /// The namespace.
        nsid: u32,
        /// What it shows; its own if `None`.
        uuid: Option<Uuid>,
    },
    /// `nguid=NSID:UUID|own`: the namespace shows this NGUID.
    Nguid {
        /// The namespace.
        nsid: u32,
        /// What it shows; its own if `None`.
        nguid: Option<Uuid>,
    },
    /// `size=NSID:SIZE|own`: the namespace shows this size. I/O within its own size works as ever.
    Size {
        /// The namespace.
        nsid: u32,
        /// What it shows, in bytes; its own if `None`.
        bytes: Option<u64>,
    },
}

/// What happens to commands that change data (Write, Write Zeroes, Dataset Management) once they have arrived.
///
/// A held command was accepted: its ANA state and range are checked, and nothing but a Cross-Controller Reset of its
/// controller ends it. It is executed when it is released, also after its connection or its controller is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// They are executed at once, those that were held too.
    Off,
    /// They are held until [`Hold::Off`].
    On,
    /// Each is held for so long from its arrival, up to [`MAX_DELAY`], or until [`Hold::Off`].
    For(Duration),
}

/// How a port is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlackHole {
    /// Nothing is read, executed or sent: like a target that was stopped while its kernel goes on.
    Stall,
    /// Commands are read and executed, but nothing is sent.
    Mute,
}

/// What a port makes of Cross-Controller Resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossReset {
    /// They are carried out.
    On,
    /// They are answered with Internal Error, and nothing is reset.
    Fail,
    /// They are not answered, and nothing is reset.
    Mute,
}

/// Some connections of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queues {
    /// All of them.
    All,
    /// Admin queues; their controllers end with them.
    Admin,
    /// I/O queues.
    Io,
}

/// Why a setting does not fit a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is no such ANA group.
    #[error("ana group {group}: this target has groups 1 to {groups}, one for each namespace")]
    Group {
        /// The group.
        group: u32,
        /// How many there are.
        groups: usize,
    },
    /// There is no such namespace.
    #[error("nsid {nsid}: this target has namespaces 1 to {namespaces}")]
    Nsid {
        /// The namespace.
        nsid: u32,
        /// How many there are.
        namespaces: usize,
    },
    /// A namespace is whole blocks, at least one.
    #[error("size {bytes} of namespace {nsid}: give a multiple of the block size {block_size}, not zero")]
    Size {
        /// The namespace.
        nsid: u32,
        /// The size.
        bytes: u64,
        /// The block size it must be a multiple of.
        block_size: u32,
    },
    /// The discovery service has no namespaces.
    #[error("{0}: the discovery service takes listen, reset, black-hole and the digests only")]
    Discovery(String),
}

/// Whether a setting fits a target with these sizes.
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
        Setting::Size { nsid, bytes: Some(bytes) } if bytes == 0 || !bytes.is_multiple_of(u64::from(block_size)) => {
            Err(SettingError::Size { nsid, bytes, block_size })
        }
        _ => Ok(()),
    }
}

/// Whether a setting fits the discovery service.
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
