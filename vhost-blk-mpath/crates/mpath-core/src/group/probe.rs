//! Shadow probes: reads of existing data that nobody waits for. They measure a path that is not used, so that it need not be
//! measured by a request of the guest, which would wait for it.
//!
//! A policy asks for them. They count neither as I/O nor as a sign that a path owes something, and wait for nothing: a path that
//! has no room is not probed. At most one a path is outstanding; if it never comes back there is no other.

use std::time::Instant;

use super::Group;
use crate::path::{Probe, ProbeState};
use crate::policy::Probed;
use crate::timers::Due;
use crate::{Action, MAX_PROBE_BYTES, PathId};

impl Group {
    /// The driver's answer to an [`Action::Probe`].
    pub fn probed(&mut self, now: Instant, path: PathId, success: bool) {
        let probe = self.paths[path.index()].probe.take();
        let probe = probe.filter(|probe| probe.state == ProbeState::Issued).expect("an answer follows a probe");
        let latency = success.then(|| now - probe.began);
        let done = Probed { now, path, bytes: probe.bytes, latency };
        self.policies.iter_mut().for_each(|policy| policy.probed(&done));
    }

    pub(super) fn poll_probe(&mut self, now: Instant) -> Option<Action> {
        let mut free = 0;
        for (path, id) in self.paths.iter_mut().zip(0..).map(|(path, id)| (path, PathId(id))) {
            let has_room = path.has_room(self.config.window, 0);
            match &mut path.probe {
                Some(probe) if probe.state == ProbeState::Released => {
                    probe.state = ProbeState::Issued;
                    return Some(Action::Probe { path: id, bytes: probe.bytes });
                }
                None if self.eligible & id.bit() != 0 && has_room => free |= id.bit(),
                Some(_) | None => {}
            }
        }
        let (id, bytes) = self.policies.probe(now, free, self.open > 0)?;
        assert!(free & id.bit() != 0, "a policy probes what can be probed");
        assert!(bytes >= 512 && bytes.is_multiple_of(512) && bytes <= MAX_PROBE_BYTES, "{bytes} bytes");
        let path = &mut self.paths[id.index()];
        let delay = path.injection.map_or_else(Default::default, |injection| injection.delay());
        let state = if delay.is_zero() { ProbeState::Issued } else { ProbeState::Injected };
        path.probe = Some(Probe { began: now, bytes, state });
        if state == ProbeState::Injected {
            self.timers.set(now, delay, Due::Probe(id));
            return self.poll_probe(now);
        }
        Some(Action::Probe { path: id, bytes })
    }

    /// The path's injection does not hold its probe any longer.
    pub(super) fn release_probe(&mut self, id: PathId) {
        if let Some(probe) = self.paths[id.index()].probe.as_mut().filter(|p| p.state == ProbeState::Injected) {
            probe.state = ProbeState::Released;
        }
    }

    /// The path is to be given nothing more: neither is its probe, if that has not been sent.
    pub(super) fn forget_unsent_probe(&mut self, id: PathId) {
        let path = &mut self.paths[id.index()];
        if path.probe.is_some_and(|probe| probe.state != ProbeState::Issued) {
            path.probe = None;
            self.timers.forget_probe(id);
        }
    }
}
