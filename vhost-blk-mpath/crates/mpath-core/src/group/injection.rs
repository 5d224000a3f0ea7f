//! Decides: a request that an injection keeps goes on.
//!
//! Injections of paths, and the requests and answers that they keep, until the injection ends or the path is lost.
//!
//! A stalled request counts as issued and an answer that an injection keeps counts as owed. So the path looks to the
//! silence watch as if the target were slow or dead. A recall of a kept request leaves an abandoned answer behind, as
//! a recall from the driver does. A request that is only delayed on its way to the target has not been sent, and the
//! target is not silent.
//!
//! An error replaces only the answer to a command that the target has ended. Such a command is no longer under way, so
//! it may be repeated at once, even if it changes data. An answer that an injection keeps when the association ends is
//! lost. Its command waits for the fence like any other.

use monotonic::Instant;

use super::Group;
use crate::failovers::Failover;
use crate::inject::{Ending, Impairment, Verdict};
use crate::requests::State;
use crate::timers::{Answer, Delayed, Due};
use crate::{DiskId, Injection, OpClass, Outcome, PathId, Tag};

use crate::inject::Direction::{Request, Response};

impl Group {
    /// Injects impairments into a path from now on: for one class, or for all classes without an injection of their
    /// own. An injection for all classes replaces every earlier one of the path. An injection for a class replaces the
    /// earlier injection for that class. The replaced injection ends as in [`Group::clear_injection`]. Ignored after
    /// the path was removed: the next path with its id must not inherit the injection.
    pub fn set_injection(&mut self, now: Instant, path: PathId, class: Option<OpClass>, injection: Injection) {
        if !self.paths[path.index()].added {
            return;
        }
        self.end(now, path, class.map_or(Ending::All, |class| Ending::Only(Some(class))));
        let injections = self.paths[path.index()].injections.get_or_insert_default();
        injections.set(class, Impairment::new(injection, path, class));
    }

    /// Ends the injections of a path. Requests that they keep go on at once and in order: to the target, or elsewhere
    /// if the path gets no requests. Answers go on as the target gave them.
    pub fn clear_injection(&mut self, now: Instant, path: PathId) {
        self.end(now, path, Ending::All);
    }

    /// Ends one injection of a path, as [`Group::clear_injection`] does: that of this class, or the one for all classes
    /// without an injection of their own.
    pub fn end_injection(&mut self, now: Instant, path: PathId, class: Option<OpClass>) {
        self.end(now, path, Ending::Only(class));
    }

