//! Slow requests: their time is attributed to the stage in which it passed.

use std::num::NonZeroU64;

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, AnaState, Association, Direction, DiskId, Epoch, FlowId, Group, GroupConfig, Injection, Io, IoError,
    Limits, MinuteStats, Op, Outcome, PathConfig, PathId, PolicyKind, RetryCause, SharedDisk, SlowRequest, Tag, Window,
};

use crate::wake_after;

const MS: Duration = Duration::from_millis(1);
const P0: PathId = PathId(0);
const P1: PathId = PathId(1);

struct Test {
    now: Instant,
    group: Group,
}

impl Test {
    /// Two live optimized paths. The policy sends everything to the first.
    fn new() -> Self {
        Self::with(GroupConfig::default(), &[SharedDisk::default()])
    }

    #[allow(clippy::large_types_passed_by_value)] // once a test
    fn with(config: GroupConfig, disks: &[SharedDisk]) -> Self {
        // Slow requests are older than the clock's start.
        let now = Instant::now() + Duration::from_secs(3600);
        let config = GroupConfig { policy: PolicyKind::Numa.into(), ..config };
        let mut test = Self { now, group: Group::new(now, config, disks) };
        for path in [P0, P1] {
            test.group.add_path(path, PathConfig::default());
            test.up(path, 1);
        }
        test
    }

    fn up(&mut self, path: PathId, epoch: u64) {
        let ana = AnaState::Optimized.into();
        let association = Association { epoch: Epoch(epoch), ana, volatile_write_cache: true, queue_depth: 64 };
        self.group.path_up(self.now, path, association);
    }

    fn submit(&mut self, tag: u32, op: Op) -> Vec<Action> {
        let io = Io { tag: Tag(tag), op, bytes: 4096, disk: DiskId(0), flow: FlowId(0), fua: false };
        self.group.submit(self.now, io);
        self.actions()
    }

    fn complete(&mut self, path: PathId, tag: u32, outcome: Outcome) -> Vec<Action> {
        self.group.complete(self.now, path, Tag(tag), outcome);
        self.actions()
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.group.poll_action(self.now)).collect()
    }

    fn pass(&mut self, time: Duration) -> Vec<Action> {
        self.now += time;
        self.actions()
    }

    /// The latest record of a request with this tag. Its stages add up.
    fn slow(&self, tag: u32) -> SlowRequest {
        let with_tag = self.group.slow_requests(self.now).filter(|of| of.io.tag == Tag(tag));
        let found = with_tag.max_by_key(|of| of.ended_at);
        let slow = *found.expect("the request is recorded");
        assert_eq!(slow.stages.total(), slow.total);
        slow
    }

    /// The stages of a request that took time, in ms.
    fn stages_ms(&self, tag: u32) -> Vec<(&'static str, u64)> {
        let named = self.slow(tag).stages.named().into_iter();
        named.map(|(name, time)| (name, time.as_millis())).filter(|(_, ms)| *ms > 0).collect()
    }
}

fn issue(path: PathId, tag: u32) -> Action {
    Action::Issue { path, tag: Tag(tag) }
}

fn ok(tag: u32) -> Action {
    Action::Finish { tag: Tag(tag), result: Ok(()) }
}

#[test]
fn the_path_and_the_way_to_its_socket() {
    let mut t = Test::new();
    assert_eq!(t.submit(0, Op::Write), [issue(P0, 0)]);
    let sent_at = t.now + 3 * MS;
    t.now += 10 * MS;
    t.group.sent(P0, Tag(0), sent_at);
    assert_eq!(t.complete(P0, 0, Outcome::Success), [ok(0)]);
    assert_eq!(t.stages_ms(0), [("send", 3), ("path", 7)]);
    let slow = t.slow(0);
    assert_eq!((slow.path, slow.paths, slow.attempts, slow.result), (Some(P0), 0b01, 1, Ok(())));
    assert_eq!((slow.io.op, slow.io.bytes, slow.sector), (Op::Write, 4096, None));
    assert!(t.group.asks_for_sector());
    t.group.set_slow_sector(Some(77));
    assert_eq!((t.slow(0).sector, t.group.asks_for_sector()), (Some(77), false));
}

