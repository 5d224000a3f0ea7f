//! The key of a subsystem for this host, and its file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mpath_api::PathAddress;
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

/// The most addresses whose accepted identity is remembered. A subsystem has fewer paths at a time.
const ADDRESSES_MAX: usize = 256;

/// The key of a subsystem for this host.
#[derive(Debug, Clone)]
pub(crate) struct SubsystemKey {
    pub(super) hostnqn: Nqn,
    subnqn: Nqn,
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
    #[error("cannot read tls-key-file {file}: {source}")]
    Read { file: KeyFile, source: io::Error },
    #[error("tls-key-file {file}: not a regular file; give the path of a file with a key")]
    NotRegular { file: KeyFile },
    #[error("tls-key-file {file}: mode {mode:04o} gives other users access; run `chmod 0600 {file}`")]
    Mode { file: KeyFile, mode: u32 },
    #[error(
        "tls-key-file {file}: user {owner} owns the file; run `chown` to give the file to the daemon's user or to root"
    )]
    Owner { file: KeyFile, owner: u32 },
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
        Some(Self { hostnqn: host.hostnqn.clone(), subnqn, file, progress: Arc::default() })
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
    // Without O_NONBLOCK, opening a pipe waits for a writer.
    let flags = rustix::fs::OFlags::NONBLOCK.union(rustix::fs::OFlags::NOCTTY).bits();
    let opened = File::options().read(true).custom_flags(flags.cast_signed()).open(file.as_path()).map_err(failed)?;
    let metadata = opened.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(TlsKeyError::NotRegular { file: file.clone() });
    }
    if metadata.len() > KEY_FILE_BYTES_MAX {
        return Err(TlsKeyError::TooLarge { file: file.clone() });
    }
    if !is_credential(file.as_path()) {
        let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
        if mode & OTHERS != 0 {
            return Err(TlsKeyError::Mode { file: file.clone(), mode });
        }
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return Err(TlsKeyError::Owner { file: file.clone(), owner });
        }
    }
    // One buffer, which is not moved: no copy of the key is left in memory.
    let mut text = Zeroizing::new(String::with_capacity(KEY_FILE_BYTES_MAX as usize + 1));
    opened.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Whether systemd has put the file there for this service (`LoadCredential=`).
fn is_credential(file: &Path) -> bool {
    let directory = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    directory.is_some_and(|directory| directory.is_absolute() && file.parent() == Some(&*directory))
}
