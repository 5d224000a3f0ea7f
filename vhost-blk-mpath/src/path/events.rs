//! Events of paths, for the API and the log.

use std::fmt::Display;

use monotonic::{Duration, Instant};
use mpath_api::types::{Controller, EventKind, PathState};
use mpath_core::PathId;
use mpath_lifecycle::{LiftedBy, NamespaceUpdate};
use nvme_tcp::Authenticated;
use nvme_tcp::host::ControllerInfo;
use nvme_tcp::wire::Status;
use nvme_tls::psk::Suite;

use crate::path::duplicate;
use crate::subsystem::Subsystem;
use crate::subsystem::error::PathError;
use crate::subsystem::path_status::{self, PathStatus};
use crate::transport::connections::Connections;

/// How the connections of a live path are secured.
pub(crate) struct PathSecurity {
    pub(crate) suite: Option<Suite>,
    pub(crate) authenticated: Option<Authenticated>,
}

impl Subsystem {
    pub(crate) fn path_live(
        &self,
        path: PathId,
        info: &ControllerInfo,
        namespaces: &[NamespaceUpdate],
        PathSecurity { suite, authenticated }: PathSecurity,
        connections: Option<Connections>,
    ) {
        let mut message = format!("path live: controller {}", info.cntlid);
        if let Some(suite) = suite {
            message.push_str("; ");
            message.push_str(suite.name());
        }
        let authentication = authenticated.map(path_status::for_api);
        if let Some(shown) = &authentication {
            message.push_str("; ");
            message.push_str(&shown.to_string());
        }
        for update in namespaces {
            message.push_str("; ");
            message.push_str(&self.of_disk(update));
        }
        self.path_event(path, EventKind::PathLive, message);
        self.path(path, |status| {
            status.set_state(PathState::Live);
            status.cntlid = Some(info.cntlid);
            status.suite = suite;
            status.authentication = authentication;
            status.connections = connections;
            status.controller = Some(Controller {
                model: info.model.clone(),
                serial: info.serial.clone(),
                firmware: info.firmware.clone(),
                keep_alive_tmo_ms: info.kato.as_millis(),
                max_transfer_bytes: info.max_transfer_bytes,
                queue_depth: info.queue_entries - 1,
                volatile_write_cache: info.volatile_write_cache,
                fence_ms: info.fence_time().as_millis(),
            });
        });
        self.state().was_live = true;
        duplicate::check(self, path);
    }

    /// Records a change of a disk's namespace on the path, or its size.
    pub(crate) fn path_namespace(&self, path: PathId, update: NamespaceUpdate) {
        if update.changed {
            self.path_event(path, EventKind::AnaChanged, format!("ANA state changed: {}", self.of_disk(&update)));
        }
        self.path(path, |status| status.namespaces.update(update));
    }

    /// Describes an update. The disk is named if there are several.
    fn of_disk(&self, update: &NamespaceUpdate) -> String {
        let what = match &update.unusable {
            Some(error) => error.clone(),
            None => update.state.to_string(),
        };
        if self.disks.len() == 1 { what } else { format!("for {}: {what}", self.disk(update.disk).name()) }
    }

    pub(crate) fn path_suspect(&self, path: PathId) {
        self.path_event(
            path,
            EventKind::PathSuspect,
            "path suspect: commands are unanswered, and its I/O queues are silent",
        );
    }

    pub(crate) fn path_recovered(&self, path: PathId) {
        self.path_event(path, EventKind::PathRecovered, "path recovered: the controller answers again");
    }

    /// Records that data of a command were corrupted on their way, and that the command is repeated.
    pub(crate) fn path_digest_error(&self, path: PathId) {
        let message = "a data digest was wrong on either side (transient transport error); the command is repeated; check \
                       the cables, cards and switches of this path";
        self.path(path, |status| status.set_error("a data digest was wrong".into()));
        self.path_event(path, EventKind::DigestError, message);
    }

    /// Records that the controller answered a command with an error, and that the command is repeated.
    pub(crate) fn path_command_error(&self, path: PathId, status: Status) {
        let error = format!("the controller answered a command with `{status}`");
        self.path_event(path, EventKind::CommandError, format!("{error}; the command is repeated"));
        self.path(path, |status| status.set_error(error));
    }

