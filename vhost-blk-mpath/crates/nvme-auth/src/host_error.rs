//! Why the authentication of a host failed, as the host knows it.

use crate::exchange::ExchangeError;
use crate::names;
use crate::{Concatenation, CryptoError, DhGroup, Explanation, Hash, Refusal, Violation};

/// Why an authentication failed, on the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// `AUTH_Failure1`: the controller did not accept the response of this host.
    #[error(
        "the controller refused the proof of this host: the host secret is not the one that the target has for this host NQN{}; \
         set the same secret on both sides",
        if *.bidirectional { ", or the target has no controller secret" } else { "" }
    )]
    HostSecretRefused {
        /// This host asked for a proof of the controller, which the target may be unable to give.
        bidirectional: bool,
    },
    /// `AUTH_Failure1`: the controller allows none of this host's hashes.
    #[error("the controller allows none of the hashes {}; allow a hash of the target on this host", names::list(.allowed))]
    NoCommonHash {
        /// The hashes that this host allows.
        allowed: Vec<Hash>,
    },
    /// `AUTH_Failure1`: the controller allows none of this host's groups.
    #[error(
        "the controller allows none of the Diffie-Hellman groups {}; allow a group of the target on this host",
        names::list(.allowed)
    )]
    NoCommonGroup {
        /// The groups that this host offered.
        allowed: Vec<DhGroup>,
    },
    /// `AUTH_Failure1`: the controller does not agree to the secure channel, or to its absence.
    #[error(
        "the controller refused the secure channel request \"{requested}\"; configure secure channel concatenation alike on host and \
         target, and check that the target has the secret of this host NQN and allows more than the group null"
    )]
    ConcatenationRefused {
        /// The request of this host.
        requested: Concatenation,
    },
    /// `AUTH_Failure1` for another reason.
    #[error(
        "the controller ended the authentication: {}, {}; see the log of the target",
        .0.reason, .0.explanation
    )]
    Refused(Refusal),
    /// The controller chose a hash that this host does not allow.
    #[error(
        "the controller chose hash {}, which this host does not allow; allow the hash, or select another on the target",
        names::hash(*.id)
    )]
    HashNotAllowed {
        /// `HashID`.
        id: u8,
    },
    /// The controller chose a group that this host does not allow.
    #[error(
        "the controller chose Diffie-Hellman group {}, which this host does not allow; \
         allow the group, or select another on the target",
        names::group(*.id)
    )]
    GroupNotAllowed {
        /// `DHgID`.
        id: u8,
    },
    /// The controller did not prove itself, although this host asked for it.
    #[error(
        "the controller did not prove itself; set its secret on the target, or remove the controller secret from this host"
    )]
    NoControllerProof,
    /// The proof of the controller is wrong.
    #[error(
        "the controller could not prove itself: its secret is not the one that this host has for it, or another machine answers; \
         set the same controller secret on both sides"
    )]
    WrongControllerProof,
    /// The controller violates the protocol.
    #[error("the controller violates the authentication protocol: {0}; report this to the vendor of the target")]
    Violation(#[from] Violation),
    /// A message came before [`HostAuthentication::start`](crate::HostAuthentication::start), or after the end.
    #[error("an authentication message came while no transaction runs; start a transaction first")]
    NotStarted,
    /// OpenSSL failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

impl HostError {
    /// The error of an `AUTH_Failure1`.
    pub(crate) fn refused(config: &crate::AuthConfig, refusal: Refusal) -> Self {
        let requested = config.concatenation;
        match refusal.explanation {
            Explanation::AuthenticationFailed => {
                Self::HostSecretRefused { bidirectional: config.controller_secret.is_some() }
            }
            Explanation::HashUnusable => Self::NoCommonHash { allowed: config.usable_hashes().collect() },
            Explanation::GroupUnusable => Self::NoCommonGroup { allowed: config.usable_groups().collect() },
            Explanation::ConcatenationMismatch => Self::ConcatenationRefused { requested },
            _ => Self::Refused(refusal),
        }
    }

    /// The explanation of `AUTH_Failure2`. `None` if the controller ended the transaction.
    pub(crate) const fn explanation(&self) -> Option<Explanation> {
        match self {
            Self::HostSecretRefused { .. }
            | Self::NoCommonHash { .. }
            | Self::NoCommonGroup { .. }
            | Self::ConcatenationRefused { .. }
            | Self::Refused(_)
            | Self::NotStarted => None,
            Self::HashNotAllowed { .. } => Some(Explanation::HashUnusable),
            Self::GroupNotAllowed { .. } => Some(Explanation::GroupUnusable),
            Self::NoControllerProof | Self::WrongControllerProof | Self::Crypto(_) => {
                Some(Explanation::AuthenticationFailed)
            }
            Self::Violation(violation) => Some(violation.explanation()),
        }
    }
}

impl From<ExchangeError> for HostError {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Value(error) => Self::Violation(error.into()),
            ExchangeError::Crypto(error) => Self::Crypto(error),
        }
    }
}
