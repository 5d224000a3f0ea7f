//! Random changes of namespaces: the host knows the right state of each, and events report all changes.

use monotonic::{Duration, Instant};
use proptest::prelude::*;

use super::wanted;
use crate::host::tests::admin::Admin;
use crate::host::{ControllerError, ControllerEvent, ControllerInfo, Namespace, NamespaceError};
use crate::wire::{AnaState, AsyncEvent};

/// The configured namespaces, in order.
const NSIDS: [u32; 3] = [4, 1, 6];
/// Twice ANATT.
const CHANGE_MAX: Duration = Duration::from_secs(20);

/// A namespace of the target.
#[derive(Debug, Clone, Copy)]
struct TargetNamespace {
    blocks: u64,
    group: u32,
}

/// The namespaces and ANA groups of the target.
#[derive(Debug, Clone)]
struct State {
    /// By position.
    namespaces: [Option<TargetNamespace>; 3],
    /// By group ID, from 1. A group may be missing.
    groups: [Option<AnaState>; 2],
}

impl State {
    fn ana(&self, there: TargetNamespace) -> Option<AnaState> {
        self.groups[there.group as usize - 1]
    }

    fn show(&self, admin: &mut Admin) {
        let target = &mut admin.target;
        target.namespaces.clear();
        let there: Vec<_> =
            self.namespaces.iter().zip(NSIDS).filter_map(|(there, nsid)| Some(((*there)?, nsid))).collect();
        for &(TargetNamespace { blocks, group }, nsid) in &there {
            let data = &mut target.namespace(nsid).data;
            (data.nsze, data.anagrpid) = (blocks.into(), group.into());
        }
        target.ana.groups.clear();
        for (id, state) in (1..).zip(self.groups) {
            let Some(state) = state else { continue };
            let nsids = there.iter().filter(|(there, _)| there.group == id).map(|&(_, nsid)| nsid).collect();
            target.ana.groups.push(crate::wire::AnaGroup { id, change_count: 0, state, nsids });
        }
    }
}

/// The expected knowledge of one namespace: blocks and state, or why it is unusable.
type Known = Result<(u64, AnaState), &'static str>;

fn short(namespace: &Result<Namespace, NamespaceError>) -> Known {
    match namespace {
        Ok(Namespace { identity, ana }) => Ok((identity.blocks, *ana)),
        Err(NamespaceError::Missing { .. }) => Err("missing"),
        Err(NamespaceError::AnaGroupMissing { .. }) => Err("no group"),
        Err(NamespaceError::AnaTransition { .. }) => Err("stuck"),
        Err(other) => panic!("{other}"),
    }
}

fn known(info: &ControllerInfo) -> Vec<Known> {
    info.namespaces.iter().map(short).collect()
}

/// The model of the host's knowledge of a namespace.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// From the last identification.
    identity: Option<TargetNamespace>,
    /// From the last log.
    ana: Option<AnaState>,
    change_since: Option<Instant>,
}

impl Seen {
    fn see(&mut self, now: Instant, state: &State, position: usize, identify: bool) {
        let there = state.namespaces[position];
        if identify {
            self.identity = there;
        }
        // The log lists the existing namespaces, unless it lacks their groups. Then they are asked for their groups.
        let listed = there.and_then(|there| state.ana(there));
        if let (Some(identity), Some(there), None) = (&mut self.identity, there, listed) {
            identity.group = there.group;
        }
        self.ana = self.identity.and_then(|identity| listed.or(state.ana(identity)));
        let change = self.ana == Some(AnaState::Change);
        self.change_since = if change { Some(self.change_since.unwrap_or(now)) } else { None };
    }

    fn known(&self, now: Instant) -> Known {
        let TargetNamespace { blocks, .. } = self.identity.ok_or("missing")?;
        let ana = self.ana.ok_or("no group")?;
        let stuck = self.change_since.is_some_and(|since| now - since >= CHANGE_MAX);
        if stuck { Err("stuck") } else { Ok((blocks, ana)) }
    }
}

