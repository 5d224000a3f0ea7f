//! Decides: a run of the simulator has these links, latencies and faults.
//!
//! The plan of a run, which a seed decides: its parts, and its faults.

mod faults;
mod offline_growth;
mod replacements;
mod slow_arrays;

use monotonic::Duration;
use mpath_core::{FlowId, GroupConfig, Hedging, PolicyKind, SchedulerKind, Window};
use nvme_tcp::host::{ControllerConfig, HostIdentity};
use nvme_tcp::wire::{Digests, Nqn, Status};
use nvme_tcp_target::QueueLimits;

use self::faults::{
    closures, deaf_nodes, discovery_away, drains, faults, faults_of_discovery, faults_of_disks, faults_of_tls,
    fewer_queues, hang_ups, odd_identities, pairs, power_loss, protocol_faults, queue_stops, restarts, statuses,
    stops_in_outages, truncations,
};
use self::offline_growth::offline_growth;
use self::replacements::replacements;
use crate::discovery_controllers::{DiscoveryControllerPlan, DiscoveryPlan};
use crate::fault::{Fault, PlannedFault};
use crate::guest::{GuestPlan, RingPlan};
use crate::host::{DiskPlan, HostPlan};
use crate::net::LinkPlan;
use crate::rng::Rng;
use crate::target::{AnaPlan, CrossResetPlan, IoClose, NamespacePlan, TargetPlan, WriteCache};
use crate::tls::{SUITES, TlsPlan};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// The plan of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// By path, and then by discovery controller.
    pub(crate) links: Vec<LinkPlan>,
    pub(crate) target: TargetPlan,
    pub(crate) host: HostPlan,
    /// The discovery controllers, if paths are discovered.
    pub(crate) discovery: Option<DiscoveryPlan>,
    /// By disk.
    pub(crate) guests: Vec<GuestPlan>,
    /// The disk that no fault concerns, and whose paths all stay.
    pub(crate) spared: Option<usize>,
    /// Nothing fails, and all nodes are slow.
    pub(crate) only_slow: bool,
    pub(crate) faults: Vec<PlannedFault>,
    /// When every fault has ended.
    pub(crate) quiet: Duration,
    /// The longest time after that until every request is answered.
    pub(crate) patience: Duration,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let rng = &mut Rng::new(seed, 0);
        let paths = rng.range(2, 4) as usize;
        let kato = rng.pick(&[250 * MS, 500 * MS, 1000 * MS, 2000 * MS]);
        let lifetime = kato / 4;
        let mut links: Vec<_> = (0..paths).map(|_| link(rng, lifetime)).collect();
        let digests = rng.pick(&[(false, false), (true, true), (true, true), (true, false), (false, true)]);
        let digests = Digests { header: digests.0, data: digests.1 };
        let of_disks = &mut Rng::new(seed, 0xd15c);
        let namespaces = namespaces(of_disks);
        let disks = namespaces.len();
        let mut target = target(rng, paths, kato, lifetime, namespaces);
        if target.write_cache == WriteCache::OfEachNode && Rng::new(seed, 0x5ca7).percent(25) {
            target.write_cache = WriteCache::Shared;
        }
        let of_ana = &mut Rng::new(seed, 0xa4a);
        target.ana = AnaPlan {
            others: of_ana.pick(&[0, 0, 300, 1000]),
            is_unlisted: of_ana.percent(50),
            moves: of_ana.percent(50),
        };
        target.io_queues = Rng::new(seed, 0x10c6).pick(&[8, 8, 8, 1, 2]);
        target.piecemeal = Rng::new(seed, 0x91ec).percent(50);
        target.ends_with_any_connection = Rng::new(seed, 0x0fc5).percent(25);
        let of_drains = &mut Rng::new(seed, 0xd7a1);
        if of_drains.percent(30) {
            target.io_close = IoClose::OnceExecuted;
        }
        let has_large_reads = Rng::new(seed, 0x1a46).percent(20);
        if has_large_reads {
            links.iter_mut().for_each(LinkPlan::make_fast);
            target.send_large_data();
        } else {
            limit_write_zeroes(&mut Rng::new(seed, 0x02e5), &mut target);
        }
        let mut host = host(rng, paths, kato, digests, &target);
        if Rng::new(seed, 0x7100).percent(30) {
            // Less than half of most KATOs.
            host.controller.command_timeout = 300 * MS;
        }
        host.group.hedging = hedging(&mut Rng::new(seed, 0x4ed6));
        let of_tls = &mut Rng::new(seed, 0x715);
        if of_tls.percent(43) && !target.drains() {
            let ControllerConfig { host: HostIdentity { hostnqn, .. }, subnqn, .. } = &host.controller;
            host.tls = Some(TlsPlan::new(of_tls.pick(&SUITES), hostnqn, subnqn));
        }
        host.record_fails_percent = Rng::new(seed, 0xf5bc).pick(&[0, 0, 0, 20]);
        let quiet = rng.between(Duration::from_secs(10), Duration::from_secs(30));
        let mut guests: Vec<_> = (0..disks).map(|disk| guest(rng, &host, &target, disk, quiet)).collect();
        if has_large_reads {
            for guest in &mut guests {
                (guest.longest, guest.longest_zeroes) = (32, guest.longest_zeroes.max(32));
            }
        }
        let of_rings = &mut Rng::new(seed, 0x9ac3);
        for guest in &mut guests {
            (guest.rings.are_packed, guest.rings.have_log) = (of_rings.percent(40), of_rings.percent(90));
        }
        let of_drivers = &mut Rng::new(seed, 0xd41e);
        for guest in &mut guests {
            guest.rings.ignore_limits = of_drivers.percent(25);
        }
        let spared = (disks > 1 && of_disks.percent(20)).then(|| of_disks.index(disks));
        let of_slow = &mut Rng::new(seed, 0x510a);
        let all_slow_by = slow_arrays::uniform(of_slow, &host.group).filter(|_| spared.is_none());
        let is_calm = spared.is_some() || all_slow_by.is_some();
        let mut faults = if is_calm { Vec::new() } else { faults(rng, paths, quiet, digests.header || digests.data) };
        if let Some(by) = all_slow_by {
            slow_arrays::without_extra_reads(of_slow, &mut host.group);
            target.send_reads_whole();
            faults.extend(slow_arrays::all_slow(by, paths, quiet));
        } else {
            faults.extend(faults_of_disks(of_disks, paths, disks, spared, quiet));
            faults.extend(truncations(&mut Rng::new(seed, 0x7214), disks, spared, quiet));
        }
        if !is_calm {
            faults.extend(slow_arrays::slow_times(of_slow, paths, quiet));
            faults.extend(deaf_nodes(&mut Rng::new(seed, 0xdeaf), paths, quiet));
            faults.extend(hang_ups(&mut Rng::new(seed, 0x4a46), disks, quiet));
            faults.extend(queue_stops(&mut Rng::new(seed, 0x5709), disks, quiet));
            faults.extend(restarts(&mut Rng::new(seed, 0x7e57), quiet));
            faults.extend(replacements(&mut Rng::new(seed, 0x9e91), paths, quiet));
            faults.extend(closures(&mut Rng::new(seed, 0xe4d5), paths, quiet));
            faults.extend(protocol_faults(&mut Rng::new(seed, 0x4057), paths, quiet));
            faults.extend(fewer_queues(&mut Rng::new(seed, 0x10c5), paths, quiet));
            faults.extend(odd_identities(&mut Rng::new(seed, 0x0dd1), paths, disks, quiet));
            faults.extend(statuses(&mut Rng::new(seed, 0x57a7), paths, quiet));
            faults.extend(power_loss(&mut Rng::new(seed, 0x9012), paths, quiet));
            faults.extend(pairs(&mut Rng::new(seed, 0x9a12), paths, disks, quiet));
            faults.extend(stops_in_outages(&mut Rng::new(seed, 0x57a6), paths, disks, quiet));
        }
        if !is_calm {
            if host.tls.is_some() {
                faults.extend(faults_of_tls(of_tls, paths, quiet));
            }
            if target.drains() {
                faults.extend(drains(of_drains, paths, quiet));
            }
            faults.extend(migrations(&mut Rng::new(seed, 0xd127), disks, quiet));
            let growth = growth(&mut Rng::new(seed, 0x6704), &mut target, &mut host, &mut guests, quiet);
            faults.extend(offline_growth(&mut Rng::new(seed, 0x0ff6), &growth, paths, quiet));
            faults.extend(growth);
        }
        let of_discovery = &mut Rng::new(seed, 0xd15c_04e4);
        let mut discovery = (!is_calm && of_discovery.percent(30)).then(|| discovery(of_discovery, paths));
        if let Some(plan) = &mut discovery {
            faults.extend(faults_of_discovery(of_discovery, plan, quiet));
            let of_habits = &mut Rng::new(seed, 0xd15c_4ab1);
            plan.controllers.iter_mut().for_each(|of| of.keeps_connections = of_habits.percent(80));
            faults.extend(discovery_away(of_habits, plan, quiet));
            links.extend(plan.controllers.iter().map(|_| link(of_discovery, lifetime)));
        }
        if spared.is_some() {
            // Then a request of the spared disk takes long only for a reason.
            links.iter_mut().for_each(LinkPlan::make_fast);
            host.record_fails_percent = 0;
            guests.iter_mut().for_each(GuestPlan::make_light);
        }
        let first_flow = |disk: usize| guests[..disk].iter().map(|guest| guest.flows as u16).sum();
        for (index, disk) in host.disks.iter_mut().enumerate() {
            disk.first_flow = FlowId(first_flow(index));
            disk.queues = guests[index].flows as u16;
            disk.requests_max = (guests[index].flows * guests[index].depth) as u64;
        }
        // A connection is given up after 30 s if its end was not heard. Then come keep-alive, fence and a few attempts to
        // connect. Requests that were queued, held or to be retried follow.
        let mut patience = kato * 8 + Duration::from_secs(75);
        if discovery.is_some() {
            patience += mpath_lifecycle::discovery::POLL_INTERVAL;
        }
        if host.drain_fence {
            patience += Duration::from_secs(6);
        }
        let only_slow = all_slow_by.is_some();
        // A fault that is planned to follow another one may fall behind `quiet`.
        faults.retain(|fault| fault.begins < quiet);
        Self { links, target, host, discovery, guests, spared, only_slow, faults, quiet, patience }
    }
}

