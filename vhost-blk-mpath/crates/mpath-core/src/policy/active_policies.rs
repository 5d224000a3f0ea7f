//! The policies in force.

use monotonic::Instant;

use super::{ClassPolicies, Policy, PolicySpec};
use crate::{OpClass, PathEstimate, PathId};

/// One policy for all requests, or one for reads and one for other requests.
#[derive(Clone, Debug)]
pub(crate) struct ActivePolicies {
    specs: ClassPolicies,
    policies: Vec<Box<dyn Policy>>,
    seed: u64,
}

impl ActivePolicies {
    pub(crate) fn new(specs: ClassPolicies, seed: u64) -> Self {
        let policies = specs.iter().map(|spec| spec.kind().build(spec, seed)).collect();
        Self { specs, policies, seed }
    }

    pub(crate) fn specs(&self) -> &ClassPolicies {
        &self.specs
    }

    /// Puts these policies into force. A policy of the same kind as an earlier one keeps what that one has learned,
    /// and takes the new parameters.
    pub(crate) fn set(&mut self, specs: ClassPolicies) {
        let mut before: Vec<_> = self.specs.iter().map(PolicySpec::kind).zip(self.policies.drain(..)).collect();
        for spec in specs.iter() {
            let policy = match before.iter().position(|(kind, _)| *kind == spec.kind()) {
                Some(at) => {
                    let (_, mut policy) = before.remove(at);
                    policy.configure(spec);
                    policy
                }
                None => spec.kind().build(spec, self.seed),
            };
            self.policies.push(policy);
        }
        self.specs = specs;
    }

    /// The policy of a class.
    pub(crate) fn of(&mut self, class: OpClass) -> &mut dyn Policy {
        let at = self.position(class);
        &mut *self.policies[at]
    }

    /// See [`Policy::treats_flows_alike`].
    pub(crate) fn treats_flows_alike(&self, class: OpClass) -> bool {
        self.policies[self.position(class)].treats_flows_alike()
    }

    fn position(&self, class: OpClass) -> usize {
        usize::from(class != OpClass::Read).min(self.policies.len() - 1)
    }

    /// The estimate of a path by the policy of a class.
    pub(crate) fn estimate(&self, path: PathId, class: OpClass) -> PathEstimate {
        self.policies[self.position(class)].estimate(path, class)
    }

    /// When the first policy wants to be asked for a probe.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.policies.iter().filter_map(|policy| policy.next_timeout()).min()
    }

    /// The first probe that a policy asks for.
    pub(crate) fn probe(&mut self, now: Instant, paths: u64, busy: bool) -> Option<(PathId, u32)> {
        self.policies.iter_mut().find_map(|policy| policy.probe(now, paths, busy))
    }

    /// All policies.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Policy>> {
        self.policies.iter_mut()
    }
}