    /// The injections in force, each with its class.
    pub fn injections(&self) -> impl Iterator<Item = (PathId, Option<OpClass>, Injection)> + '_ {
        let injections =
            self.paths.iter().zip(0..).filter_map(|(path, id)| Some((PathId(id), path.injections.as_ref()?)));
        injections
            .flat_map(|(id, injections)| injections.in_force().map(move |(class, injection)| (id, class, injection)))
    }

    fn end(&mut self, now: Instant, id: PathId, ending: Ending) {
        let Some(mut injections) = self.paths[id.index()].injections.take() else {
            return;
        };
        let covered = injections.covered(ending);
        let covers = |class: OpClass| covered[class.index()];
        let requests = &self.requests;
        let ends = |tag: Tag| covers(requests[tag].io.op.class());
        let (mut released, mut answers) = (Vec::new(), Vec::new());
        for held in self.timers.take_delayed(id, ends) {
            match held {
                Delayed::Request(tag) => released.push(tag),
                Delayed::Answer(tag, outcome) => answers.push((tag, outcome)),
            }
        }
        let unsent = released.len();
        self.timers.forget_abandoned(id, covers);
        released.extend(injections.stalled.iter().filter(|tag| ends(**tag)));
        answers.extend(injections.answers.iter().filter(|(tag, _)| ends(*tag)));
        injections.stalled.retain(|tag| !ends(*tag));
        injections.answers.retain(|(tag, _)| !ends(*tag));
        let mut abandoned = 0;
        for class in OpClass::ALL.into_iter().filter(|class| covers(*class)) {
            abandoned += std::mem::take(&mut injections.abandoned[class.index()]);
            injections.stalled_abandoned[class.index()] = None;
        }
        let path = &mut self.paths[id.index()];
        if injections.end(ending) {
            path.injections = Some(injections);
        }
        let owed = (released.len() - unsent + answers.len()) as u32;
        if owed + abandoned > 0 {
            path.watch.forget(now, owed, abandoned);
            self.expect_late_answers();
            self.watch_changed(now, id);
        }
        // Requests that the injection was about to fail go on too.
        for (of, tag, error) in &mut self.released {
            if *of == id && covers(self.requests[*tag].io.op.class()) {
                *error = None;
            }
        }
        for &tag in &released {
            // No path has them before they are issued, so there is nothing to recall.
            let state = &mut self.requests[tag].state;
            if *state == State::Stalled {
                *state = State::Injected;
            }
        }
        self.released.extend(released.into_iter().map(|tag| (id, tag, None)));
        let path = &self.paths[id.index()];
        let draining = path.draining;
        let unusable = |disk: &DiskId| draining || !path.leads_to(*disk);
        for disk in self.disks().filter(unusable).collect::<Vec<_>>() {
            self.take_back_unsent_of(now, id, disk);
        }
        for (tag, outcome) in answers {
            self.set_answered(id, tag, false);
            self.end_attempt(now, id, tag, outcome, false);
        }
        if covers(OpClass::Read) {
            self.timers.forget_probe(id);
            self.release_probe(now, id, false);
            self.release_hedges(now, id);
        }
    }

    /// Applies the path's injection to a request that is about to be issued. Returns the state of the request if the
    /// injection keeps it.
    pub(super) fn apply_injection(&mut self, now: Instant, id: PathId, tag: Tag) -> Option<State> {
        let injections = self.paths[id.index()].injections.as_mut()?;
        let io = &self.requests[tag].io;
        let verdict = injections.decide(now, Request, io.op.class(), io.bytes);
        if !matches!(verdict, Verdict::Pass) {
            self.requests[tag].history.kept(now);
        }
        match verdict {
            Verdict::Pass => None,
            Verdict::Delay { delay, error } => {
                if delay.is_zero() {
                    self.released.push_back((id, tag, error));
                } else {
                    self.timers.set(now, delay, Due::Inject(id, tag, error));
                }
                Some(State::Injected)
            }
            Verdict::Stall => {
                injections.stalled.push_back(tag);
                self.issued(now, id, tag);
                Some(State::Stalled)
            }
        }
    }

    /// Applies the path's injection to an answer. Returns the outcome that counts now; `None`: the injection keeps
    /// the answer.
    pub(super) fn apply_injection_to_answer(
        &mut self,
        now: Instant,
        id: PathId,
        tag: Tag,
        outcome: Outcome,
    ) -> Option<Outcome> {
        let path = &mut self.paths[id.index()];
        let (Some(injections), Some(live)) = (&mut path.injections, &path.association) else {
            return Some(outcome);
        };
        let request = &self.requests[tag];
        let (class, bytes, recalled) = (request.io.op.class(), request.io.bytes, request.recalled);
        // Injections apply neither to outcomes without an answer nor to recalled requests.
        let answered = !matches!(outcome, Outcome::Lost { .. } | Outcome::Recalled { .. } | Outcome::GivenUp);
        if !answered || recalled {
            return Some(outcome);
        }
        let flushing = request.state == State::Flushing;
        let epoch = if flushing { self.flushes.epoch_on(request.job, id) } else { Some(request.epoch) };
        if Some(live.epoch) != epoch {
            return Some(outcome);
        }
        match injections.decide(now, Response, class, bytes) {
            Verdict::Pass => return Some(outcome),
            Verdict::Delay { delay, error } => {
                let answer = Answer { outcome, error: error.filter(|_| outcome == Outcome::Success) };
                if delay.is_zero() {
                    return Some(self.replace_answer(now, id, tag, answer));
                }
                self.timers.set(now, delay, Due::Answer(id, tag, answer));
            }
            Verdict::Stall => injections.answers.push_back((tag, outcome)),
        }
        self.requests[tag].history.kept(now);
        self.set_answered(id, tag, true);
        None
    }

    /// Ends the attempt of an answer whose delay is over.
    pub(super) fn answer_due(&mut self, now: Instant, id: PathId, tag: Tag, answer: Answer) {
        self.set_answered(id, tag, false);
        let outcome = self.replace_answer(now, id, tag, answer);
        self.end_attempt(now, id, tag, outcome, true);
    }

    fn replace_answer(&mut self, now: Instant, id: PathId, tag: Tag, answer: Answer) -> Outcome {
        let Some(error) = answer.error else {
            return answer.outcome;
        };
        // The controller executed the command: its cache may hold the write, whatever the guest is told.
        let request = &self.requests[tag];
        if let Some(cache_period) = request.unflushed_in.filter(|_| !self.has_flush_commands(tag)) {
            self.disks[request.io.disk.index()].unflushed.mark(now, id, cache_period);
        }
        error
    }

    fn set_answered(&mut self, id: PathId, tag: Tag, answered: bool) {
        if self.has_flush_commands(tag) {
            self.set_flush_command_answered(id, tag, answered);
            return;
        }
        let (from, to) = if answered { (State::InFlight, State::Answered) } else { (State::Answered, State::InFlight) };
        let request = &mut self.requests[tag];
        assert_eq!((request.state, request.path), (from, id), "a completion answers an issue");
        request.state = to;
    }

    /// Takes back a request that the injection keeps and the driver does not have.
    pub(super) fn recall_from_injection(&mut self, now: Instant, id: PathId, tag: Tag) {
        let (class, issued_at) = (self.requests[tag].io.op.class(), self.requests[tag].issued_at);
        let path = &mut self.paths[id.index()];
        let injections = path.injections.as_mut().expect("only an injection keeps requests");
        if injections.is_stalled(tag) {
            let ages_from = &mut injections.stalled_abandoned[class.index()];
            *ages_from = Some(ages_from.map_or(issued_at, |older| older.min(issued_at)));
        }
        injections.stalled.retain(|other| *other != tag);
        injections.answers.retain(|(other, _)| *other != tag);
        injections.abandoned[class.index()] += 1;
        self.timers.make_abandoned(id, tag, class);
        let request = &mut self.requests[tag];
        (request.recalled, request.state) = (true, State::InFlight);
        self.end_attempt(now, id, tag, Outcome::Recalled { abandoned: true }, true);
    }

    /// Counts an abandoned answer as arrived, at the time at which the injection would have released it.
    pub(super) fn abandoned_due(&mut self, now: Instant, id: PathId, class: OpClass) {
        let path = &mut self.paths[id.index()];
        let injections = path.injections.as_mut().expect("only an injection abandons answers here");
        injections.abandoned[class.index()] -= 1;
        path.watch.progress(now, 1, &self.attention);
        self.late_answered(1);
        self.watch_changed(now, id);
    }

    /// Handles the end of the association. Answers that an injection keeps are lost. Requests that were not sent go
    /// elsewhere.
    pub(super) fn lose_delayed(&mut self, now: Instant, id: PathId) {
        let Some(injections) = &mut self.paths[id.index()].injections else {
            return;
        };
        (injections.abandoned, injections.stalled_abandoned) = ([0; 3], [None; 3]);
        let stalled = std::mem::take(&mut injections.stalled);
        let mut answers: Vec<Tag> = std::mem::take(&mut injections.answers).into_iter().map(|(tag, _)| tag).collect();
        self.timers.forget_abandoned(id, |_| true);
        answers.extend(self.timers.take_answers(id));
        for tag in answers.into_iter().rev() {
            self.set_answered(id, tag, false);
            self.end_attempt(now, id, tag, Outcome::Lost { indeterminate: true }, false);
        }
        for tag in stalled.into_iter().rev() {
            if self.has_flush_commands(tag) {
                self.take_back_flush_command(id, tag);
            } else {
                // The request was never sent, so its attempt does not count as a failover. Its wait is still measured
                // as one, because the guest has waited.
                let request = &mut self.requests[tag];
                let since = request.bound_at;
                request.tried().failover.get_or_insert(Failover { since, is_of_path: true });
                self.unbind(tag);
                self.requeue(now, tag);
            }
        }
    }
}
