//! Who this host is to NVMe: nvme-cli's files where they exist, so that targets see one host whichever tool connects.

use std::fs;
use std::path::{Path, PathBuf};

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
}

/// The identity by flags or configuration, else by nvme-cli's files, else a random one for this start.
pub(crate) fn identity(config: &Config) -> Result<HostIdentity, HostError> {
    let hostid = match config.hostid {
        Some(hostid) => hostid,
        None => read(HOSTID_FILE, "hostid")?.unwrap_or_else(random),
    };
    let hostnqn = match &config.hostnqn {
        Some(hostnqn) => hostnqn.to_string(),
        None => read::<Nqn>(HOSTNQN_FILE, "hostnqn")?
            .map_or_else(|| format!("nqn.2014-08.org.nvmexpress:uuid:{hostid}"), |hostnqn| hostnqn.to_string()),
    };
    Ok(HostIdentity { hostnqn: hostnqn.parse().expect("a checked NQN is one"), hostid: hostid.bytes() })
}

fn random() -> HostId {
    Uuid::new_v4().to_string().parse().expect("a random UUID is a host identifier")
}

/// The one value of a file, or `None` if there is no such file.
fn read<T>(path: &str, flag: &'static str) -> Result<Option<T>, HostError>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let Ok(text) = fs::read_to_string(path) else { return Ok(None) };
    let invalid = |source: T::Err| HostError::Invalid { path: Path::new(path).into(), flag, source: source.into() };
    text.trim().parse().map(Some).map_err(invalid)
}