/// Some targets limit Write Zeroes and do not say so. Their disks are large enough for it.
fn limit_write_zeroes(rng: &mut Rng, target: &mut TargetPlan) {
    if rng.percent(15) {
        let too_large = rng.pick(&[Status::INVALID_FIELD, Status::CONNECT_RESTART_DISCOVERY]);
        target.write_zeroes_limit = Some((rng.pick(&[128, 200, 256]), too_large.with_dnr()));
        target.namespaces.iter_mut().for_each(|namespace| (namespace.blocks, namespace.block_shift) = (512, 9));
    }
}

/// Migrations until `quiet`.
fn migrations(rng: &mut Rng, disks: usize, quiet: Duration) -> Vec<PlannedFault> {
    let count = rng.pick(&[0, 0, 1, 4]);
    let one = |_| {
        let begins = rng.up_to(quiet * 9 / 10);
        let lasts = rng.up_to(Duration::from_secs(4)).min(quiet.saturating_sub(begins));
        let fault = Fault::Migrate { disk: rng.index(disks), is_cancelled: rng.percent(25) };
        PlannedFault { fault, begins, lasts }
    };
    (0..count).map(one).collect()
}

/// Some namespaces begin with half their blocks. Each node reports the others in its own time.
fn growth(
    rng: &mut Rng,
    target: &mut TargetPlan,
    host: &mut HostPlan,
    guests: &mut [GuestPlan],
    quiet: Duration,
) -> Vec<PlannedFault> {
    let mut faults = Vec::new();
    for (disk, guest) in guests.iter_mut().enumerate() {
        if !rng.percent(20) {
            continue;
        }
        guest.first_blocks = guest.blocks / 2;
        guest.longest = guest.longest.min(guest.first_blocks);
        guest.longest_zeroes = guest.longest_zeroes.min(guest.first_blocks);
        host.disks[disk].namespace.blocks = guest.first_blocks;
        target.start_small(disk, guest.first_blocks);
        let begins = rng.up_to(quiet / 2);
        for node in 0..target.nodes {
            let begins = begins + rng.up_to(Duration::from_secs(4));
            faults.push(PlannedFault { fault: Fault::GrowNamespace { node, disk }, begins, lasts: Duration::ZERO });
        }
    }
    faults
}

