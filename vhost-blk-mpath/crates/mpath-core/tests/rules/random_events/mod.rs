//! Groups under random events. A model driver knows the rules and checks them at every step.

mod driver;
mod events;

use mpath_core::Window;
use proptest::prelude::*;

use driver::Driver;
use events::{event, hedging, policies};

const PATHS: usize = 3;
/// Disks that share the paths.
const DISKS: usize = 2;
/// The disk of each flow.
const FLOWS: [u16; 3] = [0, 1, 0];
const QUEUE_DEPTH: u16 = 8;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_once_and_no_rule_is_broken(
        policy in policies(),
        ios in 1..6_u32,
        bytes in prop_oneof![Just(1024_u64), Just(16_384), Just(4 << 20)],
        seed: u64,
        hedging in hedging(),
        // Several events may happen before the driver polls.
        events in prop::collection::vec((event(), prop::bool::weighted(0.8)), 1..300),
    ) {
        let mut driver = Driver::new(policy, Window { ios, bytes }, seed);
        if hedging.is_some() {
            driver.set_hedging(hedging);
            driver.learn();
        }
        for (event, then_polls) in events {
            driver.apply(&event);
            if then_polls {
                driver.poll();
            }
        }
        driver.finish_all();
    }
}
