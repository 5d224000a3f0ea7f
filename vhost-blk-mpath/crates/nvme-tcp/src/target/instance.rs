//! What tells one life of a controller from another: CIU and CIRN of Identify Controller.

use crate::wire::ControllerInstance;

/// Deals out instances; the seed makes their random numbers those of one subsystem.
#[derive(Debug)]
pub(super) struct Instances {
    /// State of splitmix64.
    random: u64,
    /// The last CIU.
    ciu: u8,
}

impl Instances {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: seed, ciu: 0 }
    }

    /// The next life of controller `cntlid`.
    pub(super) fn next(&mut self, cntlid: u16) -> ControllerInstance {
        // 0 would say that there is no such thing.
        self.ciu = self.ciu.checked_add(1).unwrap_or(1);
        ControllerInstance { cntlid, ciu: self.ciu, cirn: self.next_random() }
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

    #[test]
    fn lives_differ_and_the_uniquifier_is_never_zero() {
        let mut instances = Instances::new(7);
        let all: Vec<_> = (0..600).map(|_| instances.next(1)).collect();
        assert!(all.iter().all(|instance| instance.ciu != 0));
        assert!(all.windows(2).all(|pair| pair[0].ciu != pair[1].ciu));
        assert_eq!(all.iter().map(|instance| instance.cirn).collect::<HashSet<_>>().len(), 600);
        assert_ne!(Instances::new(8).next(1), Instances::new(7).next(1));
    }
}
