//! Decides: a change is not applied because another one failed (`lacks_path`).
//!
//! The reload of the configuration file: the differences are applied to the running daemon.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mpath_api::types::{EventKind, FailedChange, Origin, Reload};
use mpath_api_server::{ControlError, RemovePathError, caller, on_behalf_of};
use mpath_config::{Change, Config, PathAddress, difference, read_file, settings_in};
use mpath_core::PathId;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::configuration::Configuration;
use crate::open_files;
use crate::service::Service;
use crate::service::disks::Disks;
use crate::subsystem::PolicySetBy;
use crate::upgrade::predecessor::Upgrader;

/// How long added paths may take to be tried before others are removed.
const TRIED_MAX: Duration = Duration::from_secs(15);

/// Who wants a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadBy {
    Client,
    Signal,
}

/// How a reload is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReloadOptions {
    /// Changes nothing.
    pub(crate) dry_run: bool,
    /// Also removes disks whose front-end is connected, and the last path of a disk.
    pub(crate) force: bool,
    pub(crate) by: ReloadBy,
}

/// Reads the file again and applies the differences. The reload completes even if this future is dropped.
pub(crate) async fn reload(
    configuration: &Arc<Configuration>,
    disks: &Arc<Disks>,
    upgrader: &Upgrader,
    options: ReloadOptions,
) -> Result<Reload, ControlError> {
    let under_way = upgrader.begin();
    let reloading = Reloading { configuration: Arc::clone(configuration), disks: Arc::clone(disks), options };
    let reloading = tokio::spawn(on_behalf_of(caller(), async move {
        let result = match under_way {
            Ok(_under_way) => reloading.run().await,
            Err(_) => Err(ControlError::ReloadUnderWay),
        };
        reloading.report(&result);
        result
    }));
    reloading.await.unwrap_or(Err(ControlError::DaemonEnding))
}

struct Reloading {
    configuration: Arc<Configuration>,
    disks: Arc<Disks>,
    options: ReloadOptions,
}

impl Reloading {
    async fn run(&self) -> Result<Reload, ControlError> {
        let file = self.configuration.file.clone().ok_or(ControlError::NoConfigFile)?;
        let name = file.display().to_string();
        let read = spawn_blocking(move || read(&file)).await.map_err(|_| ControlError::DaemonEnding)?;
        let (wanted, given) = read.map_err(ControlError::ConfigInvalid)?;
        let changes = difference(&self.configuration.in_effect(&self.disks), &wanted);
        let (live, not_live): (Vec<_>, _) = changes.into_iter().partition(Change::is_live);
        let dry_run = self.options.dry_run;
        let nothing_to_apply = live.is_empty();
        let mut reload = Reload { file: name, dry_run, applied: live, failed: Vec::new(), not_live };
        if !dry_run {
            for change in std::mem::take(&mut reload.applied) {
                let applied = match &change {
                    Change::PathRemoved { disk, .. } if lacks_path(&reload.failed, disk) => {
                        Err("a new path of the disk could not be added, so none of its paths is removed".into())
                    }
                    change => self.apply(change, &wanted).await,
                };
                match applied {
                    Ok(()) => reload.applied.push(change),
                    Err(reason) => reload.failed.push(FailedChange { change, reason }),
                }
            }
        }
        // A dry run with nothing to apply: the file was saved from what is in effect. After a failure the file says more than what is in
        // effect, and a save would remove that.
        if reload.failed.is_empty() && (!dry_run || nothing_to_apply) {
            *self.configuration.given() = given;
        }
        Ok(reload)
    }

    /// Records events and writes to the log. A client also gets the result as the answer.
    fn report(&self, result: &Result<Reload, ControlError>) {
        if self.options.dry_run {
            return;
        }
        let by = if self.options.by == ReloadBy::Signal { " by SIGHUP" } else { "" };
        let (kind, message) = match result {
            Ok(Reload { file, applied, failed, not_live, .. }) => {
                for FailedChange { change, reason } in failed {
                    tracing::warn!("not applied: {change}: {reason}");
                }
                for change in not_live {
                    tracing::warn!("not applied: {change}");
                }
                let (applied, failed, not_live) = (applied.len(), failed.len(), not_live.len());
                let counts = format!("changes applied: {applied}, failed: {failed}, not live: {not_live}");
                (EventKind::ConfigReloaded, format!("configuration reloaded from {file}{by}; {counts}"))
            }
            Err(error) => {
                (EventKind::ConfigNotReloaded, format!("configuration not reloaded{by}: {}", error.first_line()))
            }
        };
        self.disks.common.events.record_of_daemon(kind, message);
    }

    async fn apply(&self, change: &Change, wanted: &Config) -> Result<(), String> {
        if self.disks.is_ending() {
            return Err(ControlError::DaemonEnding.to_string());
        }
        match change {
            Change::Setting { disk, setting, .. } => {
                self.set(disk.as_deref().unwrap_or_default(), setting, wanted).await
            }
            Change::PathAdded { disk, path } => self.add_path(disk, path),
            Change::PathRemoved { disk, path } => self.remove_path(disk, path).await,
            Change::DiskRemoved { disk } => {
                self.disks.remove(disk, self.options.force).await.map(drop).map_err(|error| error.to_string())
            }
            Change::DiskAdded { disk } => {
                let config =
                    wanted.disks.iter().find(|config| config.name.as_str() == disk).ok_or_else(|| gone(disk))?;
                self.disks.add(config.clone()).await.map_err(|error| error.to_string())
            }
        }
    }

