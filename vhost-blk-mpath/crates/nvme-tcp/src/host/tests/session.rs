//! Whole sessions with random requests, fragmentation, R2Ts and orders.

use std::collections::HashMap;

use proptest::prelude::*;

use monotonic::Instant;

use super::mini_target::{Disk, Habits, MiniTarget, Place};
use super::{Dice, Payloads, queue_config, transmit};
use crate::host::{
    Completion, HostQueue, IoCommand, NamespaceLimits, QueueConfig, RecallOutcome, STAGING_MIN, SubmitError, Tag,
};
use crate::wire::{Digests, Status};

/// A queue, its target, and the expected state.
struct Session {
    dice: Dice,
    queue: HostQueue,
    target: MiniTarget,
    payloads: Payloads,
    /// By position of the namespace.
    model: Vec<Disk>,
    in_flight: HashMap<Tag, (u16, IoCommand)>,
    /// Bytes that were sent to the target and not delivered.
    to_target: Vec<u8>,
    next_tag: u32,
    done: usize,
    recalled: Vec<Tag>,
    /// The number of abandoned requests without an answer.
    abandoned: usize,
}

impl Session {
    fn new(config: QueueConfig, habits: Habits, seed: u64) -> Self {
        let namespaces = config.namespaces.clone().into_iter().flatten();
        let target = MiniTarget::new(habits, seed, namespaces);
        Self {
            dice: Dice(!seed),
            queue: HostQueue::new(config).unwrap(),
            model: target.disks.clone(),
            target,
            payloads: Payloads::default(),
            in_flight: HashMap::new(),
            to_target: Vec::new(),
            next_tag: 0,
            done: 0,
            recalled: Vec::new(),
            abandoned: 0,
        }
    }

    fn submit(&mut self) {
        let namespace = self.dice.below(self.model.len());
        let NamespaceLimits { block_bytes, namespace_blocks, .. } = self.model[namespace].limits;
        let first = self.dice.below(namespace_blocks as usize);
        let most = (if self.dice.one_in(3) { 400 } else { 16usize } * 512).div_ceil(block_bytes as usize);
        let blocks = 1 + self.dice.below(most.min(namespace_blocks as usize - first));
        let (slba, blocks) = (first as u64, blocks as u32);
        let namespace = namespace as u16;
        let overlaps = |(there, other): &(u16, IoCommand)| {
            let apart = |(start, count)| slba >= start + u64::from(count) || start >= slba + u64::from(blocks);
            *there == namespace && other.range().is_some_and(|range| !apart(range))
        };
        if self.in_flight.values().any(overlaps) {
            return;
        }
        let command = match self.dice.below(9) {
            0..3 => IoCommand::Read { slba, blocks },
            3..6 => IoCommand::Write { slba, blocks, fua: self.dice.one_in(2) },
            6 => IoCommand::WriteZeroes { slba, blocks, deallocate: true, fua: false },
            7 => IoCommand::Deallocate { slba, blocks },
            _ => IoCommand::Flush,
        };
        let tag = Tag(self.next_tag);
        let bytes = blocks as usize * block_bytes as usize;
        *self.payloads.of(tag) = match command {
            IoCommand::Write { .. } => (0..bytes).map(|i| (i ^ (i >> 9) ^ (tag.0 as usize * 37)) as u8).collect(),
            _ => vec![0xee; bytes],
        };
        match self.queue.submit(tag, namespace, command) {
            Ok(()) => {
                self.in_flight.insert(tag, (namespace, command));
                self.next_tag += 1;
            }
            Err(SubmitError::NotReady) => assert!(!self.queue.is_ready()),
            Err(SubmitError::Full) => assert_eq!(self.in_flight.len() + self.abandoned, 7),
            Err(other) => panic!("{other}"),
        }
    }

    /// Recalls a read, if there is one. Afterwards its payload must not be touched.
    fn recall(&mut self) {
        let reads = self.in_flight.iter().filter(|(_, (_, command))| matches!(command, IoCommand::Read { .. }));
        let Some(tag) = reads.map(|(&tag, _)| tag).min() else { return };
        match self.queue.recall(tag) {
            RecallOutcome::Unsent => {}
            RecallOutcome::Abandoned => self.abandoned += 1,
            RecallOutcome::Completed => panic!("completions are fetched as they come"),
        }
        self.in_flight.remove(&tag);
        self.recalled.push(tag);
        self.payloads.of(tag).fill(0xab);
    }

