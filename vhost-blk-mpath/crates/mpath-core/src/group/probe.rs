//! Decides: a probe is sent.
//!
//! Probes: reads of existing data that measure an unused path. So no request of the guest has to measure the path,
//! which may be slow.
//!
//! A policy asks for probes. A probe counts neither as I/O nor as a command that the path owes. A path without room
//! is not probed. A path has at most one probe at a time. A probe that is not answered ends its association by the
//! I/O timeout, as every command does.

use monotonic::Instant;

use super::{Group, paths_of};
use crate::inject::Verdict;
use crate::path::{Probe, ProbeState};
use crate::policy::ProbeResult;
use crate::timers::Due;
use crate::{Action, Direction, DiskId, MAX_PROBE_BYTES, OpClass, PathId};

impl Group {
    /// Takes the driver's answer to an [`Action::Probe`].
    pub fn probed(&mut self, now: Instant, path: PathId, success: bool) {
        let of = &mut self.paths[path.index()];
        let probe = of.probe.as_mut().filter(|probe| probe.state == ProbeState::Issued);
        let probe = probe.expect("an answer follows a probe");
        let injections = of.injections.as_mut();
        match injections.map_or(Verdict::Pass, |i| i.decide(now, Direction::Response, OpClass::Read, probe.bytes)) {
            Verdict::Pass => self.end_probe(now, path, success),
            Verdict::Delay { delay, error } if delay.is_zero() => self.end_probe(now, path, success && error.is_none()),
            Verdict::Delay { delay, error } => {
                probe.fails = error.is_some();
                probe.state = ProbeState::Answered(success);
                self.timers.set(now, delay, Due::Probe(path));
            }
            Verdict::Stall => probe.state = ProbeState::Answered(success),
        }
    }

    fn end_probe(&mut self, now: Instant, path: PathId, success: bool) {
        let probe = self.paths[path.index()].probe.take().expect("the path has a probe");
        let latency = success.then(|| now - probe.began);
        let done = ProbeResult { now, path, bytes: probe.bytes, latency };
        self.policies.iter_mut().for_each(|policy| policy.probed(&done));
        self.paths[path.index()].clear_expiry_if_idle();
        self.update_slots(path);
    }

    pub(super) fn poll_probe(&mut self, now: Instant) -> Option<Action> {
        for id in paths_of(self.probed) {
            let path = &mut self.paths[id.index()];
            if let Some(probe) = path.probe.as_mut().filter(|probe| probe.state == ProbeState::Released) {
                probe.state = ProbeState::Issued;
                path.probes += 1;
                let (bytes, disk) = (probe.bytes, probe.disk);
                path.issued(now, self.config.io_timeout);
                return Some(Action::Probe { path: id, disk, bytes });
            }
        }
        let free = self.eligible & self.with_room & !self.probed;
        let (id, bytes) = self.policies.probe(now, free, self.open > 0)?;
        assert!(free & id.bit() != 0, "a policy probes only the offered paths");
        assert!(bytes >= 512 && bytes.is_multiple_of(512) && bytes <= MAX_PROBE_BYTES, "{bytes} bytes");
        let disk = self.disks.iter().position(|disk| disk.eligible & id.bit() != 0).map_or(0, |at| at as u16);
        let disk = DiskId(disk);
        let path = &mut self.paths[id.index()];
        let injections = path.injections.as_mut();
        let verdict = injections.map_or(Verdict::Pass, |i| i.decide(now, Direction::Request, OpClass::Read, bytes));
        let mut probe = Probe { began: now, disk, bytes, fails: false, state: ProbeState::Injected };
        match verdict {
            Verdict::Pass => {
                probe.state = ProbeState::Issued;
                path.probe = Some(probe);
                path.probes += 1;
                path.issued(now, self.config.io_timeout);
                self.update_slots(id);
                return Some(Action::Probe { path: id, disk, bytes });
            }
            Verdict::Delay { delay, error } => {
                probe.fails = error.is_some();
                path.probe = Some(probe);
                if delay.is_zero() {
                    self.end_probe(now, id, false);
                    // The policy's next probe can wait for the next event.
                    return None;
                }
                self.timers.set(now, delay, Due::Probe(id));
            }
            Verdict::Stall => path.probe = Some(probe),
        }
        self.update_slots(id);
        self.poll_probe(now)
    }

    /// Releases a probe or its answer that the path's injection has kept. A probe that was to fail does so only while
    /// the injection is `in_force`.
    pub(super) fn release_probe(&mut self, now: Instant, id: PathId, in_force: bool) {
        let Some(probe) = &mut self.paths[id.index()].probe else { return };
        let fails = probe.fails && in_force;
        match probe.state {
            ProbeState::Injected if fails => self.end_probe(now, id, false),
            ProbeState::Injected => probe.state = ProbeState::Released,
            ProbeState::Answered(success) => self.end_probe(now, id, success && !fails),
            ProbeState::Released | ProbeState::Issued => {}
        }
    }

    /// Forgets a probe that has not been sent, because the path gets nothing more.
    pub(super) fn forget_unsent_probe(&mut self, id: PathId, of: impl Fn(DiskId) -> bool) {
        let path = &mut self.paths[id.index()];
        if path.probe.is_some_and(|probe| probe.state != ProbeState::Issued && of(probe.disk)) {
            path.probe = None;
            self.timers.forget_probe(id);
            self.update_slots(id);
        }
    }
}
