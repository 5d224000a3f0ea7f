//! `fifo`: first in, first out within a flow; flows in turn, a request each.
//!
//! Source: the "plain" of the published burst-credit figures is this, by what it measures: 32 requests beside K deep
//! flows take 32 (K + 1) services, and a single one takes K + 1 of them, whatever the depth of the others
//! (`burst-sim` reproduces both). One queue in order of arrival for all flows would make a single request wait for everything the
//! others have queued. Linux's SUNRPC server, where the rule is from, gives each connection with work one turn.

use super::{About, Rule, Tier};
use crate::FlowId;

pub(super) const ABOUT: About = About {
    name: "fifo",
    description: "flows in turn, a request each; first in, first out within a flow",
    params: &[],
    build: |_, _| Box::new(Fifo),
};

#[derive(Debug)]
struct Fifo;

impl Rule for Fifo {
    fn tier(&self, _flow: FlowId) -> Tier {
        Tier::Normal
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::DiskId;
    use crate::scheduler::testing::Test;

    #[test]
    fn flows_take_turns_and_keep_their_order() {
        let mut t = Test::new("fifo", &[]);
        for (flow, tag) in [(1, 10), (1, 11), (1, 12), (3, 30), (3, 31)] {
            t.push(flow, tag, 4096);
        }
        assert_eq!(t.drain(), [10, 30, 11, 31, 12]);
    }

    #[test]
    fn sizes_do_not_count() {
        let mut t = Test::new("fifo", &[]);
        for tag in 0..4 {
            t.push(0, tag, 1 << 20);
            t.push(1, 10 + tag, 512);
        }
        assert_eq!(t.drain(), [0, 10, 1, 11, 2, 12, 3, 13]);
    }

    /// Between two requests such a flow is idle for a moment each time.
    #[test]
    fn flows_that_ask_for_one_request_at_a_time_do_not_escape_the_weight_of_their_disk() {
        const FLOWS: u16 = 16;
        let mut t = Test::new("fifo", &[]);
        (0..2000).for_each(|_| t.push_of(0, 0, 0, 4096));
        (1..=FLOWS).for_each(|flow| t.push_of(1, flow, flow.into(), 4096));
        let mut of_the_one = 0;
        for _ in 0..1000 {
            let tag = t.take_at(0).expect("something waits") as u16;
            t.now += Duration::from_millis(1);
            t.complete(tag, 4096);
            if tag == 0 {
                of_the_one += 1;
            } else {
                t.push_of(1, tag, tag.into(), 4096);
            }
        }
        assert!((450..=600).contains(&of_the_one), "{of_the_one}");
    }

    /// A flow of a disk with a hundredth of the weight owes a hundred turns after each request.
    #[test]
    fn what_a_flow_owes_is_forgotten_when_it_was_idle_for_a_second() {
        let ms = Duration::from_millis;
        for (idle, turns) in [(ms(999), 90..=110), (ms(1000), 0..=1)] {
            let mut t = Test::new("fifo", &[]);
            t.scheduler.set_weight(t.now, DiskId(1), 1);
            (0..1000).for_each(|_| t.push_of(0, 0, 0, 4096));
            let before_the_light_one = |t: &mut Test| {
                t.push_of(1, 1, 1, 4096);
                let turns = std::iter::from_fn(|| t.take_at(0)).take_while(|tag| *tag == 0).count();
                t.complete(1, 4096);
                turns
            };
            assert!(before_the_light_one(&mut t) <= 1, "it is new");
            t.now += idle;
            let waited = before_the_light_one(&mut t);
            assert!(turns.contains(&waited), "{waited} others after {idle:?}");
        }
    }
}
