//! The key of the subsystem.

use std::io;
use std::path::{Path, PathBuf};

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

#[cfg(test)]
mod tests {
    use nvme_tls::psk::RetainedHash;

    use super::*;

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
