//! The keys of TLS: that of the subsystem, and those that authentications generate.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvme_tcp::wire::Nqn;
use nvme_tls::KeyLookup;
use nvme_tls::psk::{Candidate, ConfiguredPsk, InterchangeError, candidates};

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("cannot read the TLS key file {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("TLS key file {}: {source}", path.display())]
    Invalid { path: PathBuf, source: InterchangeError },
}

/// Reads a key in the interchange format.
pub fn read_key(path: &Path) -> Result<ConfiguredPsk, KeyFileError> {
    let text = std::fs::read_to_string(path).map_err(|source| KeyFileError::Read { path: path.into(), source })?;
    ConfiguredPsk::parse(text.trim_ascii_end()).map_err(|source| KeyFileError::Invalid { path: path.into(), source })
}

/// The key of the subsystem, the same for every host. So TLS does not tell hosts apart, and Connect may name another host.
pub(crate) struct SubsystemKey {
    pub(crate) psk: ConfiguredPsk,
    pub(crate) nqn: Nqn,
}

impl KeyLookup for SubsystemKey {
    fn find(&self, identity: &str) -> Option<Candidate> {
        // Version, host and subsystem, and with version 1 a digest.
        let hostnqn = Nqn::new(identity.split(' ').nth(1)?).ok()?;
        let known = candidates(&self.psk, &hostnqn, &self.nqn).ok()?;
        known.into_iter().find(|candidate| candidate.identity() == identity)
    }
}

/// The most generated keys. Hosts use a key only while they connect their queues.
const GENERATED_KEYS_MAX: usize = 1024;

/// The keys that authentications have generated, the latest last. All hosts have one secret, so Connect may name another host than
/// that of the key.
#[derive(Default)]
pub(crate) struct GeneratedKeys(Mutex<VecDeque<Candidate>>);

impl GeneratedKeys {
    /// Keeps a key. The oldest is forgotten if there are too many.
    pub(crate) fn insert(&self, key: Candidate) {
        let mut keys = self.keys();
        if keys.len() == GENERATED_KEYS_MAX {
            keys.pop_front();
        }
        keys.push_back(key);
    }

    fn keys(&self) -> MutexGuard<'_, VecDeque<Candidate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyLookup for GeneratedKeys {
    fn find(&self, identity: &str) -> Option<Candidate> {
        self.keys().iter().find(|key| key.identity() == identity).cloned()
    }
}

#[cfg(test)]
mod tests {
    use nvme_tls::psk::{RetainedHash, generated_candidate};

    use super::*;

    #[test]
    fn the_oldest_generated_key_is_forgotten() {
        let nqn = Nqn::new("nqn.a").unwrap();
        let key = |number: usize| {
            let mut psk = [0; 32];
            psk[..8].copy_from_slice(&number.to_le_bytes());
            generated_candidate(&psk, &nqn, &nqn).unwrap()
        };
        let keys = GeneratedKeys::default();
        (0..=GENERATED_KEYS_MAX).for_each(|number| keys.insert(key(number)));
        let found = [0, 1, GENERATED_KEYS_MAX].map(|number| keys.find(key(number).identity()).is_some());
        assert_eq!(found, [false, true, true]);
    }

    #[test]
    fn the_key_is_found_for_any_host_of_this_subsystem() {
        let psk = ConfiguredPsk::new(RetainedHash::Sha256, &[7; 32]).unwrap();
        let nqn = |name: &str| Nqn::new(name).unwrap();
        let key = SubsystemKey { psk: psk.clone(), nqn: nqn("nqn.disk") };
        for host in ["nqn.a", "nqn.b"] {
            let offered = candidates(&psk, &nqn(host), &nqn("nqn.disk")).unwrap();
            assert_eq!(key.find(offered[0].identity()).as_ref(), Some(&offered[0]));
        }
        let other = candidates(&psk, &nqn("nqn.a"), &nqn("nqn.other")).unwrap();
        assert_eq!(key.find(other[0].identity()), None);
        for identity in ["", "NVMe1R01", "NVMe1R01 nqn.a nqn.disk", "\0 \0 \0"] {
            assert_eq!(key.find(identity), None, "{identity:?}");
        }
    }
}
