//! Test helpers: many disks on one target. Disk 0 is its namespace 1, disk 1 its namespace 2, and so on.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use mpath_config::{Config, DiskConfig, SharerConfig, SocketPath};
use mpath_target::NamespaceConfig;

use super::{DaemonDirectory, LASTING, NQN, Target, program};

/// A target with this many namespaces and listeners.
pub(crate) fn target_of(disks: usize, listeners: usize, bytes: u64) -> Target {
    Target::with(listeners, |config| config.namespaces = vec![NamespaceConfig::memory(bytes); disks])
}

/// The vhost-user socket of a disk.
pub(crate) fn socket_of(place: &DaemonDirectory, disk: usize) -> PathBuf {
    place.file(&format!("disk-{disk}"))
}

fn socket_path(place: &DaemonDirectory, disk: usize) -> SocketPath {
    socket_of(place, disk).to_str().unwrap().parse().unwrap()
}

/// A disk with its own paths and I/O threads.
pub(crate) fn disk(place: &DaemonDirectory, target: &Target, disk: usize) -> DiskConfig {
    let paths = target.addrs().iter().map(|path| format!("tcp://{path}").parse().unwrap()).collect();
    let config = DiskConfig::new(socket_path(place, disk), NQN.parse().unwrap(), paths);
    let (name, namespace) = (format!("disk-{disk}").parse().unwrap(), (disk + 1).to_string().parse().ok());
    DiskConfig { name, namespace, keep_alive_tmo: LASTING.parse().unwrap(), ..config }
}

/// A disk that shares the paths of another.
pub(crate) fn sharer(place: &DaemonDirectory, disk: usize) -> SharerConfig {
    let (name, namespace) = (format!("disk-{disk}").parse().unwrap(), (disk + 1).to_string().parse().unwrap());
    SharerConfig::new(name, socket_path(place, disk), namespace)
}

impl DaemonDirectory {
    /// The daemon with these disks, configured by a file.
    pub(crate) fn configured(&self, disks: Vec<DiskConfig>) -> Command {
        let config = Config { api: self.api().to_str().unwrap().parse().unwrap(), ..Config::new(disks) };
        // JSON is YAML.
        fs::write(self.file("config.yaml"), serde_json::to_string(&config).unwrap()).unwrap();
        let mut command = program();
        command.arg("--config").arg(self.file("config.yaml"));
        command
    }
}
