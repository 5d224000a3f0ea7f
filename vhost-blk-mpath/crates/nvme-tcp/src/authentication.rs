//! The secrets and limits of in-band authentication (DH-HMAC-CHAP), for a host and for a target.

use std::fmt;
use std::sync::Arc;

use nvme_auth::{AuthConfig, Concatenation, DhGroup, Hash, RANDOM_BYTES, Secret, Session};

use crate::wire::Nqn;

/// A cryptographic generator: it fills the buffer. Tests may pass a generator with a seed.
pub type RandomSource = Arc<dyn Fn(&mut [u8; RANDOM_BYTES]) + Send + Sync>;

/// How queues are authenticated, on a host or on a target.
#[derive(Clone)]
pub struct Authentication {
    /// The secret that proves the host.
    pub host_secret: Secret,
    /// The secret that proves the controller. On a host, `Some` makes this proof mandatory on every queue.
    pub controller_secret: Option<Secret>,
    /// The allowed hashes, at least one. A target chooses the first that the host offers.
    pub hashes: Vec<Hash>,
    /// The allowed Diffie-Hellman groups, at least one. A target chooses the first that the host offers.
    pub groups: Vec<DhGroup>,
    /// On a host, the secure channel to ask for. On a target, the only request that is accepted.
    pub concatenation: Concatenation,
    /// The random numbers of transactions.
    pub random: RandomSource,
}

impl Authentication {
    /// An authentication that allows every hash and group, without a secure channel.
    pub fn new(host_secret: Secret, controller_secret: Option<Secret>, random: RandomSource) -> Self {
        Self {
            host_secret,
            controller_secret,
            hashes: Hash::ALL.to_vec(),
            groups: DhGroup::ALL.to_vec(),
            concatenation: Concatenation::None,
            random,
        }
    }

    /// Checks that a transaction is possible.
    ///
    /// # Errors
    /// No hash or no group is allowed that can serve.
    pub fn validate(&self) -> Result<(), nvme_auth::ConfigError> {
        self.config(&Nqn::discovery(), &Nqn::discovery()).validate()
    }

    /// The configuration of one side of one queue.
    #[must_use]
    pub fn config(&self, hostnqn: &Nqn, subnqn: &Nqn) -> AuthConfig {
        AuthConfig {
            hostnqn: hostnqn.as_str().to_owned(),
            subnqn: subnqn.as_str().to_owned(),
            host_secret: self.host_secret.clone(),
            controller_secret: self.controller_secret.clone(),
            hashes: self.hashes.clone(),
            groups: self.groups.clone(),
            concatenation: self.concatenation,
        }
    }
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authentication")
            .field("is_bidirectional", &self.controller_secret.is_some())
            .field("hashes", &self.hashes)
            .field("groups", &self.groups)
            .field("concatenation", &self.concatenation)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Authentication {
    fn eq(&self, other: &Self) -> bool {
        let Self { host_secret, controller_secret, hashes, groups, concatenation, random } = self;
        *host_secret == other.host_secret
            && *controller_secret == other.controller_secret
            && *hashes == other.hashes
            && *groups == other.groups
            && *concatenation == other.concatenation
            && Arc::ptr_eq(random, &other.random)
    }
}

impl Eq for Authentication {}

/// The outcome of a successful authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authenticated {
    /// The hash that the controller chose.
    pub hash: Hash,
    /// The Diffie-Hellman group that the controller chose.
    pub group: DhGroup,
    /// The controller proved itself too.
    pub bidirectional: bool,
}

impl From<&Session> for Authenticated {
    fn from(session: &Session) -> Self {
        Self { hash: session.hash, group: session.group, bidirectional: session.bidirectional }
    }
}
