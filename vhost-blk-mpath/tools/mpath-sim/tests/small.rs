//! Small worlds, every order of their events.

use mpath_core::Op;
use mpath_sim::small::{Plan, explore};

#[test]
fn no_order_of_events_breaks_a_promise() {
    for (losses, crashes) in [(1, 0), (0, 1)] {
        let plan = Plan { program: &[Op::Write, Op::Flush], losses, crashes, steps: 1 };
        let explored = explore(plan);
        assert_eq!(explored.violation, None);
        assert!(explored.states > 1000, "{} states", explored.states);
    }
}
