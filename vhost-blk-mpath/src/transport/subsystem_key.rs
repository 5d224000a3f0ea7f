//! The key of a subsystem for this host, and its file.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use mpath_api::config::{DiskConfig, KeyFile};
use nvme_tcp::host::HostIdentity;
use nvme_tcp::wire::Nqn;
use nvme_tls::SetupError;
use nvme_tls::psk::{Candidate, ConfiguredPsk, DeriveError, InterchangeError, candidates};
use zeroize::Zeroizing;

/// The most bytes of a key file. A key in the interchange format has at most 84.
const KEY_FILE_BYTES_MAX: u64 = 4096;
/// Permissions that only the owner of a key file may have.
const OTHERS: u32 = 0o077;

/// [`SubsystemKey::accepted`] before a controller has accepted an identity.
pub(super) const NONE_ACCEPTED: usize = usize::MAX;

/// The key of a subsystem for this host.
#[derive(Debug, Clone)]
pub(crate) struct SubsystemKey {
    pub(super) hostnqn: Nqn,
    subnqn: Nqn,
    pub(super) file: KeyFile,
    /// The position of the identity that a controller has accepted last.
    pub(super) accepted: Arc<AtomicUsize>,
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsKeyError {
    #[error("cannot read tls-key-file {file}: {source}")]
    Read { file: KeyFile, source: io::Error },
    #[error("tls-key-file {file}: not a regular file; give the path of a file with a key")]
    NotRegular { file: KeyFile },
    #[error("tls-key-file {file}: mode {mode:04o} gives other users access; run `chmod 0600 {file}`")]
    Mode { file: KeyFile, mode: u32 },
    #[error("tls-key-file {file}: more than {KEY_FILE_BYTES_MAX} bytes; give the path of a file with a key")]
    TooLarge { file: KeyFile },
    #[error("tls-key-file {file}: {source}")]
    Invalid { file: KeyFile, source: InterchangeError },
    #[error("tls-key-file {file}: {source}")]
    Derive { file: KeyFile, source: DeriveError },
    #[error("cannot set up TLS: {0}")]
    OpenSsl(#[from] SetupError),
}

impl SubsystemKey {
    /// The key of the disk's subsystem. `None` if its connections do not use TLS.
    pub(crate) fn of(config: &DiskConfig, host: &HostIdentity) -> Option<Self> {
        let file = config.tls_key_file.clone()?;
        let subnqn = config.subsystem.as_str().parse().expect("a configured NQN is one");
        Some(Self { hostnqn: host.hostnqn.clone(), subnqn, file, accepted: Arc::new(NONE_ACCEPTED.into()) })
    }

    /// Reads the file, and derives what a controller may know the key by.
    pub(crate) fn candidates(&self) -> Result<Vec<Candidate>, TlsKeyError> {
        let file = || self.file.clone();
        let text = read_secret(&self.file)?;
        let key = ConfiguredPsk::parse(text.trim_ascii_end());
        let key = key.map_err(|source| TlsKeyError::Invalid { file: file(), source })?;
        let (hostnqn, subnqn) = (&self.hostnqn, &self.subnqn);
        candidates(&key, hostnqn, subnqn).map_err(|source| TlsKeyError::Derive { file: file(), source })
    }
}

/// Reads a file that only its owner may read. Files of systemd's credentials are safe, whatever their mode.
fn read_secret(file: &KeyFile) -> Result<Zeroizing<String>, TlsKeyError> {
    let failed = |source| TlsKeyError::Read { file: file.clone(), source };
    let opened = std::fs::File::open(file.as_path()).map_err(failed)?;
    let metadata = opened.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(TlsKeyError::NotRegular { file: file.clone() });
    }
    if metadata.len() > KEY_FILE_BYTES_MAX {
        return Err(TlsKeyError::TooLarge { file: file.clone() });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & OTHERS != 0 && !is_credential(file.as_path()) {
        return Err(TlsKeyError::Mode { file: file.clone(), mode });
    }
    // One buffer, which is not moved: no copy of the key is left in memory.
    let mut text = Zeroizing::new(String::with_capacity(KEY_FILE_BYTES_MAX as usize + 1));
    opened.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Whether systemd has put the file there for this service (`LoadCredential=`).
fn is_credential(file: &Path) -> bool {
    std::env::var_os("CREDENTIALS_DIRECTORY").is_some_and(|directory| file.starts_with(directory))
}
