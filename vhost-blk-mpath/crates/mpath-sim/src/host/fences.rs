//! The fences of associations that have ended, as `vhost-blk-mpath/src/fence.rs` and `cross_reset.rs` have them: by time or by
//! a cross-controller reset on another path, whichever comes first. And the record of associations for the daemon that follows.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use mpath_core::{Epoch, PathId};
use nvme_tcp::host::{ControllerInfo, CrossResetOutcome};
use nvme_tcp::wire::ControllerInstance;

use super::earliest;
use crate::clock::Event;
use crate::target::Ctx;

/// How many requests a path keeps while its controller is busy with one.
const WAITING_MAX: usize = 64;
/// How long one controller may take before another one is asked.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// A process is gone for others a moment before the kernel has closed all of its sockets.
pub(super) const EXIT_MAX: Duration = Duration::from_millis(500);

/// Names a fence.
type Association = (PathId, Epoch);

/// What survives the daemon, as `vhost-blk-mpath/src/fence_record.rs` has it: how long the fence of each association takes.
#[derive(Debug, Default)]
pub(crate) struct FenceRecord {
    inherited: Vec<Duration>,
    own: BTreeMap<Association, Duration>,
}

impl FenceRecord {
    /// Another daemon opens it: how long that one has to wait.
    pub(crate) fn inherit(&mut self) -> Duration {
        self.inherited.extend(std::mem::take(&mut self.own).into_values());
        self.inherited.iter().max().map_or(Duration::ZERO, |longest| *longest + EXIT_MAX)
    }

    pub(super) fn add(&mut self, path: PathId, epoch: Epoch, fence: Duration) {
        self.own.insert((path, epoch), fence);
    }

    /// The daemon that follows finds that the one before was killed.
    pub(super) fn is_of_a_crash(&self) -> bool {
        !self.inherited.is_empty()
    }

    pub(crate) fn remove_inherited(&mut self) {
        self.inherited.clear();
    }
}

/// What a live association's controller is asked.
#[derive(Debug)]
struct Offer {
    epoch: Epoch,
    waiting: VecDeque<(Association, ControllerInstance)>,
    /// Whom the controller's answer is for.
    under_way: Option<Association>,
}

#[derive(Debug)]
struct Fence {
    of: Association,
    lifts_at: Instant,
    /// The controller to be reset, if it can be named.
    instance: Option<ControllerInstance>,
    /// By path: the latest association that was asked.
    asked: Vec<Option<Epoch>>,
    /// Whose answer is waited for, and until when.
    asking: Option<(PathId, Instant)>,
}

#[derive(Debug)]
pub(crate) struct Fences {
    pub(crate) record: FenceRecord,
    /// By path.
    offers: Vec<Option<Offer>>,
    held: Vec<Fence>,
    wake_at: Option<Instant>,
}

/// What a look at the fences has led to.
#[derive(Debug, Default)]
pub(super) struct Fenced {
    pub(super) lifted: Vec<Association>,
    /// Paths that have something to ask their controllers.
    pub(super) asked: Vec<PathId>,
}

impl Fences {
    pub(super) fn new(paths: usize, record: FenceRecord) -> Self {
        Self { record, offers: (0..paths).map(|_| None).collect(), held: Vec::new(), wake_at: None }
    }

    pub(super) fn into_record(self) -> FenceRecord {
        self.record
    }

    /// The sockets of an association are closed.
    pub(super) fn begin(&mut self, now: Instant, path: PathId, epoch: Epoch, info: &ControllerInfo) {
        let (lifts_at, instance) = (now + info.fence_time(), info.instance());
        let asked = vec![None; self.offers.len()];
        self.held.push(Fence { of: (path, epoch), lifts_at, instance, asked, asking: None });
    }

    /// Whether commands of this path's associations may still be executed.
    pub(super) fn holds(&self, path: PathId) -> bool {
        self.held.iter().any(|fence| fence.of.0 == path)
    }

    /// A live association offers what its controller can do.
    pub(super) fn offer(&mut self, path: PathId, epoch: Epoch, info: &ControllerInfo) {
        let offer = || Offer { epoch, waiting: VecDeque::new(), under_way: None };
        self.offers[usize::from(path.0)] = (info.cross_resets > 0).then(offer);
    }

    /// It is over: whoever asked learns at once that nothing comes of it.
    pub(super) fn withdraw(&mut self, path: PathId) {
        self.offers[usize::from(path.0)] = None;
        self.held.iter_mut().for_each(|fence| fence.asking = fence.asking.filter(|(asked, _)| *asked != path));
    }

    /// The next controller that this path's is to reset; [`answer`](Self::answer) is to follow.
    pub(super) fn next(&mut self, path: PathId) -> Option<ControllerInstance> {
        let held = &self.held;
        let offer = self.offers[usize::from(path.0)].as_mut()?;
        while offer.under_way.is_none()
            && let Some((of, instance)) = offer.waiting.pop_front()
        {
            // Who has another fence by now, or has given up, asks no more.
            let asks = |fence: &Fence| fence.of == of && fence.asking.is_some_and(|(asked, _)| asked == path);
            if held.iter().any(asks) {
                offer.under_way = Some(of);
                return Some(instance);
            }
        }
        None
    }

    /// What has come of it; `None` if the controller was not asked at all.
    pub(super) fn answer(&mut self, ctx: &mut Ctx<'_>, path: PathId, outcome: Option<CrossResetOutcome>) {
        let Some(of) = self.offers[usize::from(path.0)].as_mut().and_then(|offer| offer.under_way.take()) else {
            return;
        };
        let asks = |fence: &&mut Fence| fence.of == of && fence.asking.is_some_and(|(asked, _)| asked == path);
        let Some(fence) = self.held.iter_mut().find(asks) else { return };
        fence.asking = None;
        if outcome == Some(CrossResetOutcome::Done) {
            fence.lifts_at = ctx.clock.now();
            ctx.check.counts.resets += 1;
        }
    }

    /// Lifts what is due, and asks on behalf of the others: each association once.
    pub(super) fn turn(&mut self, ctx: &mut Ctx<'_>) -> Fenced {
        let now = ctx.clock.now();
        let mut fenced = Fenced::default();
        self.held.retain(|fence| {
            let due = fence.lifts_at <= now;
            fenced.lifted.extend(due.then_some(fence.of));
            !due
        });
        self.record.own.retain(|of, _| !fenced.lifted.contains(of));
        for fence in &mut self.held {
            fence.asking = fence.asking.filter(|(_, until)| now < *until);
            let Some(instance) = fence.instance.filter(|_| fence.asking.is_none()) else { continue };
            for ((offer, asked), path) in self.offers.iter_mut().zip(&mut fence.asked).zip((0..).map(PathId)) {
                let Some(offer) = offer.as_mut().filter(|offer| *asked != Some(offer.epoch)) else { continue };
                *asked = Some(offer.epoch);
                if offer.waiting.len() < WAITING_MAX {
                    offer.waiting.push_back((fence.of, instance));
                    fence.asking = Some((path, now + ATTEMPT_MAX));
                    fenced.asked.push(path);
                    break;
                }
            }
        }
        let next = |fence: &Fence| [Some(fence.lifts_at), fence.asking.map(|(_, until)| until)];
        if let Some(at) = earliest(self.held.iter().flat_map(next))
            && self.wake_at.is_none_or(|wake| wake <= now || at < wake)
        {
            self.wake_at = Some(at);
            ctx.clock.at(at, Event::Fences);
        }
        fenced
    }
}