#[test]
fn room_and_turn() {
    let mut t = Test::with(
        GroupConfig { window: Window { ios: 1, bytes: 1 << 20 }, ..GroupConfig::default() },
        &[SharedDisk::default()],
    );
    t.submit(0, Op::Read);
    assert_eq!(t.submit(1, Op::Read), []);
    t.now += 20 * MS;
    assert_eq!(t.complete(P0, 0, Outcome::Success), [ok(0), issue(P0, 1)]);
    t.now += 2 * MS;
    t.complete(P0, 1, Outcome::Success);
    assert_eq!((t.stages_ms(0), t.stages_ms(1)), (vec![("path", 20)], vec![("queue", 20), ("path", 2)]));
}

#[test]
fn limits() {
    let disk = SharedDisk::default();
    let limits = disk.limits.clone();
    let mut t = Test::with(GroupConfig::default(), &[disk]);
    limits.set(t.now, Limits { iops: NonZeroU64::new(10), bytes_per_s: None, burst: 100 * MS });
    assert_eq!(t.submit(0, Op::Read), [issue(P0, 0)]);
    assert_eq!(t.submit(1, Op::Read), []);
    assert_eq!(t.complete(P0, 0, Outcome::Success), [ok(0)]);
    assert_eq!(t.pass(101 * MS), [issue(P0, 1)]);
    t.now += MS;
    t.complete(P0, 1, Outcome::Success);
    assert_eq!(t.stages_ms(1), [("limit", 101), ("path", 1)]);
    // The pauses before a request do not count.
    t.now += 1000 * MS;
    t.submit(2, Op::Read);
    t.now += 5 * MS;
    t.complete(P0, 2, Outcome::Success);
    assert_eq!(t.stages_ms(2), [("path", 5)]);
}

#[test]
fn no_path_and_the_end_of_waiting() {
    let config = GroupConfig { no_path_timeout: Some(500 * MS), ..GroupConfig::default() };
    let mut t = Test::with(config, &[SharedDisk::default()]);
    t.group.path_lost(t.now, P0);
    t.group.path_lost(t.now, P1);
    t.submit(0, Op::Read);
    t.now += 300 * MS;
    t.up(P1, 2);
    assert_eq!(t.actions(), [issue(P1, 0)]);
    t.now += 4 * MS;
    t.complete(P1, 0, Outcome::Success);
    assert_eq!(t.stages_ms(0), [("no-path", 300), ("path", 4)]);
    t.group.path_lost(t.now, P1);
    t.submit(1, Op::Write);
    let failed = Action::Finish { tag: Tag(1), result: Err(IoError::NoPath) };
    assert_eq!(t.pass(500 * MS), [failed]);
    assert_eq!((t.stages_ms(1), t.slow(1).attempts), (vec![("no-path", 500)], 0));
    assert_eq!((t.slow(1).path, t.slow(1).result), (None, Err(IoError::NoPath)));
}

#[test]
fn injections_on_both_ways() {
    let mut t = Test::new();
    t.group.set_injection(t.now, P0, None, Injection::latency(30 * MS));
    assert_eq!(t.submit(0, Op::Read), []);
    assert_eq!(t.pass(30 * MS), [issue(P0, 0)]);
    t.now += 5 * MS;
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.stages_ms(0), [("injection", 30), ("path", 5)]);
    t.group.set_injection(t.now, P0, None, Injection { direction: Direction::Response, ..Injection::latency(40 * MS) });
    assert_eq!(t.submit(1, Op::Read), [issue(P0, 1)]);
    t.now += 5 * MS;
    assert_eq!(t.complete(P0, 1, Outcome::Success), []);
    assert_eq!(t.pass(40 * MS), [ok(1)]);
    assert_eq!(t.stages_ms(1), [("injection", 40), ("path", 5)]);
}

