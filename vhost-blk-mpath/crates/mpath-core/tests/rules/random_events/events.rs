//! Random events.

use std::num::NonZeroU64;

use monotonic::Duration;
use mpath_core::{
    AnaState, ClassPolicies, Direction, Distribution, Hedging, InjectedError, Injection, IoError, Limits, Op, OpClass,
    Outcome, PolicyKind, PolicySpec, SchedulerKind, SchedulerSpec,
};
use proptest::prelude::*;

use super::{DISKS, FLOWS, PATHS};

/// One random event. Numbers are reduced to what is possible at that moment.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Submit {
        op: Op,
        bytes: u32,
        fua: bool,
        flow: usize,
    },
    /// An issued request is answered.
    Complete {
        which: usize,
        outcome: Outcome,
    },
    /// A recalled request is answered by another outcome than `Recalled`.
    GiveBack {
        which: usize,
        abandoned: bool,
    },
    /// A probe comes back.
    ProbeResult {
        which: usize,
        success: bool,
    },
    /// A hedge comes back.
    Hedged {
        which: usize,
        outcome: Outcome,
    },
    Hedging(Option<Hedging>),
    /// A live path gives a sign of life, and some abandoned requests are answered.
    Progress {
        path: usize,
        answered: u32,
    },
    PathUp {
        path: usize,
        ana: [AnaState; DISKS],
    },
    /// The path is lost with everything on it, after answers that had been received already.
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
        disk: usize,
        ana: AnaState,
    },
    Policy(ClassPolicies),
    Scheduler(SchedulerSpec),
    Limit {
        disk: usize,
        limits: Limits,
    },
    Weight {
        disk: u16,
        weight: u16,
    },
    Inject {
        path: usize,
        class: Option<OpClass>,
        injection: Injection,
    },
    ClearInjection {
        path: usize,
    },
    EndInjection {
        path: usize,
        class: Option<OpClass>,
    },
    Drain {
        path: usize,
        draining: bool,
    },
    /// A draining path is closed in order if it owes nothing.
    Close {
        path: usize,
    },
    Add {
        path: usize,
    },
    /// A path with nothing left is removed. `force`: what is left ends first.
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
        1 => Just(crate::retry(Duration::ZERO)),
        1 => Just(crate::retry(Duration::from_millis(300))),
        1 => Just(Outcome::Failed(IoError::Unsupported)),
    ]
}

/// Any policy, with parameters under which much happens, or two policies.
pub(crate) fn policies() -> impl Strategy<Value = ClassPolicies> {
    let spec = || {
        (0..PolicyKind::ALL.len(), any::<bool>()).prop_map(|(kind, eager)| {
            let kind = PolicyKind::ALL[kind];
            let params: &[(&str, &str)] = match kind {
                PolicyKind::Adaptive if eager => &[("interval", "10ms"), ("credits", "3"), ("shift", "0")],
                PolicyKind::Latency | PolicyKind::LatencyRr if eager => {
                    &[("rehabilitation", "ios"), ("age", "10"), ("burst", "3"), ("memory", "1ms")]
                }
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

/// Any scheduler, with small credits.
fn schedulers() -> impl Strategy<Value = SchedulerSpec> {
    (0..SchedulerKind::ALL.len(), any::<bool>()).prop_map(|(kind, eager)| {
        let kind = SchedulerKind::ALL[kind];
        let params: &[(&str, &str)] = match kind {
            SchedulerKind::BurstCredit if eager => &[("burst", "65536"), ("gap", "1ms")],
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

/// Sometimes with an extreme budget, so that many reads are hedged.
pub(crate) fn hedging() -> impl Strategy<Value = Option<Hedging>> {
    let budget = prop_oneof![Just(1_u16), Just(50), Just(1000)];
    let some = (500..1000_u16, budget)
        .prop_map(|(quantile_permille, budget_permille)| Some(Hedging { quantile_permille, budget_permille }));
    prop_oneof![1 => Just(None), 4 => some]
}

fn class() -> impl Strategy<Value = Option<OpClass>> {
    prop_oneof![3 => Just(None), 1 => (0..3_usize).prop_map(|class| Some(OpClass::ALL[class]))]
}

/// Every kind of impairment, alone and combined.
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
        Just(crate::retry(Duration::ZERO)),
        Just(Outcome::Failed(IoError::Controller)),
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

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let path = || 0..PATHS;
    prop_oneof![
        12 => (op(), prop_oneof![Just(512), Just(4096), Just(1 << 20)], any::<bool>(), 0..FLOWS.len())
            .prop_map(|(op, bytes, fua, flow)| Event::Submit { op, bytes, fua, flow }),
        12 => (any::<usize>(), outcome()).prop_map(|(which, outcome)| Event::Complete { which, outcome }),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(which, abandoned)| Event::GiveBack { which, abandoned }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, success)| Event::ProbeResult { which, success }),
        6 => (any::<usize>(), outcome()).prop_map(|(which, outcome)| Event::Hedged { which, outcome }),
        1 => hedging().prop_map(Event::Hedging),
        2 => (path(), 0..9_u32).prop_map(|(path, answered)| Event::Progress { path, answered }),
        3 => (path(), [ana(), ana()]).prop_map(|(path, ana)| Event::PathUp { path, ana }),
        2 => (path(), 0..3_usize).prop_map(|(path, answered)| Event::PathLost { path, answered }),
        3 => any::<usize>().prop_map(|which| Event::ReportLost { which }),
        2 => any::<usize>().prop_map(|which| Event::FenceLifted { which }),
        1 => (path(), 0..DISKS, ana()).prop_map(|(path, disk, ana)| Event::Ana { path, disk, ana }),
        1 => policies().prop_map(Event::Policy),
        1 => schedulers().prop_map(Event::Scheduler),
        1 => (0..DISKS, limits()).prop_map(|(disk, limits)| Event::Limit { disk, limits }),
        1 => (0..DISKS as u16, 1..1000_u16).prop_map(|(disk, weight)| Event::Weight { disk, weight }),
        2 => (path(), class(), injection())
            .prop_map(|(path, class, injection)| Event::Inject { path, class, injection }),
        2 => path().prop_map(|path| Event::ClearInjection { path }),
        1 => (path(), class()).prop_map(|(path, class)| Event::EndInjection { path, class }),
        2 => (path(), any::<bool>()).prop_map(|(path, draining)| Event::Drain { path, draining }),
        2 => path().prop_map(|path| Event::Close { path }),
        3 => path().prop_map(|path| Event::Add { path }),
        2 => (path(), any::<bool>()).prop_map(|(path, force)| Event::Remove { path, force }),
        5 => prop_oneof![0..300_u64, Just(20_000), Just(700_000)].prop_map(|us| Event::Sleep { us }),
    ]
}
