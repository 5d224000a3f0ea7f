//! Why a discovery controller tells nothing, or nothing more.

use std::time::Duration;

use super::log::DiscoveryLogError;
use crate::host::{ConfigError, ConnectError, QueueError};
use crate::wire::{ConnectField, Status};

/// What the session is doing; timeouts and failed commands name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscoveryStep {
    /// `ICReq`, `ICResp` and Connect.
    Connect,
    /// Property Get of CAP.
    Capabilities,
    /// Property Set of CC.EN.
    Enable,
    /// Property Get of CSTS until RDY.
    Ready,
    /// Identify Controller.
    IdentifyController,
    /// Set Features, Asynchronous Event Configuration.
    AsyncEventConfiguration,
    /// Get Log Page, Discovery.
    Log,
    /// Keep Alive.
    KeepAlive,
    /// Property Set of CC.SHN.
    Shutdown,
    /// Property Get of CSTS until SHST says complete.
    ShutdownStatus,
}

impl std::fmt::Display for DiscoveryStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "Connect",
            Self::Capabilities => "reading CAP",
            Self::Enable => "setting CC.EN",
            Self::Ready => "waiting for CSTS.RDY",
            Self::IdentifyController => "Identify Controller",
            Self::AsyncEventConfiguration => "configuring asynchronous events",
            Self::Log => "reading the discovery log",
            Self::KeepAlive => "Keep Alive",
            Self::Shutdown => "setting CC.SHN",
            Self::ShutdownStatus => "waiting for CSTS.SHST",
        })
    }
}

/// Why a discovery session cannot be had, or is over. Each prints as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// A value of the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Connect refused, or the protocol broken.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// No answer in time.
    #[error("no answer within {after:?}: {step}")]
    Timeout {
        /// To what.
        step: DiscoveryStep,
        /// The time allowed.
        after: Duration,
    },
    /// A command that had to succeed did not.
    #[error("{step} failed: {status}")]
    Command {
        /// Which.
        step: DiscoveryStep,
        /// How.
        status: Status,
    },
    /// CSTS.CFS: the controller has failed.
    #[error("the controller reports fatal status (CSTS.CFS)")]
    FatalStatus,
    /// CNTRLTYPE says that it is something else.
    #[error("this is no discovery controller (CNTRLTYPE {cntrltype})")]
    NotDiscovery {
        /// 1 an I/O controller, 3 an administrative one.
        cntrltype: u8,
    },
    /// Identify Controller names another subsystem than the one of a unique name that was asked for.
    #[error("the controller belongs to subsystem {got:?}")]
    WrongSubsystem {
        /// Its SUBNQN, as text.
        got: String,
    },
    /// The log cannot be read, or is none.
    #[error(transparent)]
    Log(#[from] DiscoveryLogError),
}

impl DiscoveryError {
    /// Whether Connect was refused in the way of controllers that keep no connections: those before explicit persistent
    /// connections (TP 8002) want KATO to be zero.
    #[must_use]
    pub fn refuses_to_stay(&self) -> bool {
        match self {
            Self::Queue(QueueError::Connect(ConnectError::InvalidParameters { field })) => {
                // Some name no field.
                matches!(field, ConnectField::Kato | ConnectField::Other { .. })
            }
            Self::Queue(QueueError::Connect(ConnectError::Rejected { status })) => {
                status.is(Status::INVALID_FIELD) || status.is(Status::KEEP_ALIVE_INVALID)
            }
            _ => false,
        }
    }
}