#[test]
fn a_stall_and_its_end() {
    let mut t = Test::new();
    t.group.set_injection(t.now, P0, None, Injection { stall: true, ..Injection::default() });
    assert_eq!(t.submit(0, Op::Write), []);
    t.now += 50 * MS;
    t.group.clear_injection(t.now, P0);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.now += 2 * MS;
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.stages_ms(0), [("injection", 50), ("path", 2)]);
    // A read that is recalled from the stall.
    t.group.set_injection(t.now, P0, None, Injection { stall: true, ..Injection::default() });
    assert_eq!(t.submit(1, Op::Read), []);
    assert_eq!(t.pass(301 * MS), [issue(P1, 1)]);
    t.now += 3 * MS;
    t.complete(P1, 1, Outcome::Success);
    assert_eq!(t.stages_ms(1), [("injection", 301), ("path", 3)]);
    assert_eq!((t.slow(1).paths, t.slow(1).attempts), (0b11, 2));
}

#[test]
fn a_retry_and_its_delay() {
    let mut t = Test::new();
    t.group.set_draining(t.now, P1, true);
    t.submit(0, Op::Read);
    t.now += 2 * MS;
    assert_eq!(t.complete(P0, 0, crate::retry(100 * MS)), []);
    assert_eq!(t.pass(100 * MS), [issue(P0, 0)]);
    t.now += 3 * MS;
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.stages_ms(0), [("path", 3), ("earlier-attempts", 2), ("retry", 100)]);
    assert_eq!((t.slow(0).attempts, t.slow(0).paths), (2, 0b01));
}

#[test]
fn a_fence_and_the_attempt_before() {
    let mut t = Test::new();
    t.submit(0, Op::Write);
    t.now += 10 * MS;
    t.group.path_lost(t.now, P0);
    t.complete(P0, 0, Outcome::Lost { indeterminate: true });
    t.now += 600 * MS;
    t.group.fence_lifted(t.now, P0, Epoch(1));
    assert_eq!(t.actions(), [issue(P1, 0)]);
    t.now += MS;
    t.complete(P1, 0, Outcome::Success);
    assert_eq!(t.stages_ms(0), [("path", 1), ("earlier-attempts", 10), ("fence", 600)]);
    assert_eq!((t.slow(0).attempts, t.slow(0).paths, t.slow(0).path), (2, 0b11, Some(P1)));
}

#[test]
fn a_flush_has_all_of_its_paths() {
    let mut t = Test::new();
    assert_eq!(t.submit(0, Op::Flush), [issue(P0, 0), issue(P1, 0)]);
    t.now += 5 * MS;
    t.complete(P0, 0, Outcome::Success);
    t.now += 20 * MS;
    assert_eq!(t.complete(P1, 0, Outcome::Success), [ok(0)]);
    assert_eq!((t.stages_ms(0), t.slow(0).paths, t.slow(0).path), (vec![("path", 25)], 0b11, None));
}

#[test]
fn an_injected_delay_is_found_among_ordinary_requests() {
    let mut t = Test::new();
    let (mut random, mut slow) = (1_u64, 0);
    for n in 0..3000_u32 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let is_injected = n % 30 == 0;
        if is_injected {
            t.group.set_injection(t.now, P0, None, Injection::latency(20 * MS));
        }
        let issued = t.submit(n % 8, if n % 3 == 0 { Op::Write } else { Op::Read });
        let issued = if is_injected { t.pass(20 * MS) } else { issued };
        assert_eq!(issued, [issue(P0, n % 8)]);
        t.now += Duration::from_micros(200 + random % 4000);
        t.complete(P0, n % 8, Outcome::Success);
        if is_injected {
            t.group.clear_injection(t.now, P0);
            slow += usize::from(t.slow(n % 8).stages.longest() == "injection");
        }
        t.pass(50 * MS);
    }
    assert!(slow >= 99, "{slow} of 100");
    let kept = t.group.slow_requests(t.now).filter(|of| of.stages.longest() == "injection").count();
    assert!(kept >= 99, "{kept} of 100 are still known");
}

/// A turn of the driver that begins after `time`, though the driver wanted to be woken after `due`.
fn turn_after(t: &mut Test, due: Duration, time: Duration) {
    let due = t.now + due;
    wake_after(&mut t.group, &mut t.now, Some(due), time);
}

