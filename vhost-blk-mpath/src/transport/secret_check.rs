//! Checks the files with keys and secrets of a disk, without a connection.

use std::io;

use mpath_api::config::{DiskConfig, KeyFile};
use rustix::process::geteuid;

use super::host_secrets::{HostSecretError, parse_secret};
use super::secret_file::{SecretFile, SecretFileError, is_credential, read_of_any_owner};
use super::subsystem_key::{TlsKeyError, parse_key};

/// Why the file of a setting is wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    #[error(transparent)]
    File(#[from] SecretFileError),
    #[error(transparent)]
    Key(#[from] TlsKeyError),
    #[error(transparent)]
    Secret(#[from] HostSecretError),
}

/// What this process cannot know about a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UncheckedSecret {
    #[error("not checked: {setting} {file}, which systemd makes when it starts the service")]
    Credential { setting: &'static str, file: KeyFile },
    #[error(
        "not checked: whether the daemon's user may read {setting} {file}, which belongs to user {owner}; run --check as that user"
    )]
    Owner { setting: &'static str, file: KeyFile, owner: u32 },
}

/// Checks all files of a disk. Returns errors, and what only another process can check.
pub(crate) fn check_secrets(config: &DiskConfig) -> (Vec<SecretError>, Vec<UncheckedSecret>) {
    let (mut errors, mut unchecked) = (Vec::new(), Vec::new());
    for (setting, file) in config.clone().key_files_mut() {
        match read_of_any_owner(setting, file) {
            Err(SecretFileError::Read { source, .. })
                if source.kind() == io::ErrorKind::NotFound && is_credential(file.as_path()) =>
            {
                unchecked.push(UncheckedSecret::Credential { setting, file: file.clone() });
            }
            Err(error) => errors.push(error.into()),
            Ok(SecretFile { text, owner }) => {
                let parsed = if setting.starts_with("dhchap") {
                    parse_secret(setting, file, &text).map(drop).map_err(SecretError::from)
                } else {
                    parse_key(setting, file, &text).map(drop).map_err(SecretError::from)
                };
                errors.extend(parsed.err());
                let is_root = geteuid().is_root();
                if !is_root && owner != 0 && owner != geteuid().as_raw() {
                    errors.push(SecretFileError::Owner { setting, file: file.clone(), owner }.into());
                } else if is_root && !is_credential(file.as_path()) {
                    unchecked.push(UncheckedSecret::Owner { setting, file: file.clone(), owner });
                }
            }
        }
    }
    (errors, unchecked)
}
