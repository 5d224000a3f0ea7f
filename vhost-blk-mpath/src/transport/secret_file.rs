//! Decides: a key file may be read (`read_secret`).
//!
//! Files with secrets: keys of TLS, and secrets of the authentication.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use mpath_config::KeyFile;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use zeroize::Zeroizing;

/// The most bytes of a file. A TLS key has at most 84, and a secret of the authentication at most 104.
const FILE_BYTES_MAX: u64 = 4096;
/// Permissions that only the owner of a file may have.
const OTHERS: u32 = 0o077;

/// Why the file of a setting cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretFileError {
    #[error("cannot read {setting} {file}: {source}")]
    Read { setting: &'static str, file: KeyFile, source: io::Error },
    #[error("{setting} {file}: not a regular file; give the path of a file with a key or a secret")]
    NotRegular { setting: &'static str, file: KeyFile },
    #[error("{setting} {file}: mode {mode:04o} gives other users access; run `chmod 0600 {file}`")]
    Mode { setting: &'static str, file: KeyFile, mode: u32 },
    #[error(
        "{setting} {file}: user {owner} owns the file; run `chown` to give the file to the daemon's user or to root"
    )]
    Owner { setting: &'static str, file: KeyFile, owner: u32 },
    #[error("{setting} {file}: the file is empty; write the key or the secret to the file")]
    Empty { setting: &'static str, file: KeyFile },
    #[error("{setting} {file}: more than {FILE_BYTES_MAX} bytes; give the path of a file with a key or a secret")]
    TooLarge { setting: &'static str, file: KeyFile },
}

/// A file that no user but its owner may read.
pub(super) struct SecretFile {
    pub(super) text: Zeroizing<String>,
    pub(super) owner: u32,
}

/// Reads the file of a setting, which root or the user of this process must own.
pub(super) fn read_secret(setting: &'static str, file: &KeyFile) -> Result<Zeroizing<String>, SecretFileError> {
    let SecretFile { text, owner } = read_of_any_owner(setting, file)?;
    if owner != 0 && owner != rustix::process::geteuid().as_raw() && !is_credential(file.as_path()) {
        return Err(SecretFileError::Owner { setting, file: file.clone(), owner });
    }
    Ok(text)
}

/// Reads the file of a setting. Files of systemd's credentials are safe, whatever their mode.
pub(super) fn read_of_any_owner(setting: &'static str, file: &KeyFile) -> Result<SecretFile, SecretFileError> {
    let failed = |source| SecretFileError::Read { setting, file: file.clone(), source };
    // Without O_NONBLOCK, opening a pipe waits for a writer.
    let flags = rustix::fs::OFlags::NONBLOCK.union(rustix::fs::OFlags::NOCTTY).bits();
    let opened = File::options().read(true).custom_flags(flags.cast_signed()).open(file.as_path()).map_err(failed)?;
    let metadata = opened.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(SecretFileError::NotRegular { setting, file: file.clone() });
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(SecretFileError::TooLarge { setting, file: file.clone() });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & OTHERS != 0 && !is_credential(file.as_path()) {
        return Err(SecretFileError::Mode { setting, file: file.clone(), mode });
    }
    // From now on, the process has secrets. So the kernel writes no core dump of the process, and lets only root look into
    // its memory. The call cannot fail with this argument.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // One buffer, which is not moved: no copy of the secret is left in memory.
    let mut text = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX as usize + 1));
    opened.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    if text.trim_ascii().is_empty() {
        return Err(SecretFileError::Empty { setting, file: file.clone() });
    }
    Ok(SecretFile { text, owner: metadata.uid() })
}

/// Whether systemd puts the file there for a service (`LoadCredential=`). It alone creates files below `/run/credentials`.
pub(super) fn is_credential(file: &Path) -> bool {
    let directory = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let is_of_this_service =
        directory.is_some_and(|directory| directory.is_absolute() && file.parent() == Some(&*directory));
    let leaves = file.components().any(|component| component == Component::ParentDir);
    is_of_this_service || file.starts_with("/run/credentials") && !leaves
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::process::dumpable_behavior;

    use super::*;

    #[test]
    fn a_path_that_leaves_the_credentials_is_none() {
        assert!(is_credential("/run/credentials/a.service/key".as_ref()));
        for other in ["/run/credentials/../key", "/run/credentials2/key", "/etc/key", "key"] {
            assert!(!is_credential(other.as_ref()), "{other}");
        }
    }

    #[test]
    fn a_process_with_a_secret_has_no_core_dump() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        let mut written = File::options().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        let file: KeyFile = path.to_str().unwrap().parse().unwrap();
        let error = read_secret("tls-key-file", &file).unwrap_err();
        assert!(matches!(error, SecretFileError::Empty { .. }), "{error}");
        written.write_all(b"key\n").unwrap();
        assert_eq!(*read_secret("tls-key-file", &file).unwrap(), "key\n");
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