#[test]
fn a_host_that_stands_still_is_no_slow_path() {
    let mut t = Test::new();
    t.submit(0, Op::Read);
    turn_after(&mut t, 50 * MS, 850 * MS);
    assert_eq!(t.complete(P0, 0, Outcome::Success), [ok(0)]);
    assert_eq!(t.stages_ms(0), [("path", 50), ("host", 800)]);
    t.submit(0, Op::Read);
    t.pass(30 * MS);
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.stages_ms(0), [("path", 30)], "the stall was before it");
}

/// The stall is in an earlier attempt, and in the wait for the next one.
#[test]
fn a_host_that_stands_still_is_to_blame_in_every_stage() {
    let mut t = Test::new();
    t.submit(0, Op::Read);
    turn_after(&mut t, 50 * MS, 250 * MS);
    let retry = Outcome::Retry { after: 100 * MS, cause: RetryCause::NotExecuted };
    assert_eq!(t.complete(P0, 0, retry), []);
    turn_after(&mut t, 100 * MS, 400 * MS);
    let issued = t.actions();
    let [Action::Issue { path, .. }] = issued[..] else { panic!("{issued:?}") };
    t.pass(5 * MS);
    assert_eq!(t.complete(path, 0, Outcome::Success), [ok(0)]);
    assert_eq!(t.stages_ms(0), [("path", 5), ("earlier-attempts", 50), ("retry", 100), ("host", 500)]);
}

#[test]
fn a_request_that_waited_in_its_virtqueue_waited_for_the_fence() {
    let mut t = Test::new();
    let held_since = t.now;
    t.now += 11_000 * MS;
    let io = Io { tag: Tag(0), op: Op::Read, bytes: 4096, disk: DiskId(0), flow: FlowId(0), fua: false };
    t.group.submit(t.now, io);
    t.group.waited_in_virtqueue(t.now, Tag(0), held_since, true);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.now += 30 * MS;
    assert_eq!(t.complete(P0, 0, Outcome::Success), [ok(0)]);
    assert_eq!(t.stages_ms(0), [("path", 30), ("fence", 11_000)]);
}

#[test]
fn a_request_that_came_during_a_stall_waited_for_the_host() {
    let mut t = Test::new();
    let began = t.now + 50 * MS;
    turn_after(&mut t, 50 * MS, 850 * MS);
    t.now += MS;
    let io = Io { tag: Tag(0), op: Op::Read, bytes: 4096, disk: DiskId(0), flow: FlowId(0), fua: false };
    t.group.submit(t.now, io);
    t.group.waited_in_virtqueue(t.now, Tag(0), began, false);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.now += 30 * MS;
    assert_eq!(t.complete(P0, 0, Outcome::Success), [ok(0)]);
    assert_eq!(t.stages_ms(0), [("queue", 1), ("path", 30), ("host", 800)]);
}

#[test]
fn a_guest_gets_its_requests_by_operation_from_the_virtqueue_to_the_answer() {
    let mut t = Test::new();
    t.submit(0, Op::Read);
    t.pass(4 * MS);
    t.complete(P0, 0, Outcome::Success);
    t.submit(0, Op::Write);
    t.pass(30 * MS);
    t.group.path_lost(t.now, P0);
    t.complete(P0, 0, Outcome::Lost { indeterminate: false });
    t.pass(20 * MS);
    t.complete(P1, 0, Outcome::Failed(IoError::Medium));
    let stats = t.group.stats(t.now);
    let [read, write, flush] = [Op::Read, Op::Write, Op::Flush].map(|op| stats.guests[0].of(op));
    assert_eq!([read, write, flush].map(|of| (of.ios(), of.bytes)), [(1, 4096), (1, 0), (0, 0)], "errors count");
    assert_eq!((read.latency.sum(), write.latency.sum()), (4 * MS, 50 * MS));
    assert_eq!(write.latency_1s.as_ref().map(|counts| counts.requests()), Some(1));
    let stages = stats.guests[0].long_stages;
    assert_eq!((stages.path, stages.earlier_attempts, stages.total()), (20 * MS, 30 * MS, 50 * MS), "one took 10 ms");
}