impl TargetPlan {
    fn start_small(&mut self, disk: usize, blocks: u64) {
        let of_disk = self.namespaces.iter_mut().filter(|namespace| namespace.disk == disk);
        of_disk.for_each(|namespace| namespace.first_blocks = blocks);
    }

    /// No limit of a controller splits a read.
    fn send_reads_whole(&mut self) {
        self.namespaces.iter_mut().for_each(|namespace| namespace.noiob = 0);
        self.limits.max_transfer_bytes = 1 << 20;
    }

    /// Namespaces and PDUs are large enough for reads into guest memory without a copy.
    fn send_large_data(&mut self) {
        self.namespaces.iter_mut().for_each(|namespace| (namespace.blocks, namespace.block_shift) = (64, 12));
        self.limits.max_transfer_bytes = 1 << 20;
        self.limits.max_c2h_data_bytes = 256 << 10;
        self.limits.transfer_budget_bytes = 8 << 20;
    }
}

impl LinkPlan {
    /// No slower than a network in a rack.
    fn make_fast(&mut self) {
        (self.latency, self.jitter) = (self.latency.min(100 * US), self.jitter.min(50 * US));
        self.bytes_per_second = self.bytes_per_second.max(20_000_000);
    }
}

fn link(rng: &mut Rng, lifetime: Duration) -> LinkPlan {
    LinkPlan {
        latency: rng.pick(&[20 * US, 100 * US, 500 * US, 5 * MS]),
        jitter: rng.pick(&[Duration::ZERO, 50 * US, 2 * MS]),
        bytes_per_second: rng.pick(&[1_000_000, 20_000_000, 1_000_000_000]),
        fragment_max: rng.pick(&[100, 1460, 9000, 65536]),
        socket_bytes: rng.pick(&[4096, 65536, 1 << 20]),
        lifetime,
    }
}

