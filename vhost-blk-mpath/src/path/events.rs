//! What happens to paths, told to the API and to the log.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use mpath_api::types::{Controller, EventKind, PathState};
use mpath_core::PathId;
use mpath_host::{LiftedBy, News};
use nvme_tcp::host::ControllerInfo;

use crate::path::duplicate;
use crate::subsystem::Subsystem;
use crate::subsystem::error::PathError;
use crate::subsystem::path_status::PathStatus;
use crate::transport::mptcp::Connections;

impl Subsystem {
    pub(crate) fn path_live(
        &self,
        path: PathId,
        info: &ControllerInfo,
        namespaces: &[News],
        mptcp: Option<Connections>,
    ) {
        let mut message = format!("path live: controller {}", info.cntlid);
        for news in namespaces {
            message.push_str("; ");
            message.push_str(&self.of_disk(news));
        }
        self.path_event(path, EventKind::PathLive, message);
        self.path(path, |status| {
            status.set_state(PathState::Live);
            status.last_error = None;
            status.cntlid = Some(info.cntlid);
            status.mptcp = mptcp;
            status.controller = Some(Controller {
                model: info.model.clone(),
                serial: info.serial.clone(),
                firmware: info.firmware.clone(),
                keep_alive_tmo_ms: info.kato.as_millis() as u64,
                max_transfer_bytes: info.max_transfer_bytes,
                queue_depth: info.queue_entries - 1,
                volatile_write_cache: info.volatile_write_cache,
                fence_ms: info.fence_time().as_millis() as u64,
            });
        });
        duplicate::check(self, path);
    }

    /// What the path is to one of the disks has changed.
    pub(crate) fn path_namespace(&self, path: PathId, news: News) {
        self.path_event(path, EventKind::AnaChanged, format!("ANA state changed: {}", self.of_disk(&news)));
        let disk = usize::from(news.disk.0);
        self.path(path, |status| status.namespaces[disk] = news.into());
    }

    /// The namespace of one of the disks has so many blocks.
    pub(crate) fn path_size(&self, path: PathId, news: &News) {
        let disk = usize::from(news.disk.0);
        self.path(path, |status| status.namespaces[disk].blocks = news.blocks);
    }

    /// The disk is named where there are several.
    fn of_disk(&self, news: &News) -> String {
        let what = match &news.unusable {
            Some(error) => error.clone(),
            None => news.state.to_string(),
        };
        if self.disks.len() == 1 { what } else { format!("for {}: {what}", self.disk(news.disk).name()) }
    }

    pub(crate) fn path_suspect(&self, path: PathId) {
        self.path_event(path, EventKind::PathSuspect, "path suspect: it owes answers and is silent");
    }

    pub(crate) fn path_recovered(&self, path: PathId) {
        self.path_event(path, EventKind::PathRecovered, "path recovered: it answers again");
    }

    /// The controller reports no MDTS and has refused larger reads or writes.
    pub(crate) fn path_max_transfer(&self, path: PathId, bytes: u32) {
        tracing::warn!(
            disk = %self.name(),
            path = self.address(path).map(|address| address.to_string()),
            bytes,
            "the controller reports no MDTS and refused larger reads or writes; they are cut to this size, and a reset of the path tries \
             larger ones again; `max-transfer` sets the size"
        );
        self.path(path, |status| {
            if let Some(controller) = &mut status.controller {
                controller.max_transfer_bytes = bytes;
            }
        });
    }

    /// Nothing sent before the loss can be executed any more.
    pub(crate) fn path_fence_lifted(&self, path: PathId, by: LiftedBy, after: Duration) {
        let by = match by {
            LiftedBy::CrossReset(by) => match self.address(by) {
                Some(by) => format!("cross-controller reset on {by}"),
                None => "cross-controller reset on a path that is gone".into(),
            },
            LiftedBy::Drain => "drain".into(),
            LiftedBy::Time => "time".into(),
        };
        self.path_event(path, EventKind::FenceLifted, format!("fence lifted by {by} after {after:.1?}"));
    }

    /// The operator's wish to disable the path is fulfilled.
    pub(crate) fn path_disabled(&self, path: PathId) {
        self.path_event(path, EventKind::PathDisabled, "path disabled: not connected before it is enabled");
        self.path(path, |status| {
            status.set_state(PathState::Disabled);
            status.last_error = None;
            status.gone();
        });
    }

    /// A path that is to go has no association any more.
    pub(crate) fn path_closed(&self, path: PathId) {
        self.path(path, PathStatus::gone);
    }

    /// It is enabled again.
    pub(crate) fn path_connecting(&self, path: PathId) {
        self.path(path, |status| status.set_state(PathState::Connecting));
    }

    /// A path was lost, or an attempt to connect it failed. Said once: attempts that fail alike stay silent.
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

    /// No attempt is made any more to connect a path, which has had no connection for `ctrl-loss-tmo`.
    pub(crate) fn path_gave_up(&self, path: PathId, after: Duration) {
        let message = format!("path given up: no connection for {after:?} (ctrl-loss-tmo)");
        self.path_event(path, EventKind::PathGaveUp, message);
        self.path(path, |status| status.set_state(PathState::GaveUp));
    }

    /// The first attempt to connect a path failed. Whether that is worth a warning or the reason not to start at all depends on
    /// the others, so whoever starts the disk tells it.
    pub(crate) fn path_did_not_start(&self, path: PathId, error: &PathError, refused: bool) {
        self.path(path, |status| {
            status.set_state(if refused { PathState::Refused } else { PathState::Connecting });
            status.last_error = Some((error.to_string(), SystemTime::now()));
            status.gone();
        });
    }

    /// A path leads elsewhere, and stays unused.
    pub(crate) fn path_refused(&self, path: PathId, error: &PathError) {
        self.path_down(path, EventKind::PathRefused, error, |_| PathState::Refused);
    }

    fn path_down(&self, path: PathId, kind: EventKind, error: &PathError, next: impl FnOnce(PathState) -> PathState) {
        let text = error.to_string();
        let mut news = false;
        self.path(path, |status| {
            news = status.last_error.as_ref().is_none_or(|(last, _)| *last != text);
            status.set_state(next(status.state));
            status.last_error = Some((text.clone(), SystemTime::now()));
            status.gone();
        });
        // Of a refusal each time: nobody tries that again but the operator.
        if kind == EventKind::PathRefused {
            self.path_event(path, kind, refused(&text));
        } else if news {
            self.path_event(path, kind, format!("path down: {text}"));
        }
    }

    /// A path did not start, though others did.
    pub(crate) fn path_started_down(&self, path: PathId, error: &PathError) {
        if error.is_refusal() {
            self.path_event(path, EventKind::PathRefused, refused(error));
        } else {
            self.path_event(path, EventKind::PathLost, format!("path down: {error}"));
        }
    }
}

fn refused(error: impl Display) -> String {
    format!("path down: {error}; it is not tried again before `mpathctl path reset` or `enable`")
}