#[test]
fn a_minute_has_all_requests_that_ended_since_the_last_one_was_taken() {
    let mut t = Test::new();
    let request = |t: &mut Test, op, time| {
        t.submit(0, op);
        t.pass(time);
        t.complete(P0, 0, Outcome::Success);
    };
    let counts =
        |minute: &MinuteStats| minute.disks[0].latencies.each_ref().map(|of| of.as_ref().map(|of| of.requests()));
    request(&mut t, Op::Read, 200 * MS);
    request(&mut t, Op::Write, 250 * MS);
    request(&mut t, Op::Read, MS);
    assert_eq!(counts(&t.group.minute(t.now)), [Some(2), Some(1), None]);
    let minute = t.group.take_minute(t.now);
    assert_eq!((counts(&minute), minute.covered), ([Some(2), Some(1), None], 451 * MS));
    assert_eq!((minute.disks[0].slowest.unwrap().total, minute.disks[0].long_stages.path), (250 * MS, 450 * MS));
    assert_eq!((minute.paths.len(), minute.paths[0].path), (1, P0));
    request(&mut t, Op::Discard, 30 * MS);
    t.submit(0, Op::Read);
    t.pass(5 * MS);
    let next = t.group.take_minute(t.now);
    assert_eq!((counts(&next), next.covered), ([None, None, Some(1)], 35 * MS));
    assert_eq!(next.disks[0].slowest.unwrap().io.op, Op::Discard);
    assert_eq!((next.disks[0].long_stages.path, next.disks[0].oldest), (30 * MS, Some(5 * MS)));
    let mut both = minute;
    both.merge(&next);
    assert_eq!((counts(&both), both.disks[0].long_stages.path), ([Some(2), Some(1), Some(1)], 480 * MS));
    assert_eq!((both.covered, both.disks[0].slowest.unwrap().total), (451 * MS, 250 * MS));
    assert!(t.group.minute(t.now).paths.is_empty());
}

#[test]
fn a_stall_is_of_one_minute() {
    let mut t = Test::new();
    turn_after(&mut t, 50 * MS, 850 * MS);
    assert_eq!([t.group.minute(t.now).stalled, t.group.take_minute(t.now).stalled], [800 * MS; 2]);
    assert_eq!(t.group.take_minute(t.now).stalled, Duration::ZERO);
    turn_after(&mut t, 50 * MS, 250 * MS);
    assert_eq!(t.group.take_minute(t.now).stalled, 200 * MS);
}

#[test]
fn the_oldest_request_is_published_until_it_is_answered() {
    let disks = [SharedDisk::default(), SharedDisk::default()];
    let mut t = Test::with(GroupConfig::default(), &disks);
    let age = |t: &Test| disks.each_ref().map(|disk| disk.oldest.age(t.now).map(Duration::as_millis));
    t.submit(0, Op::Write);
    t.pass(300 * MS);
    t.submit(1, Op::Read);
    turn_after(&mut t, 50 * MS, 50 * MS);
    assert_eq!(age(&t), [Some(350), None]);
    t.now += 2000 * MS;
    assert_eq!(age(&t), [Some(2350), None], "the thread stands still");
    t.complete(P0, 0, Outcome::Success);
    turn_after(&mut t, 250 * MS, 250 * MS);
    assert_eq!(age(&t), [Some(2300), None], "the other one");
    assert_eq!(t.group.stats(t.now).guests[0].oldest, Some(2300 * MS));
    // The silent path was suspect.
    t.complete(P1, 1, Outcome::Success);
    assert_eq!(age(&t), [None, None]);
}

#[test]
fn a_wait_for_limits_makes_no_request_old() {
    let disk = SharedDisk::default();
    let mut t = Test::with(GroupConfig::default(), std::slice::from_ref(&disk));
    disk.limits.set(t.now, Limits { iops: NonZeroU64::new(1), bytes_per_s: None, burst: 1000 * MS });
    t.submit(0, Op::Read);
    t.submit(1, Op::Read);
    t.submit(2, Op::Read);
    t.complete(P0, 0, Outcome::Success);
    t.pass(1800 * MS);
    t.complete(P0, 1, Outcome::Success);
    turn_after(&mut t, 50 * MS, 50 * MS);
    let age = disk.oldest.age(t.now).unwrap();
    assert!(age < 100 * MS, "{age:?}");
}
