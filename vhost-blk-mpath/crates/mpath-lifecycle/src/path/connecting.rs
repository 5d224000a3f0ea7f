//! Decides: a path leads to a disk from its admission on (`bring_up`).
//! Decides: an association is in the fence record before a write is sent on it (`advance`).
//!
//! An association while it connects: the admin queue, then each I/O queue, then its record.

use std::collections::VecDeque;
use std::error::Error;

use monotonic::{Duration, Instant};
use mpath_core::{Association, DiskId, Epoch, PathId};
use nvme_tcp::host::{
    ControllerConfig, ControllerEvent, ControllerInfo, HostController, HostQueue, NoPayload, QueueConfig, STAGING_MIN,
};

use super::live::Live;
use super::{Action, LiveAssociation, PathError};
use crate::disks::{AdmitError, Disks};
use crate::namespaces::Namespaces;
use crate::settings::{CONNECT_MAX, PathSettings};

#[derive(Debug)]
pub(super) struct Connecting {
    /// Limit of the connection attempt or handshake that is under way.
    deadline: Option<Instant>,
    /// Made when its socket is connected.
    admin: Option<Admin>,
    connected_controller: Option<ConnectedController>,
    /// Queue pairs that are ready, starting with QID 1.
    ready: Vec<HostQueue>,
    /// The next queue pair, made when its socket is connected.
    next: Option<HostQueue>,
    recording: Recording,
}

#[derive(Debug)]
struct Admin {
    controller: HostController,
    config: ControllerConfig,
}