/// Fragments and limits that make PDUs of every shape.
fn limits(rng: &mut Rng) -> QueueLimits {
    QueueLimits {
        in_capsule_bytes: rng.pick(&[0, 512, 4096, 8192, 128 << 10, 1 << 20]),
        max_transfer_bytes: rng.pick(&[8192, 16384, 1 << 20]),
        max_h2c_data_bytes: rng.pick(&[4096, 8192, 128 << 10]),
        max_r2t_bytes: rng.pick(&[512, 4096, 12288, 1 << 20]),
        max_c2h_data_bytes: rng.pick(&[512, 1024, 4096, 256 << 10]),
        transfer_budget_bytes: rng.pick(&[4096, 32768, 8 << 20]),
        cpda: rng.pick(&[0, 0, 0, 3, 31]),
    }
}

/// One namespace for each disk, in any order.
fn namespaces(rng: &mut Rng) -> Vec<NamespacePlan> {
    let disks = rng.pick(&[1, 1, 2, 2, 3]);
    let mut namespaces: Vec<_> = (0..disks)
        .map(|disk| NamespacePlan {
            disk,
            blocks: rng.pick(&[8, 16, 64]),
            block_shift: rng.pick(&[9, 9, 12]),
            noiob: rng.pick(&[0, 0, 5, 8]),
            first_blocks: u64::MAX,
        })
        .collect();
    namespaces.rotate_left(rng.index(disks));
    namespaces
}

