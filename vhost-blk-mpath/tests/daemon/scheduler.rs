//! Schedulers and limits, over real sockets.

use std::thread;
use std::time::{Duration, Instant};

use mpath_api::types::{EventKind, LimitStatus, SetLimits, SetScheduler, Tier};
use mpath_config::SchedulerKind;

use crate::support::{Daemon, Disk, PATIENCE, Target, Verification, VerificationSetup, eventually};

pub(crate) fn switch(daemon: &Daemon, scheduler: SchedulerKind, params: &[(&str, &str)]) -> String {
    let params = params.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let disks = daemon.api.set(&SetScheduler { name: scheduler, params }.into()).unwrap();
    disks[0].scheduler.unwrap().to_string()
}

fn limit(daemon: &Daemon, iops: &str, burst: &str) -> LimitStatus {
    let (iops, burst) = (Some(iops.parse().unwrap()), Some(burst.parse().unwrap()));
    daemon.api.set(&SetLimits { iops, burst, bandwidth: None }.into()).unwrap()[0].limits.unwrap()
}

fn reads(disk: &mut Disk, count: u64) -> Duration {
    let start = Instant::now();
    (0..count).for_each(|block| assert_eq!(disk.read(block * 4096), 0));
    start.elapsed()
}

#[test]
fn schedulers_switch_under_verification_and_show_every_virtqueue() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--io-threads 2 --window-ios 2");
    assert_eq!(daemon.api.disks(None).unwrap()[0].scheduler, Some(SchedulerKind::BurstCredit.into()));
    let verification = Verification::start(
        &daemon.socket(),
        VerificationSetup { queues: 4, depth: 16, ..VerificationSetup::default() },
    );
    for _ in 0..5 {
        for scheduler in SchedulerKind::ALL {
            assert_eq!(switch(&daemon, scheduler, &[]), scheduler.name());
            verification.goes_on(30);
        }
    }
    assert_eq!(switch(&daemon, SchedulerKind::BurstCredit, &[("share", "0.5")]), "burst-credit share=0.5");
    verification.goes_on(30);
    let detail = &daemon.api.scheduler_detail(Some("disk0")).unwrap()[0];
    assert_eq!(detail.queues.iter().map(|queue| queue.queue).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for queue in &detail.queues {
        assert!(queue.served > 0 && queue.served_bytes > 0 && queue.waited.is_some(), "{queue:?}");
    }
    verification.finish();
    let idle = &daemon.api.scheduler_detail(None).unwrap()[0];
    assert!(idle.queues.iter().all(|queue| queue.queued + queue.in_flight == 0), "{idle:?}");
    let events = daemon.api.events(0).unwrap().events;
    // The scheduler set first was already in force, so this caused no event.
    assert_eq!(events.iter().filter(|event| event.kind == EventKind::SchedulerSet).count(), 15);
}

/// Every scheduler takes over the waiting requests and those in flight from every other one.
#[test]
fn a_switch_every_10_ms_loses_nothing() {
    const SWITCHES: u32 = 150;
    let target = Target::start(2);
    // A small window, so that every virtqueue has waiting requests.
    let daemon = Daemon::start(&target.addrs(), "--io-threads 2 --window-ios 2");
    let verification = Verification::start(
        &daemon.socket(),
        VerificationSetup { queues: 4, depth: 16, ..VerificationSetup::default() },
    );
    verification.goes_on(30);
    let ([published, fifo], ours) = ([SchedulerKind::Published, SchedulerKind::Fifo], SchedulerKind::BurstCredit);
    let order = [published, ours, fifo, published, fifo, ours];
    let (start, before) = (Instant::now(), verification.completed());
    for (number, scheduler) in (0..SWITCHES).zip(order.into_iter().cycle()) {
        thread::sleep((start + number * Duration::from_millis(10)).saturating_duration_since(Instant::now()));
        assert_eq!(switch(&daemon, scheduler, &[]), scheduler.name());
    }
    assert!(verification.completed() > before, "nothing went while schedulers switched");
    verification.goes_on(300);
    verification.finish();
    let idle = &daemon.api.scheduler_detail(None).unwrap()[0];
    assert_eq!(idle.queues.len(), 4);
    assert!(idle.queues.iter().all(|queue| queue.served > 0 && queue.queued + queue.in_flight == 0), "{idle:?}");
}

