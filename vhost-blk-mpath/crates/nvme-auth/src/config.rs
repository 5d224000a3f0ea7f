//! The configuration of one side.

use crate::{Concatenation, DhGroup, Hash, Secret};

/// The most bytes of an NQN (Base 4.7).
const NQN_BYTES_MAX: usize = 223;

/// The names, secrets and limits of one side of an authentication. Hosts and controllers share this type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthConfig {
    /// NQN of the host: 1 to 223 bytes.
    pub hostnqn: String,
    /// NQN of the subsystem: 1 to 223 bytes.
    pub subnqn: String,
    /// The secret that proves the host.
    pub host_secret: Secret,
    /// The secret that proves the controller.
    ///
    /// On a host, `Some` makes the proof of the controller mandatory. On a controller, `None` refuses hosts that ask for it.
    pub controller_secret: Option<Secret>,
    /// The allowed hashes, at least one. On a controller, the first that the host offers is chosen.
    pub hashes: Vec<Hash>,
    /// The allowed groups, at least one. On a controller, the first that the host offers is chosen.
    pub groups: Vec<DhGroup>,
    /// On a host, the secure channel to ask for. On a controller, the only request that is accepted.
    ///
    /// A secure channel needs a group other than [`DhGroup::Null`], and a hash that TLS 1.3 supports: SHA-256 or SHA-384. Others
    /// are then neither offered nor chosen.
    pub concatenation: Concatenation,
}

/// Why a configuration cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// An NQN has a wrong length or contains a NUL.
    #[error("{field} has {bytes} bytes or contains a NUL; set an NQN of 1 to {NQN_BYTES_MAX} bytes without NUL")]
    Nqn {
        /// `hostnqn` or `subnqn`.
        field: &'static str,
        /// Bytes of the NQN.
        bytes: usize,
    },
    /// The list of hashes is empty.
    #[error("no hash is allowed for authentication; allow at least one of SHA-256, SHA-384 and SHA-512")]
    NoHash,
    /// The list of groups is empty.
    #[error(
        "no Diffie-Hellman group is allowed for authentication; allow at least one of null and ffdhe2048 to ffdhe8192"
    )]
    NoGroup,
    /// A secure channel needs a session key, but only group null is allowed.
    #[error(
        "a secure channel needs a session key, but only group null is allowed; allow a group from ffdhe2048 to ffdhe8192"
    )]
    OnlyGroupNull,
    /// A secure channel needs a hash of TLS, but only SHA-512 is allowed.
    #[error("a secure channel needs a hash of TLS 1.3, but only SHA-512 is allowed; allow SHA-256 or SHA-384")]
    OnlySha512,
}

impl AuthConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The field that is wrong, and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (field, nqn) in [("hostnqn", &self.hostnqn), ("subnqn", &self.subnqn)] {
            if !(1..=NQN_BYTES_MAX).contains(&nqn.len()) || nqn.contains('\0') {
                return Err(ConfigError::Nqn { field, bytes: nqn.len() });
            }
        }
        if self.hashes.is_empty() {
            return Err(ConfigError::NoHash);
        }
        if self.groups.is_empty() {
            return Err(ConfigError::NoGroup);
        }
        if self.usable_groups().next().is_none() {
            return Err(ConfigError::OnlyGroupNull);
        }
        if self.usable_hashes().next().is_none() {
            return Err(ConfigError::OnlySha512);
        }
        Ok(())
    }

    /// The allowed hashes that can serve the transaction.
    pub(crate) fn usable_hashes(&self) -> impl Iterator<Item = Hash> + '_ {
        self.hashes.iter().copied().filter(|&hash| hash != Hash::Sha512 || !self.concatenation.is_requested())
    }

    /// The allowed groups that can serve the transaction.
    pub(crate) fn usable_groups(&self) -> impl Iterator<Item = DhGroup> + '_ {
        self.groups.iter().copied().filter(|&group| group != DhGroup::Null || !self.concatenation.is_requested())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::config;

    #[test]
    fn every_fault_names_its_field() {
        assert_eq!(config().validate(), Ok(()));
        let long = "x".repeat(224);
        for (name, bytes) in [(String::new(), 0), (long, 224), ("a\0b".to_owned(), 3)] {
            let error = |field| Err(ConfigError::Nqn { field, bytes });
            assert_eq!(AuthConfig { hostnqn: name.clone(), ..config() }.validate(), error("hostnqn"));
            assert_eq!(AuthConfig { subnqn: name, ..config() }.validate(), error("subnqn"));
        }
        assert_eq!(AuthConfig { hashes: vec![], ..config() }.validate(), Err(ConfigError::NoHash));
        assert_eq!(AuthConfig { groups: vec![], ..config() }.validate(), Err(ConfigError::NoGroup));
        let null = AuthConfig { groups: vec![DhGroup::Null], concatenation: Concatenation::NewTlsPsk, ..config() };
        assert_eq!(null.validate(), Err(ConfigError::OnlyGroupNull));
        let sha512 = AuthConfig { hashes: vec![Hash::Sha512], concatenation: Concatenation::NewTlsPsk, ..config() };
        assert_eq!(sha512.validate(), Err(ConfigError::OnlySha512));
    }
}
