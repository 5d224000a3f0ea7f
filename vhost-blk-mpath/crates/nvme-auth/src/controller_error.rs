//! Why the authentication of a host failed, as the controller knows it.

use crate::exchange::ExchangeError;
use crate::names;
use crate::{Concatenation, CryptoError, DhGroup, Explanation, Hash, Refusal, Violation};

/// Why an authentication failed, on the controller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControllerError {
    /// The response of the host is wrong.
    #[error(
        "the host could not prove itself: its secret is not the one that this target has for its NQN; \
         set the same host secret on both sides"
    )]
    WrongHostProof,
    /// The host offers no hash that this controller allows.
    #[error(
        "the host offers the hashes {} and this target allows {}; allow a common hash on both sides",
        names::list(.offered.iter().map(|&id| names::hash(id))), names::list(.allowed)
    )]
    NoCommonHash {
        /// Identifiers of the hashes that the host offers.
        offered: Vec<u8>,
        /// The hashes that this controller allows.
        allowed: Vec<Hash>,
    },
    /// The host offers no group that this controller allows.
    #[error(
        "the host offers the Diffie-Hellman groups {} and this target allows {}; \
         allow a common group on both sides",
        names::list(.offered.iter().map(|&id| names::group(id))), names::list(.allowed)
    )]
    NoCommonGroup {
        /// Identifiers of the groups that the host offers.
        offered: Vec<u8>,
        /// The groups that this controller allows for the request.
        allowed: Vec<DhGroup>,
    },
    /// The host asks for a secure channel that this controller does not accept.
    #[error(
        "the host asks for secure channel {requested:#04x} and this target accepts only {:#04x} ({accepted}); configure secure channel \
         concatenation alike on host and target",
        .accepted.code()
    )]
    Concatenation {
        /// `SC_C` of the host.
        requested: u8,
        /// The request that this controller accepts.
        accepted: Concatenation,
    },
    /// The host asks for a proof of the controller, which has no secret.
    #[error(
        "the host asks for a proof of the controller, but this target has no controller secret; \
         set the secret on this target, or remove the controller secret from the host"
    )]
    NoControllerSecret,
    /// `AUTH_Failure2`: the host did not accept the proof of this controller.
    #[error(
        "the host refused the proof of this target: the controller secret is not the one that the host has; \
         set the same controller secret on both sides"
    )]
    ControllerSecretRefused,
    /// `AUTH_Failure2` for another reason.
    #[error("the host ended the authentication: {}, {}; see the log of the host", .0.reason, .0.explanation)]
    Refused(Refusal),
    /// The host violates the protocol.
    #[error("the host violates the authentication protocol: {0}; report this to the vendor of the host")]
    Violation(#[from] Violation),
    /// OpenSSL failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

impl ControllerError {
    /// The explanation of `AUTH_Failure1`. `None` if the host ended the transaction.
    pub(crate) const fn explanation(&self) -> Option<Explanation> {
        match self {
            Self::ControllerSecretRefused | Self::Refused(_) => None,
            Self::WrongHostProof | Self::NoControllerSecret | Self::Crypto(_) => {
                Some(Explanation::AuthenticationFailed)
            }
            Self::NoCommonHash { .. } => Some(Explanation::HashUnusable),
            Self::NoCommonGroup { .. } => Some(Explanation::GroupUnusable),
            Self::Concatenation { .. } => Some(Explanation::ConcatenationMismatch),
            Self::Violation(violation) => Some(violation.explanation()),
        }
    }
}

impl From<ExchangeError> for ControllerError {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Value(error) => Self::Violation(error.into()),
            ExchangeError::Crypto(error) => Self::Crypto(error),
        }
    }
}
