//! Decides: the next daemon finds these discovered paths.
//!
//! Discovered paths in the state file of a disk. The next daemon tries these paths at once, whether or not a discovery controller
//! answers.

use std::io;
use std::sync::Arc;

use mpath_config::{DiskConfig, PathAddress};
use mpath_lifecycle::discovery::SavedLog;
use serde::{Deserialize, Serialize};

use crate::disk_files::state_file::StateFile;

/// The section of the state file.
const SECTION: &str = "discovery";

/// The section of discovered paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedLogs {
    /// The subsystem of the paths.
    pub(super) subsystem: String,
    /// The configured discovery controllers.
    #[serde(default)]
    pub(super) controllers: Vec<PathAddress>,
    /// The last logs.
    pub(super) logs: Vec<SavedLog<PathAddress>>,
}

/// The last logs that an earlier daemon has read for this disk. None if the disk had another subsystem then. A log of a controller
/// that is not configured counts only with the same configured controllers, because one of them has referred to it.
pub(crate) fn load(config: &DiskConfig, state: &StateFile) -> SavedLogs {
    let subsystem = config.subsystem.to_string();
    let controllers: Vec<_> = config.discovery.iter().map(|address| address.address().clone()).collect();
    let found = state.get(SECTION).filter(|found: &SavedLogs| found.subsystem == subsystem);
    let mut logs = found.as_ref().map_or_else(Vec::new, |found| found.logs.clone());
    let is_unchanged = found.is_some_and(|found| found.controllers == controllers);
    logs.retain(|log| is_unchanged || controllers.contains(&log.address));
    SavedLogs { subsystem, controllers, logs }
}

impl SavedLogs {
    /// The paths, some perhaps twice.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathAddress> {
        self.logs.iter().flat_map(|log| &log.paths)
    }

    pub(super) async fn save(&self, state: &Arc<StateFile>) -> io::Result<()> {
        state.set(SECTION, self).await
    }
}