/// What the controller has reported.
#[derive(Debug)]
struct ConnectedController {
    /// As it was at the beginning.
    info: ControllerInfo,
    namespaces: Namespaces,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recording {
    NotYet,
    UnderWay,
    Done,
}

/// The result of a step.
type Step<D, T> = Result<T, PathError<<D as Disks>::Error>>;

fn changed<D: Disks>(disks: &D, disk: DiskId, error: AdmitError<D::Error>) -> PathError<D::Error> {
    PathError::Changed { disk: disks.name(disk), error }
}

impl Connecting {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            deadline: Some(now + CONNECT_MAX),
            admin: None,
            connected_controller: None,
            ready: Vec::new(),
            next: None,
            recording: Recording::NotYet,
        }
    }

    /// A path whose association is being recorded.
    #[cfg(test)]
    pub(super) fn being_recorded(now: Instant) -> Self {
        Self { deadline: None, recording: Recording::UnderWay, ..Self::new(now) }
    }

    /// Whether the association is being recorded, or is recorded.
    pub(super) fn is_recording(&self) -> bool {
        self.recording != Recording::NotYet
    }

    pub(super) fn connected<E: Error>(
        &mut self,
        now: Instant,
        settings: &PathSettings,
        max_transfer_bytes: Option<u32>,
        change_limit: Option<Duration>,
        qid: u16,
    ) -> Result<(), PathError<E>> {
        match (&self.admin, &self.connected_controller) {
            (None, _) if qid == 0 => {
                let mut config = settings.controller.clone();
                config.max_transfer_bytes = max_transfer_bytes.or(config.max_transfer_bytes);
                let mut controller = HostController::new(config.clone(), now)?;
                if let Some(limit) = change_limit {
                    controller.limit_first_change(limit);
                }
                self.admin = Some(Admin { controller, config });
                // The controller's own deadlines take over.
                self.deadline = None;
            }
            (Some(admin), Some(connected_controller)) if usize::from(qid) == self.ready.len() + 1 => {
                let mut config: QueueConfig = connected_controller.info.queue_config(&admin.config, qid);
                // The usable namespaces are known once all queues are connected.
                config.namespaces.fill(None);
                self.next = Some(HostQueue::new(config)?);
                self.deadline = Some(now + CONNECT_MAX);
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn received<E: Error>(&mut self, now: Instant, qid: u16, bytes: &[u8]) -> Result<(), PathError<E>> {
        if qid == 0 {
            if let Some(admin) = &mut self.admin {
                admin.controller.receive(now, bytes)?;
            }
        } else if let Some(queue) = self.queue(qid) {
            queue.receive(bytes, &mut NoPayload)?;
        }
        Ok(())
    }

    pub(super) fn fill_tx(&mut self, now: Instant, qid: u16, out: &mut Vec<u8>) {
        if qid == 0 {
            if let Some(admin) = &mut self.admin {
                admin.controller.fill_tx(out);
            }
        } else if let Some(queue) = self.queue(qid) {
            let (mut staging, mut plan) = (Vec::with_capacity(STAGING_MIN), Vec::new());
            queue.fill_tx(now, &mut staging, &NoPayload, &mut plan, u32::MAX);
            out.append(&mut staging);
        }
    }

    pub(super) fn term_req(&mut self, qid: u16) -> Option<Vec<u8>> {
        if qid == 0 { self.admin.as_ref()?.controller.term_req() } else { self.queue(qid)?.term_req() }
    }

    /// The queue pair of an I/O queue whose socket is connected.
    fn queue(&mut self, qid: u16) -> Option<&mut HostQueue> {
        self.ready.iter_mut().chain(&mut self.next).nth(usize::from(qid).checked_sub(1)?)
    }

    pub(super) fn recorded(&mut self) {
        self.recording = Recording::Done;
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let of_admin = self.admin.as_ref().and_then(|admin| admin.controller.next_timeout());
        [self.deadline, of_admin].into_iter().flatten().min()
    }

    /// Goes as far as it can. Returns the live association at the end.
    pub(super) fn advance<D: Disks>(
        &mut self,
        now: Instant,
        path: PathId,
        epoch: Epoch,
        disks: &mut D,
        actions: &mut VecDeque<Action<D::Error>>,
    ) -> Step<D, Option<Box<Live<D::Error>>>> {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(PathError::ConnectTimeout);
        }
        let Some(admin) = &mut self.admin else { return Ok(None) };
        let controller = &mut admin.controller;
        if controller.next_timeout().is_some_and(|at| at <= now) {
            controller.handle_timeout(now)?;
        }
        while let Some(event) = controller.poll_event() {
            match (&mut self.connected_controller, event) {
                (None, ControllerEvent::Live(info)) => {
                    let granted = info.io_queues;
                    disks.io_queues_granted(path, granted).map_err(|needed| PathError::Queues { granted, needed })?;
                    let namespaces = Namespaces::new(&info, disks.admit(&info)).map_err(PathError::Admit)?;
                    self.connected_controller = Some(ConnectedController { info: *info, namespaces });
                    actions.push_back(Action::Connect { qid: 1 });
                    self.deadline = Some(now + CONNECT_MAX);
                }
                (None, _) => {}
                (Some(connected_controller), event) => {
                    let info = controller.info().expect("the controller is live");
                    let update = connected_controller.namespaces.on_event(disks, info, event);
                    update.map_err(|(disk, error)| changed(disks, disk, error))?;
                }
            }
        }
        let Some(connected_controller) = &self.connected_controller else { return Ok(None) };
        if let Some(ready) = self.next.take_if(|next| next.is_ready()) {
            self.ready.push(ready);
            if self.ready.len() < usize::from(connected_controller.info.io_queues) {
                actions.push_back(Action::Connect { qid: self.ready.len() as u16 + 1 });
                self.deadline = Some(now + CONNECT_MAX);
            } else {
                let (cntlid, fence_time) = (connected_controller.info.cntlid, connected_controller.info.fence_time());
                actions.push_back(Action::Record { epoch, cntlid, fence_time });
                (self.recording, self.deadline) = (Recording::UnderWay, None);
            }
        }
        if self.recording == Recording::Done { self.bring_up(path, epoch, disks, actions).map(Some) } else { Ok(None) }
    }

    /// Makes the recorded association live.
    fn bring_up<D: Disks>(
        &mut self,
        path: PathId,
        epoch: Epoch,
        disks: &mut D,
        actions: &mut VecDeque<Action<D::Error>>,
    ) -> Step<D, Box<Live<D::Error>>> {
        let (Some(Admin { controller, .. }), Some(ConnectedController { info, namespaces })) =
            (self.admin.take(), self.connected_controller.take())
        else {
            unreachable!("it was written down after that")
        };
        let mut queues = std::mem::take(&mut self.ready);
        for queue in &mut queues {
            namespaces.add_to(controller.info().expect("the controller is live"), queue)?;
        }
        let all = namespaces.initial_updates();
        // This call comes last, because nothing may fail after it.
        disks.path_up(path, all.clone()).map_err(|(disk, error)| changed(disks, disk, error.into()))?;
        let association = Association {
            epoch,
            ana: namespaces.states(),
            volatile_write_cache: info.volatile_write_cache,
            queue_depth: info.queue_entries - 1,
        };
        let threads = queues.len();
        actions.push_back(Action::GoLive(Box::new(LiveAssociation {
            association,
            queues,
            info: info.clone(),
            namespaces: all,
        })));
        Ok(Box::new(Live::new(controller, info, namespaces, threads)))
    }
}

#[cfg(test)]
mod tests {
    use monotonic::Duration;

    use super::*;
    use crate::testing::{Failed, Known, controller, namespace, settings};

    /// The controller may be slow. Its queue pairs have their own time limit.
    #[test]
    fn each_socket_and_each_handshake_has_a_deadline() {
        let (now, mut settings) = (Instant::now(), settings(1));
        settings.controller.command_timeout = 100 * CONNECT_MAX;
        let mut disks = Known::new(&[namespace()]);
        let info = controller(&[namespace()]);
        let namespaces = Namespaces::new(&info, disks.admit(&info)).unwrap();
        let mut connecting = Connecting::new(now);
        assert_eq!(connecting.next_timeout(), Some(now + CONNECT_MAX));
        connecting.connected::<Failed>(now, &settings, None, None, 0).unwrap();
        assert!(connecting.next_timeout().is_some_and(|at| at > now + CONNECT_MAX));
        connecting.connected_controller = Some(ConnectedController { info, namespaces });
        let later = now + Duration::from_secs(1);
        connecting.connected::<Failed>(later, &settings, None, None, 1).unwrap();
        assert_eq!(connecting.next_timeout(), Some(later + CONNECT_MAX));
        let late = connecting.advance(later + CONNECT_MAX, PathId(0), Epoch(1), &mut disks, &mut VecDeque::new());
        assert!(matches!(late, Err(PathError::ConnectTimeout)));
    }
}
