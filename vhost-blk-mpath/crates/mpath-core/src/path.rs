//! Paths: one association with one controller at a time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::dirty::Life;
use crate::inject::Impaired;
use crate::overdue::Overdue;
use crate::quantiles::Quantiles;
use crate::recent::Recent;
use crate::requests::InFlightList;
use crate::retry::Hold;
use crate::stats::ClassStats;
use crate::watch::Watch;
use crate::window::Usage;
use crate::{AnaState, AnaStates, DiskId, Epoch, OpClass, Tag, Window};

/// Reads from which a path is judged at least: one is no evidence.
const SAMPLES_MIN: u64 = 8;

/// What stays true of a path over reconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathConfig {
    /// Distance between the I/O thread's NUMA node and the path's network device, on the scale of ACPI's SLIT (10 is
    /// local, as in `/sys/devices/system/node/node*/distance`).
    pub numa_distance: u32,
}

impl Default for PathConfig {
    /// Local.
    fn default() -> Self {
        Self { numa_distance: 10 }
    }
}

/// What a fresh connection found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Association {
    /// Greater than that of every earlier association of the path, and of paths that had its id before.
    pub epoch: Epoch,
    /// ANA states of the disks' namespaces.
    pub ana: AnaStates,
    /// The controller has a volatile write cache (Identify Controller, VWC bit 0): completed writes need a flush to be
    /// durable.
    pub volatile_write_cache: bool,
    /// Requests the queue pair can take; bounds the window on this path.
    pub queue_depth: u16,
}

#[derive(Debug)]
pub(crate) struct Path {
    /// There is a path of this id.
    pub(crate) added: bool,
    pub(crate) config: PathConfig,
    /// `None` while the path is down.
    pub(crate) association: Option<Association>,
    pub(crate) last_epoch: Option<Epoch>,
    pub(crate) usage: Usage,
    /// The same by class, without flushes.
    pub(crate) by_class: [Usage; 3],
    /// What the path is to each disk.
    pub(crate) of_disk: Vec<OfDisk>,
    /// Of the live association.
    pub(crate) watch: Watch,
    pub(crate) overdue: Overdue,
    /// By class: when the latest of the answered requests was bound.
    pub(crate) answered_to: [Option<Instant>; 3],
    /// No command of the live association is as old as the I/O timeout before. `None`: there is no command.
    pub(crate) expires_at: Option<Instant>,
    /// `None` while no injection is in force.
    pub(crate) impaired: Option<Box<Impaired>>,
    /// What measures it at present, without a request of the guest.
    pub(crate) probe: Option<Probe>,
    /// It is given nothing new but the flushes it owes; stays so over associations.
    pub(crate) draining: bool,
    /// Requests in flight by class, oldest first, without flushes.
    pub(crate) in_flight: [InFlightList; 3],
    /// Indeterminate requests and the associations whose fence they wait for.
    pub(crate) fenced: Vec<(Epoch, Tag)>,
    pub(crate) stats: [ClassStats; 3],
    pub(crate) recent: [Recent; 3],
    /// The median of what reads take here, hedges included, while reads are hedged.
    pub(crate) reads: Quantiles,
    /// How often the path became suspect.
    pub(crate) suspicions: u64,
    /// Reads recalled from it.
    pub(crate) recalled: u64,
    /// Probes of it that were sent.
    pub(crate) probes: u64,
    /// Hedges that were sent here, and those of them that answered first.
    pub(crate) hedges: u64,
    pub(crate) hedges_won: u64,
    /// Requests that have failed for good since one succeeded.
    pub(crate) failed_in_row: u32,
}

/// What a path is to one disk.
#[derive(Debug)]
pub(crate) struct OfDisk {
    /// It has answered with a path error; most of these are about the namespace.
    pub(crate) hold: Hold,
    /// Flushes that have to be sent there and wait for it.
    pub(crate) flushes: VecDeque<Tag>,
    /// Of the live association, or the last one.
    pub(crate) life: Life,
    /// Since when the first of them has been seen to wait for it to be usable.
    pub(crate) unusable_since: Option<Instant>,
}

impl OfDisk {
    fn new() -> Self {
        Self { hold: Hold::default(), flushes: VecDeque::new(), life: Epoch(0).into(), unusable_since: None }
    }
}