fn target(
    rng: &mut Rng,
    nodes: usize,
    kato: Duration,
    lifetime: Duration,
    namespaces: Vec<NamespacePlan>,
) -> TargetPlan {
    let tbkas = rng.percent(30);
    let cqt = if rng.percent(30) { Duration::ZERO } else { rng.pick(&[100 * MS, 1000 * MS, 3000 * MS]) };
    // A host may assume this time if the target does not report CQT (vhost-blk-mpath's margin).
    let quiesce = if cqt.is_zero() { Duration::from_secs(1) } else { cqt };
    // The target may check a timer only once in a KATO. With TBKAS, the last traffic may have been one KATO earlier.
    let periods = if tbkas { 2 } else { 1 };
    // The target counts in tenths of a second.
    let kept = 100 * MS * kato.as_millis().div_ceil(100) as u32;
    let slack_max = (kept * periods).saturating_sub(lifetime + 20 * MS);
    TargetPlan {
        nqn: nqn(),
        nodes,
        processes: rng.pick(&[1, 1, 2]),
        cross_reset: cross_reset(rng),
        namespaces,
        limits: limits(rng),
        max_entries: rng.pick(&[4, 32, 128]),
        keeps_flow_control: rng.percent(30),
        write_cache: if rng.percent(75) { WriteCache::OfEachNode } else { WriteCache::None },
        cqt,
        tbkas,
        crdt: [1, 5, 20],
        quiesce: quiesce.saturating_sub(2 * MS),
        timer_slack: if rng.percent(50) { slack_max } else { rng.up_to(slack_max) },
        service: rng.pick(&[20 * US, 200 * US, 3 * MS]),
        write_zeroes_limit: None,
        piecemeal: false,
        ana: AnaPlan { others: 0, is_unlisted: false, moves: false },
        io_queues: 8,
        io_close: IoClose::AtOnce,
        ends_with_any_connection: false,
    }
}

fn cross_reset(rng: &mut Rng) -> CrossResetPlan {
    CrossResetPlan {
        offered: rng.percent(50),
        refused_percent: rng.pick(&[0, 0, 30]),
        begun_percent: rng.pick(&[0, 0, 50]),
        deadly_percent: rng.pick(&[0, 0, 20]),
        takes: rng.pick(&[US, 20 * MS, 500 * MS]),
    }
}

fn nqn() -> Nqn {
    Nqn::new("nqn.2026-01.io.example:sim").expect("a name")
}