    /// The service of the disk that has the paths.
    fn service(&self, disk: &str) -> Result<Arc<Service>, String> {
        self.disks.services().into_iter().find(|service| service.subsystem.name() == disk).ok_or_else(|| gone(disk))
    }

    fn add_path(&self, disk: &str, address: &PathAddress) -> Result<(), String> {
        let subsystem = &self.service(disk)?.subsystem;
        if subsystem.configure_discovered(address) {
            return Ok(());
        }
        let more = open_files::of_path(self.disks.common.io_threads);
        self.disks.check_open_files(more).map_err(|error| error.to_string())?;
        subsystem.add_path(address.clone(), Origin::Configured).map(drop).map_err(|error| error.to_string())
    }

    async fn remove_path(&self, disk: &str, address: &PathAddress) -> Result<(), String> {
        let service = self.service(disk)?;
        // The paths that were added take over. If they cannot, the last path stays.
        let _ = timeout(TRIED_MAX, service.all_tried()).await;
        let subsystem = &service.subsystem;
        let path: Option<PathId> = subsystem.state().paths().find(|path| path.address == *address).map(|path| path.id);
        let Some(path) = path else { return Ok(()) };
        if subsystem.leave_to_discovery(path) {
            return Ok(());
        }
        let removed = match subsystem.remove_path(path, false, Origin::Configured).await {
            // Only the last path goes at once: writes in doubt then wait for its fence.
            Err(RemovePathError::LastPath(_)) if self.options.force => {
                subsystem.remove_path(path, true, Origin::Configured).await
            }
            removed => removed,
        };
        removed.map_err(|error| error.to_string())
    }

    /// Sets a live setting of a disk, or of a disk that shares its paths. The others keep what an operator may have set meanwhile.
    async fn set(&self, name: &str, setting: &str, wanted: &Config) -> Result<(), String> {
        let found = |(subsystem, id)| Some((subsystem, id, wanted.live_of(name)?));
        let (subsystem, disk, live) = self.disks.find(name).and_then(found).ok_or_else(|| gone(name))?;
        for wait in subsystem.change(disk, |before| before.copy(setting, &live), PolicySetBy::Reload) {
            wait.await.map_err(|_| gone(name))?;
        }
        Ok(())
    }
}

/// Whether a path of this disk could not be added.
fn lacks_path(failed: &[FailedChange], name: &str) -> bool {
    failed.iter().any(|of| matches!(&of.change, Change::PathAdded { disk, .. } if disk == name))
}

/// The disk is gone since the differences were determined.
fn gone(disk: &str) -> String {
    format!("disk `{disk}` was removed meanwhile; reload again")
}

/// The configuration in the file, and the settings that are there.
fn read(file: &Path) -> Result<(Config, Value), Vec<String>> {
    // A FIFO could be waited for without end.
    if fs::metadata(file).is_ok_and(|metadata| !metadata.is_file()) {
        let file = file.display();
        return Err(vec![format!(
            "{file}: not a regular file, and cannot be read again; start the daemon with one to reload it"
        )]);
    }
    let text = read_file(file).map_err(|error| vec![error.to_string()])?;
    let config = Config::check_file(file, &text);
    let config = config.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    Ok((config, settings_in(&text)))
}

#[cfg(test)]
mod tests {
    use mpath_config::{DiskConfig, LiveSetting, PolicyKind, SchedulerKind};

    use super::*;
    use crate::configuration::Given;
    use crate::disk::geometry;
    use crate::service::testing::service;

    /// An operator may change other settings meanwhile, and these stay.
    #[tokio::test]
    async fn each_change_of_a_setting_is_applied_and_changes_no_other() {
        let place = tempfile::tempdir().unwrap();
        let (service, disks) = service(&place.path().join("disk.sock"), None);
        disks.keep(service);
        let wanted = Config::new(vec![DiskConfig {
            policy: PolicyKind::Numa.into(),
            scheduler: SchedulerKind::Fifo.into(),
            limits: serde_json::from_str(r#"{"iops": 5}"#).unwrap(),
            weight: "7".parse().unwrap(),
            hedge: "p95".parse().unwrap(),
            hedge_budget: "1%".parse().unwrap(),
            min_paths: "2".parse().unwrap(),
            paths: Vec::new(),
            ..geometry::tests::config()
        }]);
        let given = Given { file: None, settings: Value::Null };
        let configuration = Arc::new(Configuration::new(given, &Config::new(Vec::new())));
        let options = ReloadOptions { dry_run: false, force: false, by: ReloadBy::Client };
        let reloading = Reloading { configuration, disks, options };
        let differing = || difference(&reloading.configuration.in_effect(&reloading.disks), &wanted);
        let mut left = differing();
        assert_eq!(left.len(), LiveSetting::ALL.len(), "{left:?}");
        while let Some(change) = left.pop() {
            assert!(change.is_live(), "{change}");
            reloading.apply(&change, &wanted).await.unwrap();
            assert_eq!(differing(), left, "{change}");
        }
    }
}