    /// Runs one random step of the queue, the connection or the target, and checks all completions.
    fn turn(&mut self) -> Result<(), crate::host::QueueError> {
        let capacity = STAGING_MIN + self.dice.below(40_000);
        let sent = transmit(Instant::now(), &mut self.queue, &self.payloads, capacity);
        self.to_target.extend_from_slice(&sent);
        let count = self.dice.below(self.to_target.len() + 1);
        let arrived: Vec<u8> = self.to_target.drain(..count).collect();
        self.target.receive(&arrived);
        for _ in 0..self.dice.below(6) {
            self.target.step();
        }
        let limit = [1, 7, 60, 5000, 1 << 20][self.dice.below(5)];
        for _ in 0..self.dice.below(5) {
            self.deliver(limit)?;
        }
        while let Some(Completion { tag, result, .. }) = self.queue.poll_completion() {
            self.check(tag, result);
        }
        self.abandoned -= self.queue.take_answered().requests as usize;
        assert_eq!(self.queue.in_flight(), self.in_flight.len() + self.abandoned);
        Ok(())
    }

    /// Delivers up to `limit` bytes to the host, directly into payloads where possible.
    fn deliver(&mut self, limit: usize) -> Result<(), crate::host::QueueError> {
        if let Some(direct) = self.queue.direct()
            && self.dice.one_in(2)
        {
            let bytes = self.target.take(limit.min(direct.len as usize));
            let start = direct.offset as usize;
            self.payloads.of(direct.tag)[start..start + bytes.len()].copy_from_slice(&bytes);
            return self.queue.received_direct(bytes.len() as u32);
        }
        let count = 1 + self.dice.below(limit);
        let bytes = self.target.take(count);
        self.queue.receive(&bytes, &mut self.payloads)
    }

    fn check(&mut self, tag: Tag, result: Result<(), Status>) {
        let (namespace, command) = self.in_flight.remove(&tag).expect("a tag completes once");
        let namespace = usize::from(namespace);
        self.done += 1;
        let payload = std::mem::take(self.payloads.of(tag));
        let nsid = self.model[namespace].limits.nsid;
        let Some((slba, blocks)) = command.range() else {
            return self.check_failure((nsid, u64::MAX), 1, result);
        };
        self.check_failure((nsid, slba), blocks, result);
        let model = self.model[namespace].blocks(slba, blocks);
        match command {
            // A part may have been written.
            _ if result.is_err() => model.copy_from_slice(self.target.disks[namespace].blocks(slba, blocks)),
            IoCommand::Read { .. } => assert!(payload == model, "{command:?} read something else"),
            IoCommand::Write { .. } => model.copy_from_slice(&payload),
            _ => model.fill(0),
        }
    }

    /// Checks the data of the target.
    fn is_consistent(&self) -> bool {
        self.model.iter().zip(&self.target.disks).all(|(model, disk)| model.bytes == disk.bytes)
    }

    /// The expected result: the status of a failed command in the range, or success.
    fn check_failure(&mut self, place: Place, blocks: u32, result: Result<(), Status>) {
        let slba = place.1;
        let hit = |&(failed, _): &(Place, Status)| within(failed, place, blocks);
        let failures: Vec<Status> =
            self.target.failures.iter().filter(|failure| hit(failure)).map(|&(_, status)| status).collect();
        match result {
            // Flushes in flight at the same time cannot be distinguished. A command of more than 128 blocks may be too large, and
            // is repeated in smaller ones.
            Ok(()) => {
                assert!(failures.is_empty() || slba == u64::MAX || blocks > 128, "{failures:?} were not reported");
            }
            Err(status) => assert!(failures.contains(&status), "{status} was never sent"),
        }
        if slba != u64::MAX {
            self.target.failures.retain(|failure| !hit(failure));
        }
    }
}

/// Whether a command that starts there can belong to the request that starts at `place`.
fn within((nsid, block): Place, place: Place, blocks: u32) -> bool {
    nsid == place.0 && block >= place.1 && block - place.1 < u64::from(blocks)
}