fn host(rng: &mut Rng, paths: usize, kato: Duration, digests: Digests, target: &TargetPlan) -> HostPlan {
    let threads = rng.range(1, 3) as usize;
    let disks = target.disks();
    let block = disks[0].1.block_bytes() as u64;
    let window = Window { ios: rng.pick(&[1, 4, 128]), bytes: rng.pick(&[block, 8 * block, 8 << 20]) };
    HostPlan {
        threads,
        paths,
        group: GroupConfig {
            policy: rng.pick(&PolicyKind::ALL).into(),
            // Not drawn, because a further draw would change the runs of all seeds.
            scheduler: SchedulerKind::ALL[(paths + threads) % SchedulerKind::ALL.len()].into(),
            window,
            max_retries: rng.pick(&[0, 5, 5]),
            max_failovers: rng.pick(&[1, 16, 16]),
            shared_write_cache: target.write_cache == WriteCache::Shared,
            suspect_timeout: rng.pick(&[50 * MS, 300 * MS, 2000 * MS]),
            // Not drawn for the same reason.
            io_timeout: [1, 5, 30].map(Duration::from_secs)[(paths + threads) % 3],
            no_path_timeout: rng.percent(25).then(|| rng.pick(&[500 * MS, 3000 * MS, 10_000 * MS])),
            hedging: None,
            seed: 0,
        },
        controller: ControllerConfig {
            host: HostIdentity { hostnqn: Nqn::new("nqn.2026-01.io.example:host").expect("a name"), hostid: [1; 16] },
            subnqn: nqn(),
            // The host need not name the only namespace.
            nsids: if disks.len() == 1 { Vec::new() } else { disks.iter().map(|(nsid, _)| *nsid).collect() },
            keep_alive_tmo: kato,
            digests,
            io_queues: threads as u16,
            queue_entries: rng.pick(&[4, 32, 128]),
            max_transfer_bytes: None,
            command_timeout: Duration::from_secs(5),
            authentication: None,
            is_encrypted: false,
        },
        reconnect_delay: rng.pick(&[50 * MS, 500 * MS, 2000 * MS]),
        drain_fence: target.drains(),
        tls: None,
        record_fails_percent: 0,
        disks: disks
            .iter()
            .map(|&(nsid, namespace)| DiskPlan {
                namespace: namespace.identity(nsid),
                block_bytes: namespace.block_bytes() as u32,
                first_flow: FlowId(0),
                queues: 0,
                requests_max: 0,
            })
            .collect(),
    }
}

/// One discovery controller or two. The first always lists path 0.
fn discovery(rng: &mut Rng, paths: usize) -> DiscoveryPlan {
    let many = rng.pick(&[1, 2, 2]);
    let (sends_referrals, lists_all) = (rng.percent(50), rng.percent(50));
    DiscoveryPlan {
        controllers: (0..many)
            .map(|_| {
                let (accepts_persistent, sends_events) = (rng.percent(80), rng.percent(80));
                DiscoveryControllerPlan { accepts_persistent, sends_events, keeps_connections: true }
            })
            .collect(),
        sends_referrals,
        lists: (0..many).map(|index| (0..paths).map(|node| index > 0 || node == 0 || lists_all).collect()).collect(),
        configured: (0..paths).map(|_| rng.percent(15)).collect(),
    }
}

/// Hedging, often far more than an operator would set, so that many reads are hedged.
fn hedging(rng: &mut Rng) -> Option<Hedging> {
    let hedging =
        Hedging { quantile_permille: rng.pick(&[500, 500, 900, 990]), budget_permille: rng.pick(&[50, 1000, 1000]) };
    rng.percent(60).then_some(hedging)
}

fn guest(rng: &mut Rng, host: &HostPlan, target: &TargetPlan, disk: usize, quiet: Duration) -> GuestPlan {
    let (_, namespace) = target.disks()[disk];
    let flows = host.threads * rng.range(1, 2) as usize;
    let depth = rng.range(1, 8) as usize;
    // The think time depends on the requests under way, so that a run has some thousands of requests.
    let requests = rng.pick(&[500, 2000, 4000]) / host.disks.len() as u32;
    let think = quiet * (flows * depth) as u32 / requests;
    let longest = rng.pick(&[2, 8, 32]).min(namespace.blocks);
    GuestPlan {
        flows,
        depth,
        think,
        blocks: namespace.blocks,
        first_blocks: namespace.blocks,
        longest,
        longest_zeroes: target.write_zeroes_limit.map_or(longest, |_| namespace.blocks),
        shares: [rng.range(20, 60), rng.range(20, 60), rng.below(10), rng.below(10), rng.below(25)],
        writeback: rng.pick(&[true, true, true, false]),
        rings: RingPlan { has_event_idx: rng.percent(50), are_packed: false, have_log: true, ignore_limits: false },
        until: quiet + Duration::from_secs(2),
    }
}
