//! Test helpers: whether a disturbance harms other disks, by the latency of their requests with and without it.

use std::io::{self, Write};
use std::time::Duration;

/// The target's service time for a request. It is long, so that other load on this machine counts little.
pub(crate) const SERVICE: Duration = Duration::from_millis(8);
/// The number of rounds. Most must show no harm, because the machine may stall in some.
pub(crate) const ROUNDS: usize = 5;
/// The p99 under disturbance is at most this many times the p99 without.
const HARM: f64 = 1.5;
/// An idle machine takes at most this many times [`SERVICE`] for a request.
const QUIET: f64 = 1.25;
/// A disk that is blocked is blocked for longer: a leaving front-end has ten seconds. No request may take this long.
const HELD_UP: Duration = Duration::from_secs(2);
/// Fewer requests give no p99.
const ENOUGH: usize = 100;

#[derive(Default)]
struct Round {
    alone: Vec<Duration>,
    beside: Vec<Duration>,
}

/// The times of requests with and without the disturbance, by round. The two alternate within a round, so that other
/// load on this machine affects both.
pub(crate) struct Harm {
    whom: &'static str,
    by: &'static str,
    rounds: [Round; ROUNDS],
}

impl Harm {
    pub(crate) fn new(whom: &'static str, by: &'static str) -> Self {
        Self { whom, by, rounds: Default::default() }
    }

    /// Adds the time of a request, with or without the disturbance.
    pub(crate) fn took(&mut self, round: usize, beside: bool, took: Duration) {
        let Round { alone, beside: with } = &mut self.rounds[round];
        if beside { with.push(took) } else { alone.push(took) }
    }

    /// Checks that no request was held up, and, by the median of the rounds, that the p99 did not rise. A machine that is
    /// busy even without the disturbance cannot judge the p99.
    pub(crate) fn judge(self) {
        let Self { whom, by, rounds } = self;
        let (mut times, mut busy) = (Vec::new(), false);
        for Round { alone, beside } in rounds {
            let most = beside.iter().max().copied().unwrap_or_default();
            assert!(most < HELD_UP, "{whom}: a request took {most:?} beside {by}");
            if alone.len() < ENOUGH {
                println!("{whom}: too few requests: {}", alone.len());
                busy = true;
                continue;
            }
            let (of_alone, of_beside) = (alone.len(), beside.len());
            let (alone, beside) = (p99(alone), p99(beside));
            let is_few = of_beside < ENOUGH;
            let harm = if is_few { f64::INFINITY } else { beside.as_secs_f64() / alone.as_secs_f64() };
            println!("{whom}: p99 {alone:?} of {of_alone}, beside {by} {beside:?} of {of_beside}: {harm:.2} times");
            busy |= alone > SERVICE.mul_f64(QUIET);
            times.push(harm);
        }
        if busy {
            // Past the capture: the output of a passing test is not shown.
            let skipped = format!(
                "SKIPPED: {whom} beside {by}: this machine is too busy to judge; a quiet one does by `make isolation-test`"
            );
            let _ = writeln!(io::stderr(), "{skipped}");
            return;
        }
        times.sort_by(f64::total_cmp);
        let harm = times[times.len() / 2];
        assert!(harm <= HARM, "{whom}: beside {by} their p99 is {harm:.2} times what it is without: {times:.2?}");
    }
}

fn p99(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took.get(took.len() * 99 / 100).copied().unwrap_or_default()
}

/// Rounds of requests with these times alone, and some of them with other times under disturbance.
fn judged(beside_ms: [u64; ROUNDS], alone_ms: [u64; ROUNDS]) {
    let mut harm = Harm::new("others", "a trial");
    for (round, (beside_ms, alone_ms)) in beside_ms.into_iter().zip(alone_ms).enumerate() {
        for _ in 0..ENOUGH {
            harm.took(round, false, Duration::from_millis(alone_ms));
            harm.took(round, true, Duration::from_millis(alone_ms));
        }
        // More than one in a hundred.
        (0..2).for_each(|_| harm.took(round, true, Duration::from_millis(beside_ms)));
    }
    harm.judge();
}

#[test]
fn two_bad_rounds_are_no_harm() {
    judged([100, 8, 12, 8, 100], [8; ROUNDS]);
}

#[test]
fn results_of_a_busy_machine_do_not_count() {
    judged([100; ROUNDS], [8, 8, 11, 8, 8]);
}

#[test]
#[should_panic(expected = "is 1.62 times what it is without")]
fn three_bad_rounds_are_harm() {
    judged([13, 8, 100, 8, 100], [8; ROUNDS]);
}

#[test]
#[should_panic(expected = "is inf times what it is without")]
fn requests_that_stand_still_are_harm() {
    let mut harm = Harm::new("others", "a trial");
    for round in 0..ROUNDS {
        (0..ENOUGH).for_each(|_| harm.took(round, false, SERVICE));
        harm.took(round, true, SERVICE);
    }
    harm.judge();
}

#[test]
#[should_panic(expected = "took 2s beside a trial")]
fn a_request_that_is_held_up_is_harm() {
    judged([8, 8, 8, 8, 2000], [8, 8, 11, 8, 8]);
}