fn any_habits() -> impl Strategy<Value = Habits> {
    let faults = prop_oneof![3 => Just((0, 0)), 1 => Just((9, 9))];
    (any::<(bool, bool, bool)>(), 0u8..32, 1024u32..20_000, 1usize..=4, faults).prop_map(
        |((header, data, success_flag), cpda, dwords, r2ts, (fail_one_in, corrupt_one_in))| Habits {
            digests: Digests { header, data },
            cpda,
            maxh2cdata: dwords * 4,
            success_flag,
            r2ts,
            fail_one_in,
            corrupt_one_in,
        },
    )
}

fn any_config() -> impl Strategy<Value = QueueConfig> {
    let in_capsule = prop_oneof![Just(0u32), Just(4096), Just(8192), Just(65536)];
    let noiob = prop_oneof![Just(0u16), 1u16..64];
    let namespaces = proptest::collection::vec((0u32..=3, noiob), 1..=3);
    (in_capsule, namespaces, 0u32..9).prop_map(|(in_capsule_bytes, namespaces, mdts)| {
        let largest = namespaces.iter().map(|&(shift, _)| 512 << shift).max().unwrap();
        let namespace = |(index, (shift, noiob_blocks))| {
            // NSIDs are not in order, and the sizes differ in bytes too.
            let (nsid, namespace_blocks) = ([7, 1, 4][index], [2048, 600, 100, 150][shift as usize]);
            Some(NamespaceLimits { nsid, block_bytes: 512u32 << shift, namespace_blocks, noiob_blocks })
        };
        QueueConfig {
            in_capsule_bytes,
            max_transfer_bytes: (512 << mdts).max(largest),
            namespaces: namespaces.into_iter().enumerate().map(namespace).collect(),
            ..queue_config(Digests::default())
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Each request ends exactly once with the status of the target, and the data are right.
    #[test]
    fn requests_complete_once_with_the_right_data(config in any_config(), habits in any_habits(), seed: u64) {
        let config = QueueConfig { digests: habits.digests, ..config };
        let mut session = Session::new(config, habits, seed);
        for _ in 0..300 {
            session.submit();
            session.turn().unwrap();
        }
        let mut turns = 0;
        while !session.in_flight.is_empty() {
            session.turn().unwrap();
            turns += 1;
            assert!(turns < 100_000, "stuck with {:?}", session.in_flight);
        }
        prop_assert!(session.is_consistent());
        prop_assert!(session.done > 0);
        prop_assert_eq!(session.queue.into_lost().count(), 0);
    }

    /// Recalled reads do not affect other requests, and their payloads are not touched.
    #[test]
    fn recalled_reads_are_left_alone(config in any_config(), habits in any_habits(), seed: u64) {
        let habits = Habits { fail_one_in: 0, corrupt_one_in: 0, ..habits };
        let config = QueueConfig { digests: habits.digests, ..config };
        let mut session = Session::new(config, habits, seed);
        let mut turns = 0;
        // Large writes can delay reads for long. The test needs at least one of both.
        while turns < 400 || session.done == 0 || session.recalled.is_empty() {
            session.submit();
            if turns % 3 == 0 {
                session.recall();
            }
            session.turn().unwrap();
            turns += 1;
            assert!(turns < 100_000, "{} requests done, {} recalled", session.done, session.recalled.len());
        }
        turns = 0;
        while !session.in_flight.is_empty() || session.abandoned > 0 {
            session.turn().unwrap();
            turns += 1;
            assert!(turns < 100_000, "stuck with {:?}", session.in_flight);
        }
        prop_assert!(session.is_consistent());
        for tag in session.recalled {
            prop_assert!(session.payloads.of(tag).iter().all(|&byte| byte == 0xab), "{:?} was written to", tag);
        }
    }

    /// After the loss of the connection, each request is completed or lost. A lost request is indeterminate if the target may
    /// still execute it.
    #[test]
    fn what_is_lost_is_told(config in any_config(), habits in any_habits(), seed: u64, turns in 1usize..150) {
        let ranges_come_late = config.in_capsule_bytes == 0;
        let config = QueueConfig { digests: habits.digests, ..config };
        let mut session = Session::new(config, habits, seed);
        for _ in 0..turns {
            session.submit();
            session.turn().unwrap();
        }
        // Encoded bytes count as sent. Deliver them, so that the target knows the commands.
        let left = transmit(Instant::now(), &mut session.queue, &session.payloads, 1 << 16);
        session.to_target.extend_from_slice(&left);
        let arrived = std::mem::take(&mut session.to_target);
        session.target.receive(&arrived);
        // The last use of a CID is the relevant one.
        let delivered = session.target.taken;
        let mut open: HashMap<u16, Place> = HashMap::new();
        let mut answers: HashMap<u16, Vec<usize>> = HashMap::new();
        for &(cid, end) in &session.target.answered {
            answers.entry(cid).or_default().push(end);
        }
        for &(cid, place) in &session.target.begun {
            let ends = answers.entry(cid).or_default();
            if ends.is_empty() || ends.remove(0) > delivered {
                open.insert(cid, place);
            }
        }
        let mut lost: Vec<_> = session.queue.into_lost().collect();
        lost.sort_by_key(|lost| lost.tag);
        let mut expected: Vec<_> = session.in_flight.keys().copied().collect();
        expected.sort();
        prop_assert_eq!(lost.iter().map(|lost| lost.tag).collect::<Vec<_>>(), expected);
        for lost in lost {
            let (namespace, command) = session.in_flight[&lost.tag];
            let nsid = session.model[usize::from(namespace)].limits.nsid;
            let begun = command
                .range()
                .is_some_and(|(slba, blocks)| open.values().any(|&place| within(place, (nsid, slba), blocks)));
            // A Dataset Management without its ranges cannot be identified by its blocks.
            if let IoCommand::Deallocate { .. } = command && ranges_come_late {
                continue;
            }
            prop_assert_eq!(lost.indeterminate, command.is_mutating() && begun, "{:?}", command);
        }
    }

    /// Damaged bytes lead to an error or to wrong data, and never to a panic or a second completion.
    #[test]
    fn damage_is_survived(config in any_config(), habits in any_habits(), seed: u64) {
        let config = QueueConfig { digests: habits.digests, ..config };
        let mut session = Session::new(config, habits, seed);
        let mut dice = Dice(seed ^ 0x5555);
        let (mut submitted, mut ended, mut damaged) = (0, 0, false);
        for _ in 0..400 {
            session.submit();
            let sent = transmit(Instant::now(), &mut session.queue, &session.payloads, STAGING_MIN);
            // The answers to damaged R2Ts would only confuse the target of the tests.
            if !damaged {
                session.target.receive(&sent);
            }
            session.target.step();
            submitted = session.next_tag;
            let mut bytes = session.target.take(4000);
            if dice.one_in(12) && !bytes.is_empty() {
                let at = dice.below(bytes.len());
                bytes[at] ^= 1 << dice.below(8);
                damaged = true;
            }
            let outcome = session.queue.receive(&bytes, &mut session.payloads);
            while let Some(done) = session.queue.poll_completion() {
                prop_assert!(session.in_flight.remove(&done.tag).is_some(), "{:?} twice", done.tag);
                ended += 1;
            }
            if let Err(error) = outcome {
                prop_assert_eq!(session.queue.error(), Some(error.clone()));
                prop_assert_eq!(session.queue.receive(&[0], &mut session.payloads), Err(error));
                prop_assert_eq!(transmit(Instant::now(), &mut session.queue, &session.payloads, STAGING_MIN).len(), 0);
                break;
            }
        }
        for lost in session.queue.into_lost() {
            prop_assert!(session.in_flight.remove(&lost.tag).is_some(), "{:?} twice", lost.tag);
            ended += 1;
        }
        prop_assert_eq!(ended, submitted);
    }

    /// Bytes that are no PDUs never lead to a panic or to a ready queue.
    #[test]
    fn noise_is_survived(noise in proptest::collection::vec(any::<u8>(), 0..400), digests: bool) {
        let digests = Digests { header: digests, data: digests };
        let mut queue = HostQueue::new(queue_config(digests)).unwrap();
        let mut payloads = Payloads::default();
        transmit(Instant::now(), &mut queue, &payloads, STAGING_MIN);
        let _ = queue.receive(&noise, &mut payloads);
        prop_assert!(!queue.is_ready());
    }
}
