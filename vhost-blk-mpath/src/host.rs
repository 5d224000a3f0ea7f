//! The NVMe identity of this host. nvme-cli's files provide it where they exist, so that targets see the same host
//! whichever tool connects.

use std::path::{Path, PathBuf};
use std::{fs, io};

use mpath_config::{Config, HostId, Nqn};
use nvme_tcp::host::HostIdentity;
use uuid::Uuid;

const HOSTNQN_FILE: &str = "/etc/nvme/hostnqn";
const HOSTID_FILE: &str = "/etc/nvme/hostid";

/// Why the host's identity cannot be determined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error("{path}: {source}; correct the file or set `{flag}`", path = path.display())]
    Invalid { path: PathBuf, flag: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("cannot read {path}: {source}; fix that or set `{flag}`", path = path.display())]
    Unreadable { path: PathBuf, flag: &'static str, source: io::Error },
}

/// The identity from flags or configuration, else from nvme-cli's files, else a random identity for this run.
pub(crate) fn identity(config: &Config) -> Result<HostIdentity, HostError> {
    let hostid = match config.hostid {
        Some(hostid) => hostid,
        None => read(HOSTID_FILE.as_ref(), "hostid")?.unwrap_or_else(random),
    };
    let hostnqn = match &config.hostnqn {
        Some(hostnqn) => hostnqn.to_string(),
        None => read::<Nqn>(HOSTNQN_FILE.as_ref(), "hostnqn")?
            .map_or_else(|| format!("nqn.2014-08.org.nvmexpress:uuid:{hostid}"), |hostnqn| hostnqn.to_string()),
    };
    Ok(HostIdentity { hostnqn: hostnqn.parse().expect("a checked NQN is one"), hostid: hostid.bytes() })
}

/// Whether the identity is another one at each start.
pub(crate) fn is_random(config: &Config) -> bool {
    let is_named = config.hostnqn.is_some() || config.hostid.is_some();
    !is_named && ![HOSTNQN_FILE, HOSTID_FILE].iter().any(|file| Path::new(file).exists())
}

fn random() -> HostId {
    Uuid::new_v4().to_string().parse().expect("a random UUID is a host identifier")
}

/// The value in the first line of a file, parsed as nvme-cli does; `None` if the file does not exist. A file that
/// cannot be used is an error: otherwise targets would see another host than with nvme-cli.
fn read<T>(path: &Path, flag: &'static str) -> Result<Option<T>, HostError>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(HostError::Unreadable { path: path.into(), flag, source }),
    };
    let invalid = |source: T::Err| HostError::Invalid { path: path.into(), flag, source: source.into() };
    text.lines().next().unwrap_or_default().trim().parse().map(Some).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_files_are_read_as_nvme_cli_does() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("hostnqn");
        let read_it = || read::<Nqn>(&file, "hostnqn").map(|nqn| nqn.map(|nqn| nqn.to_string()));
        assert_eq!(read_it().expect("no file is no error"), None);
        for text in ["nqn.host", "nqn.host\n", "  nqn.host \nanother\n"] {
            fs::write(&file, text).expect("written");
            assert_eq!(read_it().expect(text), Some("nqn.host".into()));
        }
        let name = file.display();
        for (text, value) in [("", "``"), ("\n", "``"), ("a b\n", "`a b`")] {
            fs::write(&file, text).expect("written");
            let error = read_it().expect_err(text).to_string();
            assert!(error.starts_with(&format!("{name}: {value} is no NVMe qualified name; ")), "{error}");
            assert!(error.ends_with("; correct the file or set `hostnqn`") && !error.contains('\n'), "{error}");
        }
        fs::write(&file, [0xff]).expect("written");
        let error = read_it().expect_err("no text").to_string();
        assert_eq!(error, format!("cannot read {name}: stream did not contain valid UTF-8; fix that or set `hostnqn`"));
        let error = read::<HostId>(directory.path(), "hostid").expect_err("a directory").to_string();
        assert!(error.contains("Is a directory") && error.ends_with("; fix that or set `hostid`"), "{error}");
    }
}