/// A read of existing data that nobody waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) began: Instant,
    /// Whose data it reads.
    pub(crate) disk: DiskId,
    pub(crate) bytes: u32,
    /// It is to fail, by the injection of the path.
    pub(crate) fails: bool,
    pub(crate) state: ProbeState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeState {
    /// Held by the injection of the path.
    Injected,
    /// To be given to the driver.
    Released,
    /// With the driver.
    Issued,
    /// Answered, with this success, and held by the injection of the path.
    Answered(bool),
}

impl Path {
    /// Of an id that no path has, beside so many disks.
    pub(crate) fn vacant(suspect_timeout: Duration, disks: usize) -> Self {
        Self {
            added: false,
            config: PathConfig::default(),
            association: None,
            last_epoch: None,
            usage: Usage::default(),
            by_class: [Usage::default(); 3],
            of_disk: (0..disks).map(|_| OfDisk::new()).collect(),
            watch: Watch::new(suspect_timeout),
            overdue: Overdue::new(suspect_timeout),
            answered_to: [None; 3],
            expires_at: None,
            impaired: None,
            probe: None,
            draining: false,
            in_flight: [InFlightList::default(); 3],
            fenced: Vec::new(),
            stats: std::array::from_fn(|_| ClassStats::new()),
            recent: [Recent::default(); 3],
            reads: Quantiles::new(500, SAMPLES_MIN),
            suspicions: 0,
            recalled: 0,
            probes: 0,
            hedges: 0,
            hedges_won: 0,
            failed_in_row: 0,
        }
    }

    /// Nothing is owed, and nothing known of an association.
    pub(crate) fn begin_watch(&mut self, suspect_timeout: Duration) {
        self.watch = Watch::new(suspect_timeout);
        self.overdue = Overdue::new(suspect_timeout);
        self.answered_to = [None; 3];
        self.expires_at = None;
    }

    /// The driver is given a command, or an injection stalls one, which ages from now on.
    pub(crate) fn issued(&mut self, now: Instant, io_timeout: Duration) {
        self.expires_at.get_or_insert(now + io_timeout);
    }

    /// Nothing expires where nothing is owed.
    pub(crate) fn settle_expiry(&mut self) {
        if !self.owes() {
            self.expires_at = None;
        }
    }

    /// Whether a command of the live association has no answer, or looks as if it had none.
    pub(crate) fn owes(&self) -> bool {
        self.watch.owes() || self.probe.is_some_and(|probe| probe.state == ProbeState::Issued)
    }

    /// Whether the path can take one more request now, being live. The window is about what is waited for; the queue pair
    /// holds what was abandoned too.
    pub(crate) fn has_room(&self, window: Window, bytes: u32) -> bool {
        let depth = self.association.map_or(0, |association| association.queue_depth);
        let probing = u32::from(self.probe.is_some());
        self.usage.ios + self.watch.abandoned() + probing < depth.into() && self.usage.has_room(window, bytes)
    }

    /// Counts a request that succeeded, so long after the group began.
    pub(crate) fn record_success(&mut self, class: OpClass, bytes: u32, latency: Duration, at: Duration) {
        self.stats[class.index()].record_success(bytes, latency);
        self.recent[class.index()].record(at);
    }

    /// The counters as of so long after the group began.
    pub(crate) fn class_stats(&self, at: Duration) -> [ClassStats; 3] {
        let mut classes = self.stats.clone();
        for (class, recent) in classes.iter_mut().zip(&self.recent) {
            (class.ios_1s, class.ios_60s) = recent.counts(at);
        }
        classes
    }

    /// The state in which the path may be given I/O of that disk, or `None`.
    pub(crate) fn usable(&self, now: Instant, disk: DiskId) -> Option<AnaState> {
        let ana = self.association.as_ref()?.ana.of(disk);
        (ana.is_selectable() && !self.of_disk[disk.index()].hold.is_on(now)).then_some(ana)
    }

    /// Whether the namespace of that disk takes I/O on this path, but for a rest.
    pub(crate) fn leads_to(&self, disk: DiskId) -> bool {
        self.association.as_ref().is_some_and(|live| live.ana.of(disk).is_selectable())
    }
}
