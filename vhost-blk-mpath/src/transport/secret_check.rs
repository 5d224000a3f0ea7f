//! Checks the files with keys and secrets of a disk, without a connection.

use mpath_api::config::DiskConfig;
use nvme_tcp::host::HostIdentity;

use super::host_secrets::{HostSecretError, HostSecrets};
use super::subsystem_key::{SubsystemKey, TlsKeyError};

/// Why the file of a setting is wrong, or cannot be checked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    #[error(transparent)]
    Key(#[from] TlsKeyError),
    #[error(transparent)]
    Secret(#[from] HostSecretError),
}

impl SecretError {
    /// Whether the daemon may read the file although this process may not.
    pub(crate) fn is_of_this_process(&self) -> bool {
        match self {
            Self::Key(TlsKeyError::File(error)) | Self::Secret(HostSecretError::File(error)) => {
                error.is_of_this_process()
            }
            Self::Key(_) | Self::Secret(_) => false,
        }
    }
}

/// Reads the files as a connection does. Returns what is wrong.
pub(crate) fn secret_errors(config: &DiskConfig, host: &HostIdentity) -> Vec<SecretError> {
    let keys = [SubsystemKey::of(config, host), SubsystemKey::of_discovery(config, host)];
    let keys = keys.into_iter().flatten().filter_map(|key| key.candidates().err().map(SecretError::from));
    let secrets = HostSecrets::of(config).and_then(|secrets| secrets.read_now().err().map(SecretError::from));
    keys.chain(secrets).collect()
}
