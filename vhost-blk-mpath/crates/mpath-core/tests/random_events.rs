//! Groups under random events, with a model driver that knows the rules and checks them at every step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpath_core::{
    Action, AnaState, Association, ClassPolicies, Direction, DirtyPaths, Distribution, Epoch, FlowId, Group,
    GroupConfig, Hedging, InjectedError, Injection, Io, IoError, Limits, MAX_HEDGE_BYTES, MAX_PROBE_BYTES, Op, OpClass,
    Outcome, PathConfig, PathId, PolicyKind, PolicySpec, SchedulerKind, SchedulerSpec, Tag, Window,
};
use proptest::prelude::*;

const PATHS: usize = 3;
const FLOWS: u16 = 3;
const QUEUE_DEPTH: u16 = 8;

/// One random event. Numbers are reduced to what is possible at that moment.
#[derive(Clone, Debug)]
enum Event {
    Submit {
        op: Op,
        bytes: u32,
        fua: bool,
        flow: u16,
    },
    /// An issued request is answered.
    Complete {
        which: usize,
        outcome: Outcome,
    },
    /// A recalled request is answered, other than by its outcome.
    GiveBack {
        which: usize,
        abandoned: bool,
    },
    /// A probe comes back.
    Probed {
        which: usize,
        success: bool,
    },
    /// A hedge comes back.
    Hedged {
        which: usize,
        outcome: Outcome,
    },
    Hedging(Option<Hedging>),
    /// A live path gives a sign of life, and some of what was abandoned is answered.
    Progress {
        path: usize,
        answered: u32,
    },
    PathUp {
        path: usize,
        ana: AnaState,
    },
    /// Everything the path holds is lost, after the answers that had been received already.
    PathLost {
        path: usize,
        answered: usize,
    },
    /// The loss of requests on a path that is down is reported late.
    ReportLost {
        which: usize,
    },
    FenceLifted {
        which: usize,
    },
    Ana {
        path: usize,
        ana: AnaState,
    },
    Policy(ClassPolicies),
    Scheduler(SchedulerSpec),
    /// Of a flow, or of all together.
    Limit {
        flow: Option<u16>,
        limits: Limits,
    },
    Inject {
        path: usize,
        class: Option<OpClass>,
        injection: Injection,
    },
    ClearInjection {
        path: usize,
    },
    Drain {
        path: usize,
        draining: bool,
    },
    /// A draining path is closed in order if it owes nothing any more.
    Close {
        path: usize,
    },
    Add {
        path: usize,
    },
    /// A path of which nothing is left goes; by force nothing is left first.
    Remove {
        path: usize,
        force: bool,
    },
    Sleep {
        us: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Read),
        4 => Just(Op::Write),
        1 => Just(Op::Flush),
        1 => Just(Op::WriteZeroes),
        1 => Just(Op::Discard),
    ]
}

fn ana() -> impl Strategy<Value = AnaState> {
    prop_oneof![
        4 => Just(AnaState::Optimized),
        2 => Just(AnaState::NonOptimized),
        1 => Just(AnaState::Inaccessible),
        1 => Just(AnaState::Change),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        12 => Just(Outcome::Success),
        2 => Just(Outcome::PathError),
        1 => Just(Outcome::Retry { after: Duration::ZERO }),
        1 => Just(Outcome::Retry { after: Duration::from_millis(300) }),
        1 => Just(Outcome::Failed(IoError::Unsupported)),
    ]
}

/// Any policy with parameters that make much happen, or two of them.
fn policies() -> impl Strategy<Value = ClassPolicies> {
    let spec = || {
        (0..PolicyKind::ALL.len(), any::<bool>()).prop_map(|(kind, eager)| {
            let kind = PolicyKind::ALL[kind];
            let params: &[(&str, &str)] = match kind {
                PolicyKind::Adaptive if eager => &[("interval", "10ms"), ("credits", "3"), ("shift", "0")],
                PolicyKind::Latency | PolicyKind::LatencyRr if eager => {
                    &[("rehabilitation", "ios"), ("age", "10"), ("burst", "3"), ("memory", "1ms")]
                }
                PolicyKind::ServiceTime if eager => &[("throughput", "1,100,7")],
                _ => &[],
            };
            PolicySpec::new(kind, params.iter().copied()).expect("valid")
        })
    };
    prop_oneof![
        spec().prop_map(ClassPolicies::from),
        (spec(), spec()).prop_map(|(read, write)| ClassPolicies { read, write }),
    ]
}