    /// Records that a controller without MDTS has refused larger reads or writes.
    pub(crate) fn path_max_transfer(&self, path: PathId, bytes: u32) {
        tracing::warn!(
            disk = self.name(),
            path = self.address(path).map(|address| address.to_string()),
            bytes,
            "the controller reports no MDTS and refused larger reads or writes; the daemon splits them to this size until the path is \
             reset; to fix the size, set `max-transfer`"
        );
        self.path(path, |status| {
            if let Some(controller) = &mut status.controller {
                controller.max_transfer_bytes = bytes;
            }
        });
    }

    /// Records that nothing sent on a lost association can be executed any more.
    pub(crate) fn path_fence_lifted(&self, path: PathId, by: LiftedBy, after: Duration) {
        let by = match by {
            LiftedBy::OrderlyEnd => return,
            LiftedBy::CrossReset(by) => match self.address(by) {
                Some(by) => format!("cross-controller reset on {by}"),
                None => "cross-controller reset on a removed path".into(),
            },
            LiftedBy::Drain => "drain".into(),
            LiftedBy::Time => "time".into(),
        };
        self.path_event(path, EventKind::FenceLifted, format!("fence lifted by {by} after {after:.1?}"));
    }

    /// Records that the path is disabled, as ordered.
    pub(crate) fn path_disabled(&self, path: PathId) {
        self.path_event(path, EventKind::PathDisabled, "path disabled: it reconnects once it is enabled");
        self.path(path, |status| {
            status.set_state(PathState::Disabled);
            status.gone();
        });
    }

    /// Records that a path being removed has no association any more.
    pub(crate) fn path_closed(&self, path: PathId) {
        self.path(path, |status| {
            status.is_leaving = true;
            status.gone();
        });
    }

    /// Records that the path connects after it was disabled, refused or given up.
    pub(crate) fn path_connecting(&self, path: PathId) {
        self.path(path, |status| status.set_state(PathState::Connecting));
    }

    /// Records that the path was lost, or that an attempt to connect it failed. A repeated error is reported once.
    pub(crate) fn path_failed(&self, path: PathId, error: &PathError) {
        self.path_down(path, EventKind::PathLost, error, |state| match state {
            PathState::Live | PathState::Lost => PathState::Lost,
            PathState::Connecting
            | PathState::Refused
            | PathState::GaveUp
            | PathState::Draining
            | PathState::Disabled
            | PathState::Removing => PathState::Connecting,
        });
    }

    /// Records that the path had no connection for `ctrl-loss-tmo` and is not retried.
    pub(crate) fn path_gave_up(&self, path: PathId, after: Duration) {
        let message = format!(
            "path given up: no connection for {after:?} (ctrl-loss-tmo); `mpathctl path reset` or `enable` tries it again"
        );
        self.path_event(path, EventKind::PathGaveUp, message);
        self.path(path, |status| status.set_state(PathState::GaveUp));
    }

    /// Records that the path leads elsewhere and is not used.
    pub(crate) fn path_refused(&self, path: PathId, error: &PathError) {
        self.virtqueues().forget_path(path);
        self.path_down(path, EventKind::PathRefused, error, |_| PathState::Refused);
    }

    fn path_down(&self, path: PathId, kind: EventKind, error: &PathError, next: impl FnOnce(PathState) -> PathState) {
        // A controller that finds this host silent ends its connections. It refuses nothing.
        let is_ended = matches!(error, PathError::Socket(_) | PathError::Lost(_) | PathError::Controller(_));
        let keep_alive = self.state().path(path).and_then(PathStatus::keep_alive).filter(|_| is_ended);
        let silence = keep_alive.and_then(|keep_alive| self.events.stalls.silence(Instant::now(), keep_alive));
        let text = format!("{error}{}", silence.unwrap_or_default());
        let mut update = false;
        self.path(path, |status| {
            update = status.state == PathState::Live || status.error_in_state() != Some(&text);
            status.set_state(next(status.state));
            status.set_error(text.clone());
            status.host_lacks = matches!(error, PathError::Host(_));
            status.gone();
        });
        // Report each refusal: only the operator causes another attempt.
        if kind == EventKind::PathRefused {
            self.path_event(path, kind, refused(&text));
        } else if update {
            self.path_event(path, kind, format!("path down: {text}"));
        }
    }
}

fn refused(error: impl Display) -> String {
    format!(
        "path down: {error}; the daemon does not retry by itself: correct the cause, then use `mpathctl path reset` or `enable`"
    )
}
