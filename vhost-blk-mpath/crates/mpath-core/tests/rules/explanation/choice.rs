//! The explanation and the real choice agree, under every policy.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn the_next_request_does_what_was_explained(
        policy in prop::sample::select(PolicyKind::ALL.to_vec()),
        ios in 1..4_u32,
        steps in prop::collection::vec((0..6_u8, 0..8_u32, 0..40_u64), 1..120),
    ) {
        let mut t = Test::with_window(policy, ios, 1 << 20);
        let mut driver = Driver { in_flight: Vec::new(), free: (0..32).collect() };
        for (what, which, ms) in steps {
            t.now += Duration::from_millis(ms);
            let actions = t.actions();
            driver.take(&mut t, actions);
            if what < 3 {
                let Some(tag) = driver.free.pop() else { continue };
                let op = if what == 0 { Op::Write } else { Op::Read };
                let explained = t.group.explain(t.now, DISK);
                let explained = if what == 0 { explained.write } else { explained.read };
                let waiting = t.group.stats(t.now).queued;
                let issued = t.submit(tag, op);
                // If requests of its virtqueue wait already, the new request waits behind them, whatever the policy
                // would say.
                if waiting == 0 {
                    match explained.next {
                        Next::Path(path) => prop_assert_eq!(&issued[..], &[issue(path, tag)], "{:?}", policy),
                        other => prop_assert_eq!(&issued[..], &[], "{:?}: {:?}", policy, other),
                    }
                }
                let chosen = explained.paths.iter().filter(|of| of.why_not.is_none()).map(|of| Next::Path(of.path));
                let expected = matches!(explained.next, Next::Path(_)).then_some(explained.next);
                prop_assert_eq!(chosen.collect::<Vec<_>>(), Vec::from_iter(expected));
                driver.take(&mut t, issued);
            } else if !driver.in_flight.is_empty() {
                let (path, tag) = driver.in_flight.remove(which as usize % driver.in_flight.len());
                let outcome = if what == 5 { crate::retry(Duration::ZERO) } else { Outcome::Success };
                let actions = t.complete(path, tag, outcome);
                driver.take(&mut t, actions);
            }
        }
    }
}

/// Requests with the driver, and free tags.
struct Driver {
    in_flight: Vec<(PathId, u32)>,
    free: Vec<u32>,
}

impl Driver {
    fn take(&mut self, t: &mut Test, mut actions: Vec<Action>) {
        while !actions.is_empty() {
            for action in std::mem::take(&mut actions) {
                match action {
                    Action::Issue { path, tag } => self.in_flight.push((path, tag.0)),
                    Action::Finish { tag, .. } => self.free.push(tag.0),
                    Action::Recall { path, tag } => {
                        self.in_flight.retain(|of| *of != (path, tag.0));
                        actions.extend(t.complete(path, tag.0, Outcome::Recalled { abandoned: false }));
                    }
                    other => unreachable!("{other:?}"),
                }
            }
        }
    }
}
