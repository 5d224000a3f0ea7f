//! Decides: the first attempts bring about what `wait-for` asks for.
//!
//! The outcome of the first attempts to connect, for those who wait for it: `wait-for`, and clients that add a disk.

use mpath_api::types::{Origin, PathState};
use mpath_config::{PathAddress, WaitFor};

use crate::discovery::DiscoveryStatus;
use crate::disk::Disk;
use crate::service::Service;
use crate::service::start_error::{Reasons, StartError};
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::{PathStatus, State};

impl Service {
    /// Waits until every path was tried. The future may be dropped.
    pub(crate) async fn all_tried(&self) {
        let mut changes = self.subsystem.changes();
        loop {
            changes.borrow_and_update();
            if !self.is_untried() {
                return;
            }
            // The subsystem holds the sender.
            let _ = changes.changed().await;
        }
    }

    /// Waits until the disks are as `wait_for` says. Fails if they are not once every path was tried. The future may be
    /// dropped.
    pub(crate) async fn first_attempts(&self, wait_for: WaitFor) -> Result<(), StartError> {
        let mut changes = self.subsystem.changes();
        loop {
            changes.borrow_and_update();
            let missing = missing(&self.subsystem, self.discovery.as_deref(), wait_for);
            let Err(error) = missing else { return Ok(()) };
            if !self.is_untried() {
                return Err(error);
            }
            // The subsystem holds the sender.
            let _ = changes.changed().await;
        }
    }

    /// Whether the outcome of a first attempt is still to come.
    pub(super) fn is_untried(&self) -> bool {
        let logs_are_missing = self.discovery.as_ref().is_some_and(|discovery| !discovery.first_logs_are_done());
        logs_are_missing || self.subsystem.state().paths().any(PathStatus::is_untried)
    }
}

/// Fails unless the disks are as `wait_for` says.
fn missing(subsystem: &Subsystem, discovery: Option<&DiscoveryStatus>, wait_for: WaitFor) -> Result<(), StartError> {
    if wait_for == WaitFor::None {
        return Ok(());
    }
    let known: Vec<_> = subsystem.disks.iter().filter(|disk| subsystem.is_known(disk)).map(|disk| disk.id).collect();
    if let Some(refused) = subsystem.disks.iter().find_map(Disk::refused) {
        return Err(refused.into());
    }
    let state = subsystem.state();
    let name = |disk: &str| (disk.to_owned(), subsystem.config.subsystem.to_string());
    if let Some(discovery) = discovery.filter(|_| state.paths().next().is_none()) {
        let (disk, subsystem) = name(subsystem.name());
        let reasons = Reasons { of: "discovery controller ", reasons: discovery.reasons() };
        return Err(StartError::NoneDiscovered { disk, subsystem, reasons });
    }
    let is_live = |path: &PathStatus| path.state == PathState::Live;
    if !state.paths().any(is_live) {
        let (disk, subsystem) = name(subsystem.name());
        let host_lacks = state.paths().any(|path| path.host_lacks);
        return Err(StartError::NoPath { disk, subsystem, failures: failures(&state, |_| true), host_lacks });
    }
    let is_usable = |id| known.contains(&id) && state.paths().any(|path| path.namespaces.leads_to(id));
    if let Some(disk) = subsystem.disks.iter().find(|disk| !is_usable(disk.id)) {
        let reason = |path: &PathStatus| Some((path.address.clone(), path.namespace(disk.id)?.unusable.clone()?));
        let reasons = Reasons { of: "", reasons: state.paths().filter_map(reason).collect() };
        let (disk, subsystem) = name(disk.name());
        return Err(StartError::NoNamespace { disk, subsystem, reasons });
    }
    let is_down = |path: &PathStatus| path.origin == Origin::Configured && !is_live(path);
    if wait_for == WaitFor::All && state.paths().any(is_down) {
        return Err(StartError::PathDown { disk: subsystem.name().into(), failures: failures(&state, is_down) });
    }
    Ok(())
}

/// The last error of each of these paths.
fn failures(state: &State, which: impl Fn(&PathStatus) -> bool) -> Reasons {
    let reason = |path: &PathStatus| -> Option<(PathAddress, String)> {
        let (error, _) = path.last_error.as_ref()?;
        Some((path.address.clone(), error.clone()))
    };
    Reasons { of: "", reasons: state.paths().filter(|path| which(path)).filter_map(reason).collect() }
}