#[derive(Debug)]
struct Model([Seen; 3]);

impl Model {
    fn see(&mut self, now: Instant, state: &State, identify: bool) {
        self.0.iter_mut().enumerate().for_each(|(position, seen)| seen.see(now, state, position, identify));
    }

    fn known(&self, now: Instant) -> Vec<Known> {
        self.0.iter().map(|seen| seen.known(now)).collect()
    }
}

/// A step of the test: the target changes and sends an event, and time passes.
type Turn = (State, bool, u64);

fn any_state() -> impl Strategy<Value = State> {
    let there = (1u64..4, 1u32..=2).prop_map(|(blocks, group)| TargetNamespace { blocks, group });
    let there = prop_oneof![2 => there.prop_map(Some), 1 => Just(None)];
    let ana = prop_oneof![
        2 => Just(Some(AnaState::Change)),
        1 => Just(Some(AnaState::Optimized)),
        1 => Just(Some(AnaState::Inaccessible)),
        1 => Just(Some(AnaState::PersistentLoss)),
        1 => Just(None),
    ];
    let (namespaces, groups) = (proptest::array::uniform3(there), proptest::array::uniform2(ana));
    (namespaces, groups).prop_map(|(namespaces, groups)| State { namespaces, groups })
}

fn any_turn() -> impl Strategy<Value = Turn> {
    (any_state(), any::<bool>(), prop_oneof![Just(0u64), 0u64..25])
}

/// Applies the events of a step. Afterwards they must match the host's knowledge.
fn follow(admin: &mut Admin, reported: &mut [Known]) {
    while let Some(event) = admin.event() {
        match event {
            ControllerEvent::AnaChanged { namespace, state } => {
                let (_, ana) = reported[namespace].as_mut().expect("only usable ones have a state");
                *ana = state;
            }
            ControllerEvent::NamespaceChanged { namespace, identity } => {
                let ana = reported[namespace].map_or(AnaState::PersistentLoss, |(_, ana)| ana);
                reported[namespace] = short(&identity.map(|identity| Namespace { identity, ana }));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(reported, known(admin.host.info().unwrap()));
}

proptest! {
    #[test]
    fn what_is_known_is_what_there_is(first in any_state(), turns in proptest::collection::vec(any_turn(), 1..12)) {
        let mut admin = Admin::with(wanted(&NSIDS), |target| target.slow = 0);
        first.show(&mut admin);
        let mut model = Model([Seen { identity: None, ana: None, change_since: None }; 3]);
        model.see(admin.now, &first, true);
        let expected = model.known(admin.now);
        if expected.iter().all(Result::is_err) {
            let ControllerError::Namespace(error) = admin.failure() else { panic!() };
            prop_assert_eq!(short(&Err(error)), expected[0]);
            return Ok(());
        }
        admin.exchange().unwrap();
        let Some(ControllerEvent::Live(info)) = admin.event() else { panic!() };
        prop_assert_eq!(known(&info), &expected[..]);
        let mut reported = expected;
        for (state, identify, seconds) in turns {
            state.show(&mut admin);
            admin.target.report(if identify { AsyncEvent::NAMESPACE_CHANGED } else { AsyncEvent::ANA_CHANGED });
            model.see(admin.now, &state, identify);
            let outcome = admin.exchange();
            let mut expected = model.known(admin.now);
            let mut ends = expected.iter().all(Result::is_err);
            prop_assert_eq!(outcome.is_err(), ends, "{:?} of {:?}", outcome, expected);
            if ends {
                return Ok(());
            }
            follow(&mut admin, &mut reported);
            prop_assert_eq!(&reported, &expected);
            let outcome = admin.pass(Duration::from_secs(seconds));
            expected = model.known(admin.now);
            ends = expected.iter().all(Result::is_err);
            prop_assert_eq!(outcome.is_err(), ends, "{:?} of {:?}", outcome, expected);
            if ends {
                return Ok(());
            }
            follow(&mut admin, &mut reported);
            prop_assert_eq!(&reported, &expected);
        }
    }
}
