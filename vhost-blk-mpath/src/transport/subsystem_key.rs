//! The key of a subsystem, or of the discovery controllers, for this host, and its file.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mpath_config::{DiskConfig, KeyFile, PathAddress};
use nvme_tcp::host::HostIdentity;
use nvme_tcp::wire::Nqn;
use nvme_tls::psk::{Candidate, ConfiguredPsk, DeriveError, InterchangeError, candidates};

use super::secret_file::{SecretFileError, read_secret};

/// The most addresses whose accepted identity is remembered. A subsystem has fewer paths at a time.
const ADDRESSES_MAX: usize = 256;

/// The key of a subsystem for this host.
#[derive(Debug, Clone)]
pub(crate) struct SubsystemKey {
    /// The setting that names the file.
    pub(super) setting: &'static str,
    pub(super) hostnqn: Nqn,
    pub(super) subnqn: Nqn,
    pub(super) file: KeyFile,
    progress: Arc<Mutex<HashMap<PathAddress, Progress>>>,
}

/// Where the search for an accepted identity is, for one address.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    /// The position of the next identity to offer.
    pub(super) next: usize,
    /// The position of the identity that the controller has accepted last.
    pub(super) accepted: Option<usize>,
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsKeyError {
    #[error(transparent)]
    File(#[from] SecretFileError),
    #[error("{setting} {file}: {source}")]
    Invalid { setting: &'static str, file: KeyFile, source: InterchangeError },
    #[error("{setting} {file}: {source}")]
    Derive { setting: &'static str, file: KeyFile, source: DeriveError },
}

impl SubsystemKey {
    /// The key of the disk's subsystem. `None` if its connections do not use TLS.
    pub(crate) fn of(config: &DiskConfig, host: &HostIdentity) -> Option<Self> {
        let file = config.tls_key_file.clone()?;
        let subnqn = config.subsystem.as_str().parse().expect("a configured NQN is one");
        Some(Self::new("tls-key-file", host, subnqn, file))
    }

    /// The key of the disk's discovery controllers. `None` if connections to them do not use TLS.
    pub(crate) fn of_discovery(config: &DiskConfig, host: &HostIdentity) -> Option<Self> {
        let file = config.discovery_tls_key_file.clone()?;
        Some(Self::new("discovery-tls-key-file", host, Nqn::discovery(), file))
    }

    fn new(setting: &'static str, host: &HostIdentity, subnqn: Nqn, file: KeyFile) -> Self {
        Self { setting, hostnqn: host.hostnqn.clone(), subnqn, file, progress: Arc::default() }
    }

    /// The same key for a discovery subsystem with a name of its own.
    pub(crate) fn with_subnqn(&self, subnqn: &Nqn) -> Self {
        Self { subnqn: subnqn.clone(), ..self.clone() }
    }

    pub(super) fn progress(&self, address: &PathAddress) -> Progress {
        let all = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(address).copied().unwrap_or_default()
    }

    pub(super) fn set_progress(&self, address: &PathAddress, progress: Progress) {
        let mut all = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= ADDRESSES_MAX && !all.contains_key(address) {
            all.clear();
        }
        all.insert(address.clone(), progress);
    }

    /// Reads the file, and derives what a controller may know the key by.
    pub(crate) fn candidates(&self) -> Result<Vec<Candidate>, TlsKeyError> {
        let Self { setting, file, hostnqn, subnqn, .. } = self;
        let key = parse_key(setting, file, &read_secret(setting, file)?)?;
        candidates(&key, hostnqn, subnqn).map_err(|source| TlsKeyError::Derive { setting, file: file.clone(), source })
    }
}

/// The key in the text of a file.
pub(super) fn parse_key(setting: &'static str, file: &KeyFile, text: &str) -> Result<ConfiguredPsk, TlsKeyError> {
    let key = ConfiguredPsk::parse(text.trim_ascii_end());
    key.map_err(|source| TlsKeyError::Invalid { setting, file: file.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discovery_subsystem_with_a_name_of_its_own_has_its_own_identities() {
        let place = tempfile::NamedTempFile::new().unwrap();
        let psk = ConfiguredPsk::new(nvme_tls::psk::RetainedHash::Sha256, &[7; 32]).unwrap();
        std::fs::write(&place, &*psk.to_interchange()).unwrap();
        let file = place.path().to_str().unwrap().parse().unwrap();
        let host = HostIdentity { hostnqn: "nqn.host".parse().unwrap(), hostid: [1; 16] };
        let key = SubsystemKey::new("discovery-tls-key-file", &host, Nqn::discovery(), file);
        for subnqn in ["nqn.2014-08.org.nvmexpress.discovery", "nqn.2014-08.org.example:discovery"] {
            let of_name = key.with_subnqn(&subnqn.parse().unwrap()).candidates().unwrap();
            let name = format!(" nqn.host {subnqn}");
            assert!(of_name.iter().all(|candidate| candidate.identity().contains(&name)));
        }
    }
}