/// The same holds for the tier of its disk.
#[test]
fn a_virtqueue_that_was_idle_is_sparse_until_its_burst_is_sent() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "--scheduler burst-credit");
    let mut disk = Disk::connect(&daemon.socket());
    let seen = || {
        let detail = daemon.api.scheduler_detail(None).unwrap().remove(0);
        let queue = detail.queues[0];
        assert_eq!((queue.queue, detail.tier), (0, Some(queue.tier)), "it is the disk's only one");
        queue
    };
    reads(&mut disk, 1);
    let queue = seen();
    assert_eq!((queue.tier, queue.credit, queue.served), (Tier::Sparse, Some(256), 1));

    // Each request costs 20 KiB of credit.
    assert_eq!(switch(&daemon, SchedulerKind::BurstCredit, &[("burst", "65536")]), "burst-credit burst=65536");
    assert_eq!(seen().credit, Some(4));
    target.set(0, "delay=2s");
    (0..4).for_each(|n| disk.submit_write(n, u64::from(n) * 4096, 1));
    let mut queue = seen();
    eventually("a burst is sent", || {
        queue = seen();
        queue.in_flight == 4
    });
    assert_eq!((queue.tier, queue.credit), (Tier::Bulk, Some(0)));
    target.set(0, "delay=0ms");
    (0..4).for_each(|_| assert!(disk.answer(PATIENCE).is_some()));
    disk.read(0);
    let queue = seen();
    assert_eq!((queue.tier, queue.credit), (Tier::Sparse, Some(4)), "it was idle");

    for (scheduler, tier, credit) in
        [(SchedulerKind::Published, Tier::Sparse, Some(64)), (SchedulerKind::Fifo, Tier::Bulk, None)]
    {
        switch(&daemon, scheduler, &[]);
        disk.read(0);
        let queue = seen();
        assert_eq!((queue.tier, queue.credit), (tier, credit), "{scheduler}");
    }
    assert_eq!(seen().served, 8);
}

#[test]
fn a_limit_holds_and_is_lifted_while_requests_wait_for_it() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "--limit-iops 100 --limit-burst 0ms");
    let mut disk = Disk::connect(&daemon.socket());
    reads(&mut disk, 20);
    let seen = daemon.api.disks(None).unwrap()[0].limits.unwrap();
    assert_eq!(seen.limits.to_string(), "iops 100, bandwidth off, burst 0ms");
    assert!(seen.balance_ios.is_some() && seen.throttled_ms > 0, "{seen:?}");

    // At one request per second, ten take ten seconds.
    limit(&daemon, "1", "0ms");
    (0..11_u16).for_each(|n| disk.submit_write(1 + n, u64::from(n) * 4096, 1));
    assert!(disk.answer(PATIENCE).is_some());
    let lifted = Instant::now();
    assert_eq!(limit(&daemon, "off", "1s").balance_ios, None);
    for _ in 0..10 {
        assert!(disk.answer(PATIENCE).is_some());
    }
    assert!(lifted.elapsed() < Duration::from_secs(9), "{:?}", lifted.elapsed());
}

/// What one I/O thread uses is not available to the others.
#[test]
fn a_limit_applies_to_all_io_threads_together() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "--io-threads 2 --limit-iops 500 --limit-burst 0ms");
    let start = Instant::now();
    let verification = Verification::start(
        &daemon.socket(),
        VerificationSetup { queues: 4, depth: 4, ..VerificationSetup::default() },
    );
    verification.goes_on(1000);
    let served: u64 = daemon.api.scheduler_detail(None).unwrap()[0].queues.iter().map(|queue| queue.served).sum();
    let allowed = start.elapsed().as_millis() as u64 / 2 + 3;
    assert!(served <= allowed, "{served} of {allowed}");
    limit(&daemon, "off", "0ms");
    verification.finish();
}
