//! The checker finds nothing wrong with a correct disk, and everything that a faulty one does.

mod faulty_backend;

use super::reader::{Counts, Limits, Miscompare, Shared};
use super::workload::{ReadBack, Verifier};
use crate::ledger::LedgerError;
use crate::runner::{Control, Fatal, Runner, Schedule};
use faulty_backend::{BLOCK, Fault, FaultyBackend, HEADS};
use std::time::{Duration, Instant};

const BLOCKS: usize = 2048;
const MAX_BLOCKS: u64 = 8;
const SLOTS: u16 = 16;

/// The number of requests of a long run, in which every range is rewritten many times.
const LONG: u64 = 20_000;
/// The run ends soon after the fault, which comes after request 3000. So few later writes can overwrite the one wrong block.
const SHORT: u64 = 3200;
/// A request that takes longer is lost. On a busy machine, the test itself may be without a processor for a good part of this
/// time.
const STALLED: Duration = Duration::from_secs(8);

struct Outcome {
    happened: bool,
    fatal: Option<Fatal>,
    errors: u64,
    counts: Counts,
    miscompares: Vec<Miscompare>,
}

impl Outcome {
    fn got(&self, what: &str) -> bool {
        self.miscompares.iter().any(|miscompare| miscompare.got.contains(what))
    }
}

fn verify(fault: Fault, seed: u64, requests: u64) -> Outcome {
    verify_within(STALLED, fault, seed, requests)
}

fn verify_within(stalled: Duration, fault: Fault, seed: u64, requests: u64) -> Outcome {
    let limits = Limits {
        block_bytes: BLOCK as u32,
        max_blocks: MAX_BLOCKS,
        flush: true,
        max_zeroes_blocks: MAX_BLOCKS,
        zeroes_may_unmap: true,
        max_discard_blocks: MAX_BLOCKS,
        discard_align_blocks: 2,
    };
    let shared = Shared::new(limits, BLOCKS, seed);
    let backend = FaultyBackend::new(BLOCKS, SLOTS, MAX_BLOCKS as usize, fault, seed);
    let mut runner = Runner::new(backend, 0, SLOTS, HEADS, stalled);
    let schedule = Schedule { measure_from: Instant::now(), until: None };
    let control = Control::default();
    let mut verifier = Verifier::new(&shared, 0, SLOTS, seed, requests);
    let mut fatal = runner.run(&mut verifier, schedule, &control).err();
    drop(verifier);
    if fatal.is_none() {
        fatal = runner.run(&mut ReadBack::new(&shared, 0, SLOTS), schedule, &control).err();
    }
    Outcome {
        happened: runner.backend().happened,
        fatal,
        errors: runner.stats.errors,
        counts: shared.counts(),
        miscompares: shared.miscompares(),
    }
}

#[test]
fn a_correct_disk_passes_and_is_really_checked() {
    for seed in 0..5 {
        let outcome = verify(Fault::None, seed, LONG);
        assert!(outcome.fatal.is_none(), "{:?}", outcome.fatal);
        assert_eq!((outcome.errors, outcome.counts.miscompares), (0, 0), "{:?}", outcome.miscompares);
        let counts = outcome.counts;
        assert!(counts.blocks_written > 20_000 && counts.blocks_verified > 20_000, "{counts:?}");
        assert!(counts.blocks_verified_racing > 100, "{counts:?}");
        assert!(counts.blocks_zeroed > 1000 && counts.blocks_discarded > 200, "{counts:?}");
        assert!(counts.blocks_read_back > BLOCKS as u64 / 2, "{counts:?}");
    }
}

/// Runs the fault with ten seeds, of which eight must find it. A single wrong block may be overwritten before it is read, be read
/// in a race, or lie where the content is unknown. The seeds are fixed, so the outcome does not depend on luck.
fn found(fault: Fault) -> Vec<Outcome> {
    let outcomes: Vec<_> = (0..10).map(|seed| verify(fault, seed, SHORT)).collect();
    for (seed, outcome) in outcomes.iter().enumerate() {
        assert!(outcome.happened, "{fault:?} did not come to pass with seed {seed}");
        assert!(outcome.fatal.is_none(), "{:?}", outcome.fatal);
    }
    let found = outcomes.iter().filter(|outcome| outcome.counts.miscompares > 0).count();
    assert!(found >= 8, "{fault:?} was found in {found} of 10 runs");
    outcomes
}

#[test]
fn finds_a_dropped_write() {
    let outcomes = found(Fault::DropWrite);
    assert!(outcomes.iter().any(|outcome| outcome.got("version")));
}

#[test]
fn finds_a_misplaced_write() {
    let outcomes = found(Fault::MisplaceWrite);
    assert!(outcomes.iter().any(|outcome| outcome.got("misplaced")));
}

#[test]
fn finds_a_torn_block() {
    let outcomes = found(Fault::TearBlock);
    assert!(outcomes.iter().any(|outcome| outcome.got("torn: version") && outcome.got("byte 256")));
}

#[test]
fn finds_a_torn_request() {
    found(Fault::TearRequest);
}

#[test]
fn finds_swapped_blocks() {
    let outcomes = found(Fault::SwapBlocks);
    assert!(outcomes.iter().any(|outcome| outcome.got("misplaced")));
}

#[test]
fn finds_an_old_version() {
    let outcomes = found(Fault::ReturnOldVersion);
    assert!(outcomes.iter().any(|outcome| outcome.got("version")));
}

#[test]
fn finds_a_corrupt_byte() {
    let outcomes = found(Fault::CorruptByte);
    assert!(outcomes.iter().any(|outcome| outcome.got("corrupt")));
}

#[test]
fn finds_a_late_repeated_write() {
    found(Fault::RepeatWriteLate);
}

#[test]
fn finds_dropped_zeroes() {
    found(Fault::DropZeroes);
}

#[test]
fn finds_a_read_without_data() {
    let outcomes = found(Fault::NoTransfer);
    assert!(outcomes.iter().any(|outcome| outcome.got("not written")));
}

#[test]
fn finds_a_double_completion() {
    for seed in 0..10 {
        let outcome = verify(Fault::CompleteTwice, seed, SHORT);
        assert!(
            matches!(outcome.fatal, Some(Fatal::Ledger(LedgerError::CompletedTwice { .. }))),
            "{:?}",
            outcome.fatal
        );
    }
}

#[test]
fn finds_a_completion_of_nothing() {
    let outcome = verify(Fault::CompleteUnknown, 1, SHORT);
    assert!(matches!(outcome.fatal, Some(Fatal::Ledger(LedgerError::NeverSubmitted { head: HEADS }))));
}

#[test]
fn finds_a_lost_request_and_names_it() {
    // The runner looks for it all this time, and each other request is answered at once.
    let stalled = Duration::from_secs(1);
    let outcome = verify_within(stalled, Fault::Lose, 1, SHORT);
    let Some(Fatal::Lost(lost)) = outcome.fatal else {
        panic!("not found: {:?}", outcome.fatal);
    };
    assert_eq!(lost.len(), 1);
    assert!(lost[0].generation > 0 && u128::from(lost[0].age_ms) >= stalled.as_millis(), "{lost:?}");
}

#[test]
fn finds_a_missing_status() {
    assert!(matches!(verify(Fault::NoStatus, 1, SHORT).fatal, Some(Fatal::NoStatus { .. })));
}

#[test]
fn counts_a_failed_request() {
    let outcome = verify(Fault::Fail, 1, SHORT);
    assert_eq!((outcome.errors, outcome.counts.miscompares), (1, 0));
}
