//! Decides: a queue is authenticated with these secrets.
//!
//! The secrets with which this host authenticates to the controllers of a subsystem (DH-HMAC-CHAP).

use std::sync::Arc;

use mpath_config::{DiskConfig, KeyFile};
use nvme_auth::{RANDOM_BYTES, Secret, SecretError};
use nvme_tcp::Authentication;
use tokio::task::spawn_blocking;

use super::secret_file::{SecretFileError, read_secret};

/// The files of the secrets. Each new association reads them.
#[derive(Debug, Clone)]
pub(crate) struct HostSecrets {
    host: KeyFile,
    controller: Option<KeyFile>,
}

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostSecretError {
    #[error(transparent)]
    File(#[from] SecretFileError),
    #[error("{setting} {file}: {source}")]
    Invalid { setting: &'static str, file: KeyFile, source: SecretError },
}

impl HostSecrets {
    /// The secrets of the disk's subsystem. `None` if this host does not authenticate.
    pub(crate) fn of(config: &DiskConfig) -> Option<Self> {
        let host = config.dhchap_secret_file.clone()?;
        Some(Self { host, controller: config.dhchap_ctrl_secret_file.clone() })
    }

    /// Reads the files. All hashes and groups are allowed.
    pub(crate) async fn read(&self) -> Result<Authentication, HostSecretError> {
        let files = self.clone();
        spawn_blocking(move || {
            let host = read("dhchap-secret-file", &files.host)?;
            let controller = files.controller.as_ref().map(|file| read("dhchap-ctrl-secret-file", file)).transpose()?;
            Ok(Authentication::new(host, controller, Arc::new(fill_random)))
        })
        .await
        .expect("it does not panic")
    }
}

fn read(setting: &'static str, file: &KeyFile) -> Result<Secret, HostSecretError> {
    parse_secret(setting, file, &read_secret(setting, file)?)
}

/// The secret in the text of a file.
pub(super) fn parse_secret(setting: &'static str, file: &KeyFile, text: &str) -> Result<Secret, HostSecretError> {
    Secret::parse(text.trim_ascii_end()).map_err(|source| HostSecretError::Invalid {
        setting,
        file: file.clone(),
        source,
    })
}

fn fill_random(bytes: &mut [u8; RANDOM_BYTES]) {
    openssl::rand::rand_priv_bytes(bytes).expect("OpenSSL has random numbers");
}
