//! Checks the files with keys and secrets of a disk, without a connection.

use std::io;

use mpath_config::{DiskConfig, KeyFile};
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

/// The result of the check of a disk's files.
#[derive(Debug, Default)]
pub(crate) struct SecretCheck {
    /// Each with its setting.
    pub(crate) errors: Vec<(&'static str, SecretError)>,
    pub(crate) unchecked: Vec<UncheckedSecret>,
}

impl SecretCheck {
    /// Checks all files of a disk.
    pub(crate) fn of(config: &DiskConfig) -> Self {
        let mut check = Self::default();
        let key = |setting, file: &_, text: &_| Ok(parse_key(setting, file, text).map(drop)?);
        check.file("tls-key-file", config.tls_key_file.as_ref(), key);
        check.file("discovery-tls-key-file", config.discovery_tls_key_file.as_ref(), key);
        let secret = |setting, file: &_, text: &_| Ok(parse_secret(setting, file, text).map(drop)?);
        check.file("dhchap-secret-file", config.dhchap_secret_file.as_ref(), secret);
        check.file("dhchap-ctrl-secret-file", config.dhchap_ctrl_secret_file.as_ref(), secret);
        check
    }

    fn file(
        &mut self,
        setting: &'static str,
        file: Option<&KeyFile>,
        parse: impl Fn(&'static str, &KeyFile, &str) -> Result<(), SecretError>,
    ) {
        let Some(file) = file else { return };
        let (user, is_credential) = (geteuid(), is_credential(file.as_path()));
        let SecretFile { text, owner } = match read_of_any_owner(setting, file) {
            Ok(read) => read,
            Err(SecretFileError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound && is_credential => {
                return self.unchecked.push(UncheckedSecret::Credential { setting, file: file.clone() });
            }
            Err(error) => return self.errors.push((setting, error.into())),
        };
        self.errors.extend(parse(setting, file, &text).err().map(|error| (setting, error)));
        if user.is_root() && !is_credential {
            self.unchecked.push(UncheckedSecret::Owner { setting, file: file.clone(), owner });
        } else if owner != 0 && owner != user.as_raw() && !is_credential {
            self.errors.push((setting, SecretFileError::Owner { setting, file: file.clone(), owner }.into()));
        }
    }
}
