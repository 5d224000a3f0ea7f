//! What tells one life of a controller from another: CIU and CIRN of Identify Controller.

use std::collections::VecDeque;

use crate::wire::{ControllerInstance, Nqn};

/// How many instances are remembered. A host asks for the reset of one within its fence time, seconds after its end.
const REMEMBERED_MAX: usize = 1024;

/// Deals out instances; the seed makes their random numbers those of one subsystem.
#[derive(Debug)]
pub(super) struct Instances {
    /// State of splitmix64.
    random: u64,
    /// The last CIU.
    ciu: u8,
    /// The latest ones, and the hosts that they were dealt out to.
    dealt: VecDeque<(ControllerInstance, Nqn)>,
}

impl Instances {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: seed, ciu: 0, dealt: VecDeque::new() }
    }

    /// The next life of controller `cntlid`, for this host.
    pub(super) fn next(&mut self, cntlid: u16, hostnqn: &Nqn) -> ControllerInstance {
        // 0 would say that there is no such thing.
        self.ciu = self.ciu.checked_add(1).unwrap_or(1);
        let instance = ControllerInstance { cntlid, ciu: self.ciu, cirn: self.next_random() };
        if self.dealt.len() == REMEMBERED_MAX {
            self.dealt.pop_front();
        }
        self.dealt.push_back((instance, hostnqn.clone()));
        instance
    }

    /// Whether this one is, or was lately, a life of a controller here that belonged to this host.
    pub(super) fn is_known(&self, instance: ControllerInstance, hostnqn: &Nqn) -> bool {
        self.dealt.iter().any(|(dealt, owner)| *dealt == instance && owner == hostnqn)
    }

    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
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
    fn lives_differ_and_the_uniquifier_is_never_zero() {
        let mut instances = Instances::new(7);
        let all: Vec<_> = (0..600).map(|_| instances.next(1, &host())).collect();
        assert!(all.iter().all(|instance| instance.ciu != 0));
        assert!(all.windows(2).all(|pair| pair[0].ciu != pair[1].ciu));
        assert_eq!(all.iter().map(|instance| instance.cirn).collect::<HashSet<_>>().len(), 600);
        assert_ne!(Instances::new(8).next(1, &host()), Instances::new(7).next(1, &host()));
    }

    #[test]
    fn the_latest_are_known_and_no_others() {
        let mut instances = Instances::new(7);
        let first = instances.next(1, &host());
        assert!(instances.is_known(first, &host()));
        assert!(!instances.is_known(first, &Nqn::new("nqn.2024-01.com.example:other").unwrap()));
        for _ in 1..REMEMBERED_MAX {
            instances.next(2, &host());
        }
        assert!(instances.is_known(first, &host()));
        instances.next(2, &host());
        assert!(!instances.is_known(first, &host()));
        assert_eq!(instances.dealt.len(), REMEMBERED_MAX);
    }
}
