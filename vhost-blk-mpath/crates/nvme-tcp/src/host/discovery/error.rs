//! Errors of a discovery session.

use super::log::DiscoveryLogError;
use crate::host::{AdminError, ConfigError, ConnectError, QueueError, Step};
use crate::wire::{ConnectField, Status};

/// The hint for an I/O port that was given as a discovery controller.
const IO_PORT: &str = "; for an I/O port, give the discovery port (8009 as a rule), or add the address as a path";

/// The hint for a discovery controller with authentication. Secrets belong to disks.
const NO_AUTHENTICATION: &str =
    "; this host does not authenticate to discovery controllers, so allow it discovery without";

/// The hint for the errors that users can correct. A port without a discovery service rejects the discovery NQN.
fn hint(error: &AdminError) -> &'static str {
    match error {
        AdminError::Queue(QueueError::Connect(ConnectError::InvalidParameters { field: ConnectField::Subnqn })) => {
            IO_PORT
        }
        AdminError::Queue(QueueError::Connect(ConnectError::AuthenticationRequired)) => NO_AUTHENTICATION,
        _ => "",
    }
}

/// Why a discovery session cannot be established, or has ended. Each prints as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// An invalid value in the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The admin connection failed.
    #[error("{}{}", .0, hint(.0))]
    Admin(#[from] AdminError),
    /// CNTRLTYPE is another type.
    #[error("the controller is not a discovery controller (CNTRLTYPE {cntrltype}){}", IO_PORT)]
    NotDiscovery {
        /// 1 for an I/O controller, 3 for an administrative controller.
        cntrltype: u8,
    },
    /// The log is malformed, too large, or cannot be read.
    #[error(transparent)]
    Log(#[from] DiscoveryLogError),
}

impl DiscoveryError {
    /// Whether the error suggests a controller without persistent connections. Controllers from before explicit persistent
    /// connections (TP 8002) reject a Connect whose KATO is not zero, or the first Keep Alive command.
    #[must_use]
    pub fn rejects_keep_alive(&self) -> bool {
        if matches!(self, Self::Admin(AdminError::Command { step: Step::KeepAlive, .. })) {
            return true;
        }
        let Self::Admin(AdminError::Queue(QueueError::Connect(error))) = self else { return false };
        match error {
            // Some controllers name no field.
            ConnectError::InvalidParameters { field } => {
                matches!(field, ConnectField::Kato | ConnectField::Other { .. })
            }
            ConnectError::Rejected { status } => {
                status.is(Status::INVALID_FIELD) || status.is(Status::KEEP_ALIVE_INVALID)
            }
            _ => false,
        }
    }
}
