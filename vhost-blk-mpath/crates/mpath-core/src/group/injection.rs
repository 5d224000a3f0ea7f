//! Injections: what they hold, and what becomes of that when they end or the path is lost.
//!
//! A stalled request counts as issued and an answer that is held as outstanding, so that the path looks to the watch as it
//! would if the target were slow or dead. What is recalled meanwhile leaves a ghost behind, as what a driver has abandoned does.
//! What is merely delayed on its way to the target has not been sent, and is no silence of the target.
//!
//! An answer that is replaced by an error ends nothing that the target has not ended: no command of it is under way any more,
//! so that it may be repeated at once, also if it changes data. An answer that is held when the association ends is lost with
//! it, and what it is about waits for the fence like everything else.

use std::time::Instant;

use super::Group;
use crate::inject::{Impairment, Verdict};
use crate::requests::State;
use crate::timers::{Answer, Due, Held};
use crate::{DiskId, Injection, OpClass, Outcome, PathId, Tag};

use crate::inject::Direction::{Request, Response};

impl Group {
    /// Impairs a path, for the classes that have no injection of their own or for one class, from now on. One for all classes
    /// takes the place of every earlier one of the path, one for a class that of the class. The earlier one ends wholly: see
    /// [`Group::clear_injection`]. A path that was removed already is not impaired, nor is the next one with its id.
    pub fn set_injection(&mut self, now: Instant, path: PathId, class: Option<OpClass>, injection: Injection) {
        if !self.paths[path.index()].added {
            return;
        }
        self.end_injection(now, path, class);
        let impaired = self.paths[path.index()].impaired.get_or_insert_default();
        impaired.set(class, Impairment::new(injection, path, class));
    }

    /// Ends the impairment of a path. What it holds goes on at once and in order: requests to the target, or elsewhere if the
    /// path is to be given nothing any more, and answers as the target gave them.
    pub fn clear_injection(&mut self, now: Instant, path: PathId) {
        self.end_injection(now, path, None);
    }

