//! Controller instances: CIU and CIRN of Identify Controller. Each reset of a controller starts another instance.

use std::collections::VecDeque;

use nvme_tcp::wire::{ControllerInstance, Nqn};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The number of remembered instances. A host may ask for the reset of an instance within its fence time, seconds after its end.
const REMEMBERED_MAX: usize = 1024;

/// The source of controller instances. The random numbers of a subsystem follow from its seed.
#[derive(Debug)]
pub(super) struct ControllerInstances {
    random: SplitMix64,
    /// The last CIU.
    ciu: u8,
    /// The latest instances, each with the NQN of its host.
    issued: VecDeque<(ControllerInstance, Nqn)>,
}

impl ControllerInstances {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: SplitMix64::seed_from_u64(seed), ciu: 0, issued: VecDeque::new() }
    }

    /// The next instance of controller `cntlid`, for this host.
    pub(super) fn next(&mut self, cntlid: u16, hostnqn: &Nqn) -> ControllerInstance {
        // CIU 0 means that the controller reports no instance.
        self.ciu = self.ciu.checked_add(1).unwrap_or(1);
        let instance = ControllerInstance { cntlid, ciu: self.ciu, cirn: self.random.next_u64() };
        if self.issued.len() == REMEMBERED_MAX {
            self.issued.pop_front();
        }
        self.issued.push_back((instance, hostnqn.clone()));
        instance
    }

    /// Whether this is a current or recent instance of a controller of this host.
    pub(super) fn is_known(&self, instance: ControllerInstance, hostnqn: &Nqn) -> bool {
        self.issued.iter().any(|(issued, owner)| *issued == instance && owner == hostnqn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn host() -> Nqn {
        Nqn::new("nqn.2024-01.com.example:host").unwrap()
    }

    #[test]
    fn instances_differ_and_ciu_is_never_zero() {
        let mut instances = ControllerInstances::new(7);
        let all: Vec<_> = (0..600).map(|_| instances.next(1, &host())).collect();
        assert!(all.iter().all(|instance| instance.ciu != 0));
        assert!(all.windows(2).all(|pair| pair[0].ciu != pair[1].ciu));
        assert_eq!(all.iter().map(|instance| instance.cirn).collect::<HashSet<_>>().len(), 600);
        assert_ne!(ControllerInstances::new(8).next(1, &host()), ControllerInstances::new(7).next(1, &host()));
    }

    #[test]
    fn only_the_latest_instances_of_a_host_are_known() {
        let mut instances = ControllerInstances::new(7);
        let first = instances.next(1, &host());
        assert!(instances.is_known(first, &host()));
        assert!(!instances.is_known(first, &Nqn::new("nqn.2024-01.com.example:other").unwrap()));
        for _ in 1..REMEMBERED_MAX {
            instances.next(2, &host());
        }
        assert!(instances.is_known(first, &host()));
        instances.next(2, &host());
        assert!(!instances.is_known(first, &host()));
        assert_eq!(instances.issued.len(), REMEMBERED_MAX);
    }
}
