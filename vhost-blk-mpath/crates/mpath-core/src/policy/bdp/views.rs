//! Views: the room of each path for one more request, and the time of its answer. They are kept from one request to the next.

use std::fmt;

use monotonic::{Duration, Instant};

use super::slowdown::not_late_for;
use super::{EstimateNow, LOOK_AGAIN, PathState, in_flight, size_of};
use crate::policy::{Candidate, Query};
use crate::{MAX_PATHS, PathId};

/// A candidate's room and its expected times.
#[derive(Clone, Copy, Default)]
pub(super) struct View {
    pub(super) in_flight: f64,
    /// Bytes that it has room for; none if at most zero.
    pub(super) room: f64,
    /// Bytes per second for one more request.
    pub(super) useful: f64,
    /// When one more request would be answered, s from now.
    pub(super) answered_in_s: f64,
}

/// The basis of views, besides the content of the path: the estimate of its class, for requests of one size.
#[derive(Clone, Copy, Default)]
struct Terms {
    /// See [`super::estimator::Estimator::version`]. 0: no terms.
    version: u64,
    /// Bytes of the request, and the mean size of requests.
    of: (u32, f64),
    /// Bytes that may be in flight, without the oldest request.
    window: f64,
    /// Seconds, and bytes per second.
    delay: f64,
    rate: f64,
    /// The path is not silent for this long, whatever it holds.
    quiet: Duration,
}

/// The last view of a path, and its terms.
#[derive(Clone, Copy, Default)]
struct Kept {
    view: View,
    /// See [`Candidate::version`]. 0: the view counts only once.
    version: u64,
    /// Until when the view counts at most.
    until: Option<Instant>,
    terms: Terms,
}

/// The last views of the paths of one class.
#[derive(Clone)]
pub(super) struct Views(Vec<Kept>);

impl Default for Views {
    fn default() -> Self {
        Self(vec![Kept::default(); MAX_PATHS])
    }
}

/// Empty: views follow from the rest.
impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Views").finish_non_exhaustive()
    }
}

impl Views {
    /// Forgets the view of a path whose estimates begin again, and count their versions anew.
    pub(super) fn forget(&mut self, path: PathId) {
        self.0[path.index()] = Kept::default();
    }

    /// The view of a path that [`Views::look`] has returned last.
    #[inline]
    pub(super) fn last(&self, path: PathId) -> &View {
        &self.0[path.index()].view
    }

    /// The view of a candidate with room: the last one if it still counts.
    #[inline]
    pub(super) fn look(
        &mut self,
        state: &PathState,
        gain: f64,
        query: &Query,
        candidate: &Candidate,
        unit: f64,
    ) -> &View {
        let kept = &mut self.0[candidate.path.index()];
        let own = &state.classes[query.class.index()];
        if kept.terms.version != own.version() || kept.terms.of != (query.bytes, unit) {
            kept.version = 0;
            kept.terms = Terms::new(state, gain, query, unit);
        }
        let is_kept = kept.version == candidate.version && kept.version != 0;
        if is_kept && kept.until.is_none_or(|until| query.now < until) {
            return &kept.view;
        }
        let since = silent_since(state, query, candidate);
        let until = since.map(|since| since + kept.terms.quiet);
        if kept.terms.version != 0 && until.is_none_or(|until| query.now < until) {
            (kept.view, kept.version, kept.until) = (kept.terms.view(candidate), candidate.version, until);
        } else {
            let (view, until) = view(state, gain, query, candidate, unit);
            (kept.view, kept.until) = (view, until);
            kept.version = if kept.terms.version != 0 && until.is_some() { candidate.version } else { 0 };
        }
        &kept.view
    }
}

impl Terms {
    #[inline(never)]
    fn new(state: &PathState, gain: f64, query: &Query, unit: f64) -> Self {
        let own = &state.classes[query.class.index()];
        let Some((delay, rate)) = own.known() else { return Self::default() };
        let (window, rate) = (own.window(gain, unit), finite(rate, delay, size_of(query.bytes)));
        let of = (query.bytes, unit);
        Self { version: own.version(), of, window, delay, rate, quiet: not_late_for(delay) }
    }

    /// The view of a candidate with room that is not silent.
    #[inline]
    fn view(&self, candidate: &Candidate) -> View {
        let (in_flight, size) = (in_flight(candidate.of_class), size_of(self.of.0));
        let room = candidate.oldest.map_or(f64::INFINITY, |oldest| self.window - (in_flight - size_of(oldest.bytes)));
        View::new(in_flight, room, size, self.delay, self.rate)
    }
}

impl View {
    #[inline]
    fn new(in_flight: f64, room: f64, size: f64, delay: f64, rate: f64) -> Self {
        let (useful, answered_in_s) = (size.min(room) / (delay + size / rate), delay + (in_flight + size) / rate);
        Self { in_flight, room, useful, answered_in_s }
    }
}

/// The view of any candidate for a request, and until when it counts at most; `None`: the path is silent, or owes nothing.
pub(super) fn view(
    state: &PathState,
    gain: f64,
    query: &Query,
    candidate: &Candidate,
    unit: f64,
) -> (View, Option<Instant>) {
    let own = &state.classes[query.class.index()];
    let in_flight = in_flight(candidate.of_class);
    let size = size_of(query.bytes);
    let room = match candidate.oldest {
        _ if !candidate.has_room => 0.0,
        None => f64::INFINITY,
        Some(oldest) => own.window(gain, unit) - (in_flight - size_of(oldest.bytes)),
    };
    let estimate = state.estimate_now(query, candidate).unwrap_or(EstimateNow::UNKNOWN);
    let EstimateNow { delay, rate, is_silent, quiet_until } = estimate;
    // A window that is full of lost requests never empties. A request now and then shows that they are lost.
    let rested = || state.probes.bound_at(query.class).is_none_or(|at| query.now - at >= LOOK_AGAIN);
    let room = if candidate.has_room && is_silent && rested() { room.max(size) } else { room };
    (View::new(in_flight, room, size, delay, finite(rate, delay, size)), quiet_until.filter(|_| !is_silent))
}

/// Since when a path has been silent that owes answers.
#[inline]
pub(super) fn silent_since(state: &PathState, query: &Query, candidate: &Candidate) -> Option<Instant> {
    let answered_at = state.answered_at[query.class.index()];
    candidate.oldest.map(|oldest| answered_at.map_or(oldest.bound_at, |at| at.max(oldest.bound_at)))
}

/// Before the first rate is known, requests in flight still distinguish the paths.
fn finite(rate: f64, delay: f64, size: f64) -> f64 {
    if rate.is_finite() { rate } else { 8.0 * size / delay.max(1e-6) }
}