    /// The impairments in force, with the class that each is for.
    pub fn injections(&self) -> impl Iterator<Item = (PathId, Option<OpClass>, Injection)> + '_ {
        let impaired = self.paths.iter().zip(0..).filter_map(|(path, id)| Some((PathId(id), path.impaired.as_ref()?)));
        impaired.flat_map(|(id, impaired)| impaired.injections().map(move |(class, injection)| (id, class, injection)))
    }

    /// `None`: of all classes.
    fn end_injection(&mut self, now: Instant, id: PathId, only: Option<OpClass>) {
        let Some(mut impaired) = self.paths[id.index()].impaired.take() else {
            return;
        };
        let covers = |class: OpClass| only.is_none_or(|only| only == class);
        let requests = &self.requests;
        let ends = |tag: Tag| covers(requests[tag].io.op.class());
        let (mut released, mut answers) = (Vec::new(), Vec::new());
        for held in self.timers.take_held(id, ends) {
            match held {
                Held::Request(tag) => released.push(tag),
                Held::Answer(tag, outcome) => answers.push((tag, outcome)),
            }
        }
        let unsent = released.len();
        self.timers.forget_ghosts(id, covers);
        released.extend(impaired.stalled.iter().filter(|tag| ends(**tag)));
        answers.extend(impaired.answers.iter().filter(|(tag, _)| ends(*tag)));
        impaired.stalled.retain(|tag| !ends(*tag));
        impaired.answers.retain(|(tag, _)| !ends(*tag));
        let mut ghosts = 0;
        for class in OpClass::ALL.into_iter().filter(|class| covers(*class)) {
            ghosts += std::mem::take(&mut impaired.ghosts[class.index()]);
            impaired.stalled_ghosts[class.index()] = None;
        }
        let path = &mut self.paths[id.index()];
        if impaired.end(only) {
            path.impaired = Some(impaired);
        }
        let owed = (released.len() - unsent + answers.len()) as u32;
        if owed + ghosts > 0 {
            path.watch.forget(now, owed, ghosts);
            self.watch_changed(now, id);
        }
        // What it would have failed this very moment goes on too.
        for (of, tag, error) in &mut self.released {
            if *of == id && covers(self.requests[*tag].io.op.class()) {
                *error = None;
            }
        }
        for &tag in &released {
            // Until they are issued no path has them, so there is nothing to recall.
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

    /// Whether the path's injection holds what would be issued on it now, and if so in which state.
    pub(super) fn hold_by_injection(&mut self, now: Instant, id: PathId, tag: Tag) -> Option<State> {
        let impaired = self.paths[id.index()].impaired.as_mut()?;
        let io = &self.requests[tag].io;
        match impaired.decide(now, Request, io.op.class(), io.bytes) {
            Verdict::Pass => None,
            Verdict::Hold { delay, error } => {
                if delay.is_zero() {
                    self.released.push_back((id, tag, error));
                } else {
                    self.timers.set(now, delay, Due::Inject(id, tag, error));
                }
                Some(State::Injected)
            }
            Verdict::Stall => {
                impaired.stalled.push_back(tag);
                self.issued(now, id, tag);
                Some(State::Stalled)
            }
        }
    }

    /// What the group is to make of an answer at once; `None`: the path's injection holds it.
    pub(super) fn answer_by_injection(
        &mut self,
        now: Instant,
        id: PathId,
        tag: Tag,
        outcome: Outcome,
    ) -> Option<Outcome> {
        let path = &mut self.paths[id.index()];
        let (Some(impaired), Some(live)) = (&mut path.impaired, path.association) else {
            return Some(outcome);
        };
        let request = &self.requests[tag];
        let (class, bytes, recalled) = (request.io.op.class(), request.io.bytes, request.recalled);
        // What is not an answer is none of its business, nor what the driver has been told to give back.
        let answered = !matches!(outcome, Outcome::Lost { .. } | Outcome::Recalled { .. } | Outcome::GivenUp);
        if !answered || recalled {
            return Some(outcome);
        }
        let flushing = request.state == State::Flushing;
        let epoch = if flushing { self.flushes.epoch_on(request.job, id) } else { Some(request.epoch) };
        if Some(live.epoch) != epoch {
            return Some(outcome);
        }
        match impaired.decide(now, Response, class, bytes) {
            Verdict::Pass => return Some(outcome),
            Verdict::Hold { delay, error } => {
                let answer = Answer { outcome, error: error.filter(|_| outcome == Outcome::Success) };
                if delay.is_zero() {
                    return Some(self.take_answer(now, id, tag, answer));
                }
                self.timers.set(now, delay, Due::Answer(id, tag, answer));
            }
            Verdict::Stall => impaired.answers.push_back((tag, outcome)),
        }
        self.set_answered(id, tag, true);
        None
    }

    /// The time of an answer has come.
    pub(super) fn answer_due(&mut self, now: Instant, id: PathId, tag: Tag, answer: Answer) {
        self.set_answered(id, tag, false);
        let outcome = self.take_answer(now, id, tag, answer);
        self.end_attempt(now, id, tag, outcome, true);
    }

    fn take_answer(&mut self, now: Instant, id: PathId, tag: Tag, answer: Answer) -> Outcome {
        let Some(error) = answer.error else {
            return answer.outcome;
        };
        // It was executed: the controller's cache may hold it, whatever the guest is told.
        let request = &self.requests[tag];
        if let Some(life) = request.dirties.filter(|_| !self.has_legs(tag)) {
            self.disks[request.io.disk.index()].dirty.mark(now, id, life);
        }
        error
    }

    fn set_answered(&mut self, id: PathId, tag: Tag, answered: bool) {
        if self.has_legs(tag) {
            self.set_leg_answered(id, tag, answered);
            return;
        }
        let (from, to) = if answered { (State::InFlight, State::Answered) } else { (State::Answered, State::InFlight) };
        let request = &mut self.requests[tag];
        assert_eq!((request.state, request.path), (from, id), "a completion answers an issue");
        request.state = to;
    }

    /// Takes back a request that is held, not by the driver.
    pub(super) fn recall_held(&mut self, now: Instant, id: PathId, tag: Tag) {
        let (class, issued_at) = (self.requests[tag].io.op.class(), self.requests[tag].issued_at);
        let path = &mut self.paths[id.index()];
        let impaired = path.impaired.as_mut().expect("only an injection holds requests");
        if impaired.is_stalled(tag) {
            let ages_from = &mut impaired.stalled_ghosts[class.index()];
            *ages_from = Some(ages_from.map_or(issued_at, |older| older.min(issued_at)));
        }
        impaired.stalled.retain(|other| *other != tag);
        impaired.answers.retain(|(other, _)| *other != tag);
        impaired.ghosts[class.index()] += 1;
        self.timers.make_ghost(id, tag, class);
        let request = &mut self.requests[tag];
        (request.recalled, request.state) = (true, State::InFlight);
        self.end_attempt(now, id, tag, Outcome::Recalled { abandoned: true }, true);
    }

    /// The path would have answered now what was recalled.
    pub(super) fn ghost_due(&mut self, now: Instant, id: PathId, class: OpClass) {
        let path = &mut self.paths[id.index()];
        let impaired = path.impaired.as_mut().expect("only an injection leaves ghosts");
        impaired.ghosts[class.index()] -= 1;
        path.watch.progress(now, 1);
        self.watch_changed(now, id);
    }

    /// The association is over, and with it what an injection had kept from passing: answers are lost, and what was not sent
    /// goes elsewhere.
    pub(super) fn lose_held(&mut self, now: Instant, id: PathId) {
        let Some(impaired) = &mut self.paths[id.index()].impaired else {
            return;
        };
        (impaired.ghosts, impaired.stalled_ghosts) = ([0; 3], [None; 3]);
        let stalled = std::mem::take(&mut impaired.stalled);
        let mut answers: Vec<Tag> = std::mem::take(&mut impaired.answers).into_iter().map(|(tag, _)| tag).collect();
        self.timers.forget_ghosts(id, |_| true);
        answers.extend(self.timers.take_answers(id));
        for tag in answers.into_iter().rev() {
            self.set_answered(id, tag, false);
            self.end_attempt(now, id, tag, Outcome::Lost { indeterminate: true }, false);
        }
        for tag in stalled.into_iter().rev() {
            if self.has_legs(tag) {
                self.take_back_leg(id, tag);
            } else {
                // No failover, as it was never sent; but the guest has waited for it.
                let request = &mut self.requests[tag];
                request.moving_since.get_or_insert(request.bound_at);
                self.unbind(tag);
                self.requeue(now, tag);
            }
        }
    }
}