/// Any scheduler, with credits that are spent soon.
fn schedulers() -> impl Strategy<Value = SchedulerSpec> {
    (0..SchedulerKind::ALL.len(), any::<bool>()).prop_map(|(kind, eager)| {
        let kind = SchedulerKind::ALL[kind];
        let params: &[(&str, &str)] = match kind {
            SchedulerKind::BurstCredit if eager => &[("credit", "2")],
            SchedulerKind::BurstCreditDrr if eager => &[("rho", "0"), ("gap", "1ms"), ("budget", "1ms")],
            _ => &[],
        };
        SchedulerSpec::new(kind, params.iter().copied()).expect("valid")
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    let per_s = |much| prop_oneof![Just(None), Just(NonZeroU64::new(much))];
    (per_s(2000), per_s(100 << 20), 0..20_u64).prop_map(|(iops, bytes_per_s, burst)| Limits {
        iops,
        bytes_per_s,
        burst: Duration::from_millis(burst),
    })
}

/// Sometimes with a budget beyond all reason, so that much is hedged.
fn hedging() -> impl Strategy<Value = Option<Hedging>> {
    let budget = prop_oneof![Just(1_u16), Just(50), Just(1000)];
    let some = (500..1000_u16, budget)
        .prop_map(|(quantile_permille, budget_permille)| Some(Hedging { quantile_permille, budget_permille }));
    prop_oneof![1 => Just(None), 4 => some]
}

fn class() -> impl Strategy<Value = Option<OpClass>> {
    prop_oneof![3 => Just(None), 1 => (0..3_usize).prop_map(|class| Some(OpClass::ALL[class]))]
}

/// Every kind alone and with others.
fn injection() -> impl Strategy<Value = Injection> {
    let ms = || prop_oneof![2 => Just(0), 1 => 1..40_u64].prop_map(Duration::from_millis);
    let distribution = prop_oneof![
        Just(Distribution::Uniform),
        Just(Distribution::Normal),
        Just(Distribution::Exponential),
        Just(Distribution::Pareto),
    ];
    let error = prop_oneof![
        Just(Outcome::PathError),
        Just(Outcome::Retry { after: Duration::ZERO }),
        Just(Outcome::Failed(IoError::Io)),
    ];
    let error = prop_oneof![
        2 => Just(None),
        1 => (prop_oneof![Just(100_000), Just(1_000_000)], error)
            .prop_map(|(per_million, outcome)| Some(InjectedError { per_million, outcome })),
    ];
    let rate = prop_oneof![2 => Just(None), 1 => Just(NonZeroU64::new(10 << 20))];
    let direction = prop_oneof![Just(Direction::Request), Just(Direction::Response)];
    (direction, ms(), ms(), distribution, rate, error, prop::bool::weighted(0.3), any::<u64>()).prop_map(
        |(direction, latency, jitter, distribution, rate, error, stall, seed)| Injection {
            direction,
            latency,
            jitter,
            distribution,
            rate,
            error,
            stall,
            seed,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let path = || 0..PATHS;
    prop_oneof![
        12 => (op(), prop_oneof![Just(512), Just(4096), Just(1 << 20)], any::<bool>(), 0..FLOWS)
            .prop_map(|(op, bytes, fua, flow)| Event::Submit { op, bytes, fua, flow }),
        12 => (any::<usize>(), outcome()).prop_map(|(which, outcome)| Event::Complete { which, outcome }),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(which, abandoned)| Event::GiveBack { which, abandoned }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, success)| Event::Probed { which, success }),
        6 => (any::<usize>(), outcome()).prop_map(|(which, outcome)| Event::Hedged { which, outcome }),
        1 => hedging().prop_map(Event::Hedging),
        2 => (path(), 0..9_u32).prop_map(|(path, answered)| Event::Progress { path, answered }),
        3 => (path(), ana()).prop_map(|(path, ana)| Event::PathUp { path, ana }),
        2 => (path(), 0..3_usize).prop_map(|(path, answered)| Event::PathLost { path, answered }),
        3 => any::<usize>().prop_map(|which| Event::ReportLost { which }),
        2 => any::<usize>().prop_map(|which| Event::FenceLifted { which }),
        1 => (path(), ana()).prop_map(|(path, ana)| Event::Ana { path, ana }),
        1 => policies().prop_map(Event::Policy),
        1 => schedulers().prop_map(Event::Scheduler),
        1 => (prop::option::of(0..FLOWS), limits()).prop_map(|(flow, limits)| Event::Limit { flow, limits }),
        2 => (path(), class(), injection())
            .prop_map(|(path, class, injection)| Event::Inject { path, class, injection }),
        2 => path().prop_map(|path| Event::ClearInjection { path }),
        2 => (path(), any::<bool>()).prop_map(|(path, draining)| Event::Drain { path, draining }),
        2 => path().prop_map(|path| Event::Close { path }),
        3 => path().prop_map(|path| Event::Add { path }),
        2 => (path(), any::<bool>()).prop_map(|(path, force)| Event::Remove { path, force }),
        5 => prop_oneof![0..300_u64, Just(20_000), Just(700_000)].prop_map(|us| Event::Sleep { us }),
    ]
}

/// A request the driver was issued and has not answered.
#[derive(Clone, Copy, Debug)]
struct Issued {
    path: PathId,
    epoch: Epoch,
    tag: Tag,
    recalled: bool,
}

/// A hedge whose memory the driver keeps.
#[derive(Clone, Copy, Debug)]
struct ModelHedge {
    path: PathId,
    epoch: Epoch,
    /// Whether it has the data, once it was answered.
    answered: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ModelPath {
    added: bool,
    live: Option<(Epoch, AnaState)>,
    last_epoch: u64,
    draining: bool,
    /// Upper bound of what is in flight here: issued and not answered.
    ios: u32,
    bytes: u64,
    /// What the queue pair of the live association holds although nobody waits for it.
    abandoned: u32,
    /// A probe of the live association is with the driver.
    probing: bool,
    /// The last sign of life, or the issue of the first of what is owed.
    heard_of: Option<Instant>,
}

struct Driver {
    now: Instant,
    group: Group,
    dirty: Arc<DirtyPaths>,
    window: Window,
    paths: [ModelPath; PATHS],
    /// By path: the group may have waited for longer, as of what an injection holds it has not heard.
    held: [bool; PATHS],
    open: BTreeMap<Tag, Io>,
    issued: Vec<Issued>,
    hedges: BTreeMap<Tag, ModelHedge>,
    hedging: Option<Hedging>,
    /// Hedges that were sent, and what the reads have allowed so far.
    hedged: u64,
    hedged_max_permille: u64,
    /// Open reads whose memory has the data.
    read: BTreeSet<Tag>,
    free: VecDeque<Tag>,
    finished: usize,
    submitted: usize,
    /// Indeterminate requests and the association each of them waits for.
    unfenced: BTreeMap<Tag, (PathId, Epoch)>,
    /// Associations that have ended and whose fence has not been lifted.
    fences: BTreeSet<(PathId, Epoch)>,
    /// What the caches of the controllers hold: per association, how many writes have completed, up to which of them a
    /// flush has succeeded, and up to which of them the guest has been told of their loss.
    completed: BTreeMap<(PathId, Epoch), u64>,
    durable: BTreeMap<(PathId, Epoch), u64>,
    reported: BTreeMap<(PathId, Epoch), u64>,
    /// Per flush command on its way, what it makes durable.
    makes_durable: BTreeMap<(Tag, PathId), u64>,
    /// Per open flush of the guest, what it has to cover.
    owed: BTreeMap<Tag, BTreeMap<(PathId, Epoch), u64>>,
    /// Of an open request, where it was executed last: it has not completed before the guest is told.
    executed: BTreeMap<Tag, (PathId, Epoch)>,
}

fn count<K: Ord>(map: &BTreeMap<K, u64>, key: &K) -> u64 {
    map.get(key).copied().unwrap_or(0)
}

impl Driver {
    fn new(policy: ClassPolicies, window: Window, seed: u64) -> Self {
        let now = Instant::now();
        let config = GroupConfig { policy, window, seed, ..GroupConfig::default() };
        let dirty = Arc::new(DirtyPaths::new());
        let mut group = Group::new(now, config, Arc::clone(&dirty));
        let mut paths = [ModelPath::default(); PATHS];
        // The one between them may come later.
        for id in [0, 2] {
            group.add_path(PathId(id), PathConfig::default());
            paths[usize::from(id)].added = true;
        }
        Self {
            now,
            group,
            dirty,
            window,
            paths,
            held: [false; PATHS],
            open: BTreeMap::new(),
            issued: Vec::new(),
            hedges: BTreeMap::new(),
            hedging: None,
            hedged: 0,
            hedged_max_permille: 0,
            read: BTreeSet::new(),
            free: (0..64).map(Tag).collect(),
            finished: 0,
            submitted: 0,
            unfenced: BTreeMap::new(),
            fences: BTreeSet::new(),
            completed: BTreeMap::new(),
            durable: BTreeMap::new(),
            reported: BTreeMap::new(),
            makes_durable: BTreeMap::new(),
            owed: BTreeMap::new(),
            executed: BTreeMap::new(),
        }
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Submit { op, bytes, fua, flow } => {
                let Some(tag) = self.free.pop_front() else { return };
                let bytes = if matches!(op, Op::Read | Op::Write) { bytes } else { 0 };
                let io = Io { tag, op, bytes, flow: FlowId(flow), fua };
                if op == Op::Flush {
                    self.owed.insert(tag, self.completed.clone());
                }
                self.open.insert(tag, io);
                self.submitted += 1;
                if let Some(hedging) = self.hedging.filter(|_| op == Op::Read) {
                    self.hedged_max_permille += u64::from(hedging.budget_permille);
                }
                self.group.submit(self.now, io);
            }
            Event::Complete { which, outcome } => {
                let live: Vec<usize> = (0..self.issued.len()).filter(|&n| self.is_live(&self.issued[n])).collect();
                if !live.is_empty() {
                    self.answer(live[which % live.len()], outcome);
                }
            }
            Event::GiveBack { which, abandoned } => {
                let recalled: Vec<usize> = (0..self.issued.len()).filter(|&n| self.issued[n].recalled).collect();
                if !recalled.is_empty() {
                    self.answer(recalled[which % recalled.len()], Outcome::Recalled { abandoned });
                }
            }
            Event::Hedged { which, outcome } => self.hedged(which, outcome),
            Event::Hedging(hedging) => self.set_hedging(hedging),
            Event::Probed { which, success } => self.probed(which, success),
            Event::Progress { path, answered } => self.progress(path, answered),
            Event::PathUp { path, ana } => self.path_up(path, ana),
            Event::PathLost { path, answered } => self.path_lost(path, answered),
            Event::ReportLost { which } => self.report_lost(which),
            Event::FenceLifted { which } => {
                let fence = self.fences.iter().nth(which % self.fences.len().max(1)).copied();
                if let Some((path, epoch)) = fence {
                    self.lift_fence(path, epoch);
                }
            }
            Event::Ana { path, ana } => {
                if !self.paths[path].added {
                    return;
                }
                let id = PathId(path as u16);
                if let Some((_, state)) = &mut self.paths[path].live {
                    *state = ana;
                }
                self.group.ana_changed(self.now, id, ana);
            }
            Event::Policy(policies) => self.group.set_policy(policies),
            Event::Scheduler(spec) => self.group.set_scheduler(self.now, spec),
            Event::Limit { flow: None, limits } => self.group.set_limits(self.now, limits),
            Event::Limit { flow: Some(flow), limits } => self.group.set_flow_limits(self.now, FlowId(flow), limits),
            Event::Inject { path, class, injection } => {
                if !self.paths[path].added {
                    return;
                }
                self.held[path] = true;
                self.group.set_injection(self.now, PathId(path as u16), class, injection);
            }
            Event::ClearInjection { path } => {
                if self.paths[path].added {
                    self.clear_injection(path);
                }
            }
            Event::Drain { path, draining } => self.drain(path, draining),
            Event::Close { path } => self.close_if_idle(path),
            Event::Add { path } => self.add(path),
            Event::Remove { path, force } => {
                if force {
                    self.give_up(path);
                }
                self.remove_if_nothing_is_left(path);
            }
            Event::Sleep { us } => self.sleep(Duration::from_micros(us)),
        }
        self.poll();
        self.check();
    }

    /// Afterwards the path holds nothing that the driver has not.
    fn clear_injection(&mut self, path: usize) {
        let id = PathId(path as u16);
        self.group.clear_injection(self.now, id);
        assert!(self.group.injections().all(|(of, ..)| of != id));
        self.poll();
        let live = self.paths[path].live.map(|(epoch, _)| epoch);
        if let Some(stats) = self.group.stats(self.now).path(id) {
            let in_flight: u64 = stats.classes.iter().map(|class| class.in_flight).sum();
            let issued = self.issued.iter().filter(|issued| issued.path == id).count() as u64;
            assert_eq!(in_flight, issued, "held by nothing: {live:?}");
        }
    }

    fn path(&mut self, id: PathId) -> &mut ModelPath {
        &mut self.paths[usize::from(id.0)]
    }

    fn add(&mut self, path: usize) {
        if !std::mem::replace(&mut self.paths[path].added, true) {
            self.group.add_path(PathId(path as u16), PathConfig::default());
        }
    }

    /// Closes a path, reports everything it held as lost and lifts its fences.
    fn give_up(&mut self, path: usize) {
        let id = PathId(path as u16);
        self.path_lost(path, 0);
        while let Some(n) = self.issued.iter().position(|i| i.path == id) {
            self.answer(n, Outcome::Lost { indeterminate: true });
        }
        let fences: Vec<_> = self.fences.iter().copied().filter(|(of, _)| *of == id).collect();
        for (of, epoch) in fences {
            self.lift_fence(of, epoch);
        }
        self.poll();
    }

    /// What can be seen from outside tells whether a path may go. What its cache lost is not forgotten: `finish` checks that.
    fn remove_if_nothing_is_left(&mut self, path: usize) {
        let id = PathId(path as u16);
        let stats = self.group.stats(self.now);
        assert_eq!(stats.path(id).is_some(), self.paths[path].added);
        let Some(stats) = stats.path(id) else { return };
        let in_flight: u64 = stats.classes.iter().map(|class| class.in_flight).sum();
        if self.paths[path].live.is_some() || (in_flight, stats.fenced, stats.flushes_open) != (0, 0, 0) {
            return;
        }
        assert!(self.issued.iter().all(|i| i.path != id) && self.unfenced.values().all(|(of, _)| *of != id));
        // A driver waits for that too; with nothing of it left it would make no difference to the group.
        if self.fences.iter().any(|(of, _)| *of == id) {
            return;
        }
        let last_epoch = self.paths[path].last_epoch;
        self.paths[path] = ModelPath { last_epoch, ..ModelPath::default() };
        self.group.remove_path(id);
    }

    fn path_up(&mut self, path: usize, ana: AnaState) {
        if self.paths[path].live.is_some() || !self.paths[path].added {
            return;
        }
        self.paths[path].last_epoch += 1;
        let epoch = Epoch(self.paths[path].last_epoch);
        self.paths[path].live = Some((epoch, ana));
        // Path 2 has no volatile cache.
        let association = Association { epoch, ana, volatile_write_cache: path != 2, queue_depth: QUEUE_DEPTH };
        (self.paths[path].abandoned, self.paths[path].heard_of) = (0, None);
        self.held[path] = self.group.injections().any(|(id, ..)| id == PathId(path as u16));
        self.group.path_up(self.now, PathId(path as u16), association);
    }

    fn path_lost(&mut self, path: usize, answered: usize) {
        let id = PathId(path as u16);
        let Some((epoch, _)) = self.paths[path].live.take() else { return };
        self.paths[path].probing = false;
        for (tag, _) in self.hedges_on(id) {
            self.leave(tag);
        }
        self.fences.insert((id, epoch));
        self.group.path_lost(self.now, id);
        for _ in 0..answered {
            if let Some(n) = self.issued.iter().position(|i| (i.path, i.epoch) == (id, epoch)) {
                self.answer(n, Outcome::Success);
            }
        }
    }

    fn drain(&mut self, path: usize, draining: bool) {
        if !self.paths[path].added {
            return;
        }
        self.paths[path].draining = draining;
        self.group.set_draining(self.now, PathId(path as u16), draining);
    }

    /// What looks idle and clean from outside has nothing to lose.
    fn close_if_idle(&mut self, path: usize) {
        let id = PathId(path as u16);
        let stats = self.group.stats(self.now);
        let Some(stats) = stats.path(id) else { return };
        assert_eq!(stats.draining, self.paths[path].draining);
        let in_flight: u64 = stats.classes.iter().map(|class| class.in_flight).sum();
        let idle = in_flight == 0 && stats.flushes_open == 0 && !self.dirty.is_dirty(id);
        let Some((epoch, _)) = self.paths[path].live.filter(|_| idle && self.paths[path].draining) else { return };
        assert!(self.issued.iter().all(|i| (i.path, i.epoch) != (id, epoch)), "idle, and yet something is in flight");
        let association = (id, epoch);
        assert_eq!(
            count(&self.completed, &association),
            count(&self.durable, &association),
            "clean, and yet unflushed"
        );
        self.path_lost(path, 0);
    }

    fn set_hedging(&mut self, hedging: Option<Hedging>) {
        self.hedging = hedging;
        self.group.set_hedging(hedging);
    }

    /// So many reads of the usual sizes, one after the other, that it is known how long they take.
    fn learn(&mut self) {
        for path in [0, 2] {
            self.path_up(path, AnaState::Optimized);
        }
        for n in 0..220 {
            let bytes = [512, 4096][n % 2];
            self.apply(&Event::Submit { op: Op::Read, bytes, fua: false, flow: 0 });
            self.sleep(Duration::from_micros(100 + 50 * (n as u64 % 7)));
            while !self.issued.is_empty() {
                self.answer(0, Outcome::Success);
                self.poll();
            }
            self.probed(0, true);
        }
    }

    /// The hedges on the sockets of a path.
    fn hedges_on(&self, id: PathId) -> Vec<(Tag, ModelHedge)> {
        let all = self.hedges.iter().map(|(tag, hedge)| (*tag, *hedge));
        all.filter(|(_, hedge)| hedge.path == id && self.is_on_path(hedge)).collect()
    }

    fn is_on_path(&self, hedge: &ModelHedge) -> bool {
        let live = self.paths[usize::from(hedge.path.0)].live;
        hedge.answered.is_none() && live.is_none_or(|(epoch, _)| epoch == hedge.epoch)
    }

    fn hedge(&mut self, id: PathId, tag: Tag) {
        let io = self.open[&tag];
        assert!(io.op == Op::Read && io.bytes <= MAX_HEDGE_BYTES, "{io:?} is hedged");
        assert!(self.issued.iter().all(|i| i.tag != tag || i.path != id), "hedged by the path that it is on");
        self.hedged += 1;
        assert!(self.hedged * 1000 <= self.hedged_max_permille + 8000, "beyond the budget");
        self.take_room(id, io);
        let (epoch, _) = self.path(id).live.expect("a live path");
        let before = self.hedges.insert(tag, ModelHedge { path: id, epoch, answered: None });
        assert!(before.is_none() && self.hedges.len() <= 8, "one a read, and eight in all");
    }

    fn hedged(&mut self, which: usize, outcome: Outcome) {
        let out: Vec<Tag> = self.hedges.iter().filter(|(_, h)| h.answered.is_none()).map(|(tag, _)| *tag).collect();
        let Some(&tag) = out.get(which % out.len().max(1)) else { return };
        let hedge = self.hedges[&tag];
        if self.path(hedge.path).live.is_some_and(|(epoch, _)| epoch == hedge.epoch) {
            self.leave(tag);
            self.path(hedge.path).heard_of = Some(self.now);
            self.hedges.get_mut(&tag).expect("just seen").answered = Some(outcome == Outcome::Success);
            self.group.hedged(self.now, hedge.path, tag, outcome);
        }
    }

    /// The hedge of this read is on its path no longer.
    fn leave(&mut self, tag: Tag) {
        let (id, bytes) = (self.hedges[&tag].path, self.open[&tag].bytes);
        let path = self.path(id);
        path.ios -= 1;
        path.bytes -= u64::from(bytes);
    }

    fn drop_hedge(&mut self, id: PathId, tag: Tag) {
        let hedge = self.hedges[&tag];
        assert_eq!(hedge.path, id);
        if hedge.answered.is_none() && self.path(id).live.is_some_and(|(epoch, _)| epoch == hedge.epoch) {
            self.leave(tag);
            let abandoned = self.hedged.is_multiple_of(2);
            self.path(id).abandoned += u32::from(abandoned);
            self.group.hedged(self.now, id, tag, Outcome::Recalled { abandoned });
        }
        self.hedges.remove(&tag);
    }

    fn adopt(&mut self, id: PathId, tag: Tag) {
        let hedge = self.hedges.remove(&tag).expect("only a hedge is adopted");
        assert_eq!((hedge.path, hedge.answered), (id, Some(true)));
        assert!(self.issued.iter().all(|i| i.tag != tag), "a path may still write to the memory of {tag:?}");
        self.read.insert(tag);
    }

    fn probe(&mut self, id: PathId, bytes: u32) {
        assert!((512..=MAX_PROBE_BYTES).contains(&bytes) && bytes.is_multiple_of(512));
        let path = self.path(id);
        let (_, ana) = path.live.expect("a live path is probed");
        assert!(ana.is_selectable() && !path.draining, "nothing new for {path:?}");
        assert!(!std::mem::replace(&mut path.probing, true), "one probe at a time");
        assert!(path.ios + path.abandoned < QUEUE_DEPTH.into(), "the queue pair is full");
    }

    fn probed(&mut self, which: usize, success: bool) {
        let probing: Vec<usize> = (0..PATHS).filter(|&path| self.paths[path].probing).collect();
        if !probing.is_empty() {
            let path = probing[which % probing.len()];
            self.paths[path].probing = false;
            self.group.probed(self.now, PathId(path as u16), success);
        }
    }

    fn progress(&mut self, path: usize, answered: u32) {
        let state = &mut self.paths[path];
        if state.live.is_some() {
            let answered = answered.min(state.abandoned);
            state.abandoned -= answered;
            state.heard_of = Some(self.now);
            self.group.progress(self.now, PathId(path as u16), answered);
        }
    }

    fn report_lost(&mut self, which: usize) {
        let lost: Vec<usize> = (0..self.issued.len()).filter(|&n| !self.is_live(&self.issued[n])).collect();
        if !lost.is_empty() {
            // Every third one had not been sent yet.
            self.answer(lost[which % lost.len()], Outcome::Lost { indeterminate: !which.is_multiple_of(3) });
        }
    }

    fn lift_fence(&mut self, path: PathId, epoch: Epoch) {
        self.fences.remove(&(path, epoch));
        self.unfenced.retain(|_, waits_for| *waits_for != (path, epoch));
        self.group.fence_lifted(self.now, path, epoch);
    }

    /// Answers `issued[n]`.
    fn answer(&mut self, n: usize, outcome: Outcome) {
        let Issued { path, epoch, tag, .. } = self.issued.remove(n);
        let io = self.open[&tag];
        let now = self.now;
        let state = self.path(path);
        state.ios -= 1;
        state.bytes -= u64::from(io.bytes);
        if state.live.is_some_and(|(live, _)| live == epoch) {
            match outcome {
                Outcome::Recalled { abandoned } => state.abandoned += u32::from(abandoned),
                Outcome::Lost { .. } => {}
                _ => state.heard_of = Some(now),
            }
        }
        let association = (path, epoch);
        match outcome {
            Outcome::Success if io.op == Op::Read => drop(self.read.insert(tag)),
            // Whatever an earlier attempt did whose answer was kept from the group: this is the one that counts.
            Outcome::Success if io.op.is_mutating() => {
                self.executed.remove(&tag);
                if !io.fua && path != PathId(2) {
                    self.executed.insert(tag, association);
                }
            }
            Outcome::Success if io.op == Op::Flush => {
                let durable = self.durable.entry(association).or_default();
                *durable = self.makes_durable[&(tag, path)].max(*durable);
            }
            Outcome::Lost { indeterminate: true } if io.op.is_mutating() && self.fences.contains(&association) => {
                self.unfenced.insert(tag, association);
            }
            _ => {}
        }
        self.group.complete(self.now, path, tag, outcome);
    }

    fn sleep(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..100_000 {
            self.poll();
            match self.group.next_timeout() {
                Some(at) if at <= end => {
                    assert!(at > self.now, "a timeout in the past would spin");
                    self.now = at;
                    self.group.handle_timeout(at);
                }
                _ => {
                    self.now = end;
                    return;
                }
            }
        }
        panic!("the group spins");
    }

    fn poll(&mut self) {
        while let Some(action) = self.group.poll_action(self.now) {
            match action {
                Action::Issue { path, tag } => self.issue(path, tag),
                Action::Recall { path, tag } => self.recall(path, tag),
                Action::Hedge { path, tag } => self.hedge(path, tag),
                Action::DropHedge { path, tag } => self.drop_hedge(path, tag),
                Action::Adopt { path, tag } => self.adopt(path, tag),
                Action::Probe { path, bytes } => self.probe(path, bytes),
                Action::Finish { tag, result } => self.finish(tag, result),
            }
        }
    }

    fn issue(&mut self, id: PathId, tag: Tag) {
        let io = *self.open.get(&tag).expect("an open request");
        self.read.remove(&tag);
        assert!(!self.unfenced.contains_key(&tag), "{io:?} is sent again before its fence");
        let again = self.issued.iter().any(|i| i.tag == tag && (io.op != Op::Flush || i.path == id));
        assert!(!again, "{io:?} is sent twice");
        self.take_room(id, io);
        let (epoch, _) = self.path(id).live.expect("a live path");
        if io.op == Op::Flush {
            self.makes_durable.insert((tag, id), count(&self.completed, &(id, epoch)));
        }
        self.issued.push(Issued { path: id, epoch, tag, recalled: false });
    }

    /// A command is sent on a path.
    fn take_room(&mut self, id: PathId, io: Io) {
        let (now, window) = (self.now, self.window);
        let owes = self.issued.iter().any(|i| i.path == id && self.is_live(i)) || !self.hedges_on(id).is_empty();
        let path = self.path(id);
        if !owes && path.abandoned == 0 {
            path.heard_of = Some(now);
        }
        let held = path.ios + path.abandoned + u32::from(path.probing);
        assert!(held < QUEUE_DEPTH.into(), "the queue pair is full");
        let (_, ana) = path.live.expect("a live path");
        assert!(ana.is_selectable());
        assert!(!path.draining || io.op == Op::Flush, "{io:?} is sent on a draining path");
        path.ios += 1;
        path.bytes += u64::from(io.bytes);
        let fits = path.ios <= window.ios && path.bytes <= window.bytes;
        assert!(fits || path.ios == 1, "{path:?} exceeds {window:?}");
    }

    fn recall(&mut self, id: PathId, tag: Tag) {
        let now = self.now;
        let n =
            self.issued.iter().position(|i| (i.path, i.tag) == (id, tag)).expect("only what was issued is recalled");
        assert!(self.is_live(&self.issued[n]), "a lost path gives everything back by itself");
        assert_eq!(self.open[&tag].op, Op::Read);
        assert!(!std::mem::replace(&mut self.issued[n].recalled, true), "recalled twice");
        if self.hedges.get(&tag).is_some_and(|hedge| hedge.answered == Some(true)) {
            return;
        }
        let silence = now - self.path(id).heard_of.expect("it was given something");
        assert!(self.held[usize::from(id.0)] || silence >= Duration::from_millis(100), "recalled after {silence:?}");
        let elsewhere = (0..)
            .zip(&self.paths)
            .filter(|(other, path)| PathId(*other) != id && !path.draining)
            .any(|(_, path)| path.live.is_some_and(|(_, ana)| ana.is_selectable()));
        assert!(elsewhere, "there is nowhere else to go");
    }

    fn finish(&mut self, tag: Tag, result: Result<(), IoError>) {
        let io = self.open.remove(&tag).expect("an open request, finished for the first time");
        assert!(self.issued.iter().all(|i| i.tag != tag), "{io:?} is still with the driver");
        assert!(!self.unfenced.contains_key(&tag), "{io:?} ends before its fence");
        assert!(!self.hedges.contains_key(&tag), "{io:?} ends before its hedge");
        let read = self.read.remove(&tag);
        assert!(io.op != Op::Read || result.is_err() || read, "{io:?} has no data");
        self.finished += 1;
        if let Some(association) = self.executed.remove(&tag).filter(|_| result.is_ok()) {
            *self.completed.entry(association).or_default() += 1;
        }
        for (association, writes) in self.owed.remove(&tag).into_iter().flatten() {
            let (id, epoch) = association;
            if result.is_ok() {
                let settled = count(&self.durable, &association).max(count(&self.reported, &association));
                assert!(settled >= writes, "silent loss: {association:?} completed {writes}, durable {settled}");
            } else if self.path(id).live.is_none_or(|(live, _)| live != epoch) {
                let reported = self.reported.entry(association).or_default();
                *reported = writes.max(*reported);
            }
        }
        self.free.push_back(tag);
    }

    fn check(&self) {
        assert_eq!(self.group.open(), self.open.len());
    }

    /// All paths are back, all fences are lifted, everything succeeds from now on.
    fn settle(&mut self) {
        while !self.issued.is_empty() && self.issued.iter().any(|i| !self.is_live(i)) {
            self.report_lost(1);
        }
        for path in 0..PATHS {
            self.clear_injection(path);
        }
        for (path, epoch) in std::mem::take(&mut self.fences) {
            self.lift_fence(path, epoch);
        }
        for path in 0..PATHS {
            self.add(path);
            self.drain(path, false);
            self.path_up(path, AnaState::Optimized);
            self.progress(path, u32::MAX);
            self.apply(&Event::Ana { path, ana: AnaState::Optimized });
        }
        for _ in 0..10_000 {
            self.poll();
            if self.open.is_empty() {
                break;
            }
            self.hedged(0, Outcome::Success);
            self.poll();
            if self.open.is_empty() {
                break;
            }
            if self.issued.is_empty() {
                let at = self.group.next_timeout().expect("something to wait for while requests are open");
                self.sleep(at - self.now);
            } else {
                self.answer(0, Outcome::Success);
            }
        }
        assert!(self.open.is_empty(), "lost: {:?}", self.open);
        assert_eq!(self.finished, self.submitted);
        assert!(self.hedges.is_empty());
        // What is wanted of probes on an idle disk comes to an end.
        for _ in 0..100 {
            self.probed(0, true);
            self.poll();
            if let Some(at) = self.group.next_timeout() {
                self.sleep(at - self.now);
            }
        }
        assert!(self.paths.iter().all(|path| !path.probing), "an idle disk is not probed for ever");
        assert_eq!(self.group.next_timeout(), None, "nothing is left to do");
        let stats = self.group.stats(self.now);
        assert_eq!((stats.queued, stats.backoff), (0, 0));
        assert!(stats.scheduler.flows.iter().all(|flow| flow.queued + flow.outstanding == 0));
        for path in &stats.paths {
            assert_eq!((path.fenced, path.flushes_open), (0, 0));
            assert!(path.classes.iter().all(|class| class.in_flight == 0));
        }
    }

    fn is_live(&self, issued: &Issued) -> bool {
        self.paths[usize::from(issued.path.0)].live.is_some_and(|(epoch, _)| epoch == issued.epoch)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_once_and_no_rule_is_broken(
        policy in policies(),
        ios in 1..6_u32,
        bytes in prop_oneof![Just(1024_u64), Just(16_384), Just(4 << 20)],
        seed: u64,
        hedging in hedging(),
        events in prop::collection::vec(event(), 1..300),
    ) {
        let mut driver = Driver::new(policy, Window { ios, bytes }, seed);
        if hedging.is_some() {
            driver.set_hedging(hedging);
            driver.learn();
        }
        for event in events {
            driver.apply(&event);
        }
        driver.settle();
    }
}
