//! The NVMe identity of this host. nvme-cli's files provide it where they exist, so that targets see the same host
//! whichever tool connects.

use std::path::{Path, PathBuf};
use std::{fs, io};

use mpath_config::{Config, HostId, Nqn};
use nvme_tcp::host::HostIdentity;
use uuid::{Builder, Uuid};

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

/// The identity from flags or configuration, else from nvme-cli's files. As with nvme-cli, a missing half follows from the other. Without
/// both, the identity is random for this run.
pub(crate) fn identity(config: &Config) -> Result<HostIdentity, HostError> {
    identity_with(config, HOSTNQN_FILE.as_ref(), HOSTID_FILE.as_ref())
}

fn identity_with(config: &Config, hostnqn_file: &Path, hostid_file: &Path) -> Result<HostIdentity, HostError> {
    let hostnqn = match &config.hostnqn {
        Some(hostnqn) => Some(hostnqn.clone()),
        None => read::<Nqn>(hostnqn_file, "hostnqn")?,
    };
    let hostid = match config.hostid {
        Some(hostid) => Some(hostid),
        None => read::<HostId>(hostid_file, "hostid")?,
    };
    let hostid = match (hostid, &hostnqn) {
        (Some(hostid), _) => hostid.bytes(),
        (None, Some(hostnqn)) => hostnqn.host_id().map_or_else(|| made_from(hostnqn), HostId::bytes),
        (None, None) => Uuid::new_v4().into_bytes(),
    };
    let hostnqn = hostnqn.map_or_else(
        || format!("nqn.2014-08.org.nvmexpress:uuid:{}", Uuid::from_bytes(hostid)),
        |hostnqn| hostnqn.to_string(),
    );
    Ok(HostIdentity { hostnqn: hostnqn.parse().expect("a checked NQN is one"), hostid })
}

/// A host identifier for a name without a UUID, the same at each start: a UUID of version 8 (RFC 9562) made from the name. nvme-cli
/// asks the firmware instead, which only root may.
fn made_from(hostnqn: &Nqn) -> [u8; 16] {
    let digest = openssl::sha::sha256(hostnqn.as_str().as_bytes());
    let (first, _) = digest.split_first_chunk::<16>().expect("a SHA-256 digest has 32 bytes");
    Builder::from_custom_bytes(*first).into_uuid().into_bytes()
}

/// Whether the identity is another one at each start.
pub(crate) fn is_random(config: &Config) -> bool {
    let is_named = config.hostnqn.is_some() || config.hostid.is_some();
    !is_named && ![HOSTNQN_FILE, HOSTID_FILE].iter().any(|file| Path::new(file).exists())
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
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
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
        for text in ["nqn.host", "\u{feff}nqn.host\r\n", "nqn.host\n", "  nqn.host \nanother\n"] {
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

    #[test]
    fn a_missing_half_of_the_identity_follows_from_the_other() {
        const ID: &str = "6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21";
        let directory = tempfile::tempdir().expect("a directory");
        let [hostnqn, hostid] = ["hostnqn", "hostid"].map(|name| directory.path().join(name));
        let config = |text: &str| Config { hostnqn: text.parse().ok(), ..Config::new(Vec::new()) };
        let of = |config: &Config| {
            let identity = identity_with(config, &hostnqn, &hostid).expect("an identity");
            (identity.hostnqn.to_string(), Uuid::from_bytes(identity.hostid).to_string())
        };
        let standard = format!("nqn.2014-08.org.nvmexpress:uuid:{ID}");
        assert_eq!(of(&config(&standard)).1, ID, "the name is in the configuration");
        assert_ne!(of(&config("")), of(&config("")), "without files, the identity is random");

        fs::write(&hostnqn, format!("{standard}\n")).expect("written");
        assert_eq!(of(&config("")), (standard.clone(), ID.into()));
        fs::write(&hostnqn, "nqn.host-a\n").expect("written");
        let (name, made) = of(&config(""));
        assert_eq!(
            (name.as_str(), made.as_str()),
            ("nqn.host-a", "aa8b04cc-ca7f-8ad3-9948-e9a84b13e188"),
            "it never changes"
        );
        assert_ne!(of(&config("nqn.host-b")).1, made, "each name has its own");

        fs::write(&hostid, ID).expect("written");
        assert_eq!(of(&config("")), ("nqn.host-a".into(), ID.into()), "the file counts");
        fs::remove_file(&hostnqn).expect("removed");
        assert_eq!(of(&config("")), (standard, ID.into()));
    }
}
