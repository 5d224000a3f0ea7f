//! Test helper: an I/O thread with one path.

use std::sync::mpsc;

use monotonic::{Duration, Instant};
use mpath_core::{AnaState, Association, Epoch, Group, GroupConfig, PathConfig, PathId, SharedDisk};
use mpath_lifecycle::ThreadMessage;

use super::{Controller, FLOW, Guest, TIMEOUT, start_queue, start_thread};
use crate::{CloseMode, IoThreadHandle, PathEvent, PathEventKind};

const PATH: PathId = PathId(0);
const EPOCH: Epoch = Epoch(1);

/// A thread with one path, and a guest on it.
pub(crate) struct Rig {
    pub(crate) thread: IoThreadHandle,
    pub(crate) events: mpsc::Receiver<PathEvent>,
    pub(crate) controller: Controller,
    pub(crate) guest: Guest,
}

impl Rig {
    pub(crate) fn start() -> Self {
        let mut group = Group::new(Instant::now(), GroupConfig::default(), &[SharedDisk::default()]);
        group.add_path(PATH, PathConfig::default());
        let (report, events) = mpsc::channel();
        let report = move |event| drop(report.send(event));
        let thread = start_thread(group, Duration::from_micros(200), report);
        let (controller, link) = Controller::connect();
        let association =
            Association { epoch: EPOCH, ana: AnaState::Optimized.into(), volatile_write_cache: false, queue_depth: 15 };
        thread.path_up(PATH, association, link);
        let guest = Guest::new();
        start_queue(&thread, FLOW, guest.queue()).unwrap();
        Self { thread, events, controller, guest }
    }

    /// Closes the path and returns its [`PathEventKind::Closed`].
    pub(crate) fn close(&self, close_mode: CloseMode) -> PathEventKind {
        self.thread.post(ThreadMessage::PathDown {
            path: PATH,
            epoch: EPOCH,
            half_close: close_mode == CloseMode::HalfClose,
        });
        loop {
            match self.events.recv_timeout(TIMEOUT).unwrap().kind {
                closed @ PathEventKind::Closed { .. } => return closed,
                PathEventKind::Suspect
                | PathEventKind::Recovered
                | PathEventKind::AnaError
                | PathEventKind::InvalidNamespace
                | PathEventKind::DigestError
                | PathEventKind::CommandError(_)
                | PathEventKind::SmallerTransfer { .. } => {}
                kind @ PathEventKind::Lost(_) => panic!("{kind:?}"),
            }
        }
    }

    pub(crate) fn end(self) {
        self.thread.begin_shutdown();
        self.thread.join();
    }
}
