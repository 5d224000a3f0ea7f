//! The configuration: as it was given, and as it is in effect.

pub(crate) mod reload;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpath_api::types::{self, Origin};
use mpath_config::{Config, DiskConfig};
use serde_json::Value;

use crate::service::disks::Disks;
use crate::subsystem::Subsystem;

/// The configuration as it was given.
pub(crate) struct Given {
    /// The file, an absolute path. `None` if the daemon was started with flags.
    pub(crate) file: Option<PathBuf>,
    /// The settings in the file or in the flags, at the start or at the last reload.
    pub(crate) settings: Value,
}

/// The configuration of the running daemon.
pub(crate) struct Configuration {
    file: Option<PathBuf>,
    given: Mutex<Value>,
    /// The settings of the daemon, without disks, because these come and go.
    daemon: Config,
}

impl Configuration {
    pub(crate) fn new(given: Given, config: &Config) -> Self {
        let daemon = Config { disks: Vec::new(), ..config.clone() };
        Self { file: given.file, given: Mutex::new(given.settings), daemon }
    }

    fn given(&self) -> MutexGuard<'_, Value> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration as the API shows it.
    pub(crate) fn for_api(&self, disks: &Disks) -> types::Configuration {
        types::Configuration {
            file: self.file.as_ref().map(|file| file.display().to_string()),
            given: self.given().clone(),
            effective: serde_json::to_value(self.in_effect(disks)).expect("a configuration is JSON"),
        }
    }

    /// The configuration in effect. Disks that are being added or removed are not there.
    fn in_effect(&self, disks: &Disks) -> Config {
        let subsystems = disks.subsystems();
        let there = subsystems.iter().filter(|subsystem| !disks.is_leaving(subsystem));
        Config { disks: there.map(|subsystem| disk_in_effect(subsystem)).collect(), ..self.daemon.clone() }
    }
}

/// The configuration of a disk, with what was changed since it was added. Discovered paths are not configuration.
fn disk_in_effect(subsystem: &Subsystem) -> DiskConfig {
    let mut config = subsystem.config.clone();
    let state = subsystem.state();
    config.set_live(subsystem.disks.iter().map(|disk| *state.live(disk.id)));
    let paths = state.paths().filter(|path| path.origin != Origin::Discovery && !path.is_removing());
    config.paths = paths.map(|path| path.address.clone()).collect();
    config
}
