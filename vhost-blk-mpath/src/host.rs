//! Who this host is to NVMe: nvme-cli's files where they exist, so that targets see one host whichever tool connects.

use std::path::{Path, PathBuf};
use std::{fs, io};

use mpath_api::Config;
use mpath_api::config::{HostId, Nqn};
use nvme_tcp::host::HostIdentity;
use uuid::Uuid;

const HOSTNQN_FILE: &str = "/etc/nvme/hostnqn";
const HOSTID_FILE: &str = "/etc/nvme/hostid";

/// Why the host has no identity.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error("{path}: {source}; mend the file or give {flag}", path = path.display())]
    Invalid { path: PathBuf, flag: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{path}: {source}; mend that or give {flag}", path = path.display())]
    Unreadable { path: PathBuf, flag: &'static str, source: io::Error },
}

/// The identity by flags or configuration, else by nvme-cli's files, else a random one for this start.
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

fn random() -> HostId {
    Uuid::new_v4().to_string().parse().expect("a random UUID is a host identifier")
}

/// The value in a file's first line, as nvme-cli takes it, or `None` if there is no such file. One that is there and cannot be
/// used is an error: to targets the host would be another one than it is to nvme-cli.
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
    fn files_of_nvme_cli() {
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
            assert!(error.ends_with("; mend the file or give hostnqn") && !error.contains('\n'), "{error}");
        }
        fs::write(&file, [0xff]).expect("written");
        let error = read_it().expect_err("no text").to_string();
        assert_eq!(error, format!("{name}: stream did not contain valid UTF-8; mend that or give hostnqn"));
        let error = read::<HostId>(directory.path(), "hostid").expect_err("a directory").to_string();
        assert!(error.contains("Is a directory") && error.ends_with("; mend that or give hostid"), "{error}");
    }
}
