//! The settings of the three schedulers, which differ in nothing else.
//!
//! * `burst-credit` is ours. A request costs its bytes and `io-cost`.
//! * `published` is the SUNRPC rule of the path-selection literature ("sparse-flow dispatch"). The first 64 requests
//!   of a flow that was idle go strictly before those of busy flows, whatever their size.
//! * `fifo` has no bursts: flows take turns, one request each. The literature calls this "plain". It is not one queue
//!   in order of arrival: 32 requests among K deep flows take 32 (K + 1) services there (`mpath-sim bursts` reproduces
//!   both).

use monotonic::Duration;

use super::{SchedulerKind, SchedulerSpec};
use crate::Param;

const MS: Duration = Duration::from_millis(1);
/// A turn of a sparse member is this part of the burst.
const TURNS_OF_BURST: u64 = 32;
/// The burst of the published rule, in requests.
const PUBLISHED_BURST: u64 = 64;
/// Credit is reported in requests of this size.
const USUAL_BYTES: u32 = 4096;

/// Parameters of `burst-credit`.
pub(super) const PARAMS: &[Param] = &[
    Param::whole(
        "burst",
        "bytes",
        (64 << 10, 1 << 30),
        5 << 20,
        "cost that a flow or disk that was idle sends before it is bulk",
    ),
    Param::ratio("share", (100, 950), 750, "most of the service that sparse flows and disks get while bulk waits"),
    Param::time(
        "gap",
        (MS, Duration::from_secs(10)),
        Duration::from_millis(150),
        "longest time that sparse holds bulk back",
    ),
    Param::whole("io-cost", "bytes", (512, 1 << 20), 16384, "cost of a request in addition to its bytes"),
];

/// The settings of a scheduler. Costs are in bytes, or in requests if sizes do not count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// The cost of a request, in addition to its bytes.
    io_cost: u64,
    sizes_count: bool,
    /// The cost that a member sends after it was idle, before it is bulk.
    pub(super) burst: u64,
    /// The cost that a new member sends before it is bulk. A new member gains nothing by being new.
    pub(super) first_burst: u64,
    /// The cost that a sparse member sends in its turn.
    pub(super) turn: u64,
    /// The share of the service that sparse members get while bulk waits, in thousandths; 1000: all.
    pub(super) share: u64,
    /// The most that the allowance holds.
    pub(super) allowance_max: i64,
    /// How long sparse members may pass bulk.
    pub(super) gap: Duration,
}

impl Settings {
    pub(super) fn new(spec: &SchedulerSpec) -> Self {
        let by_requests = Self {
            io_cost: 1,
            sizes_count: false,
            burst: 0,
            first_burst: 0,
            turn: 0,
            share: 1000,
            allowance_max: 0,
            gap: Duration::MAX,
        };
        match spec.kind() {
            SchedulerKind::Fifo => by_requests,
            SchedulerKind::Published => Self { burst: PUBLISHED_BURST, first_burst: PUBLISHED_BURST, ..by_requests },
            SchedulerKind::BurstCredit => {
                let burst = spec.number("burst");
                let turn = burst / TURNS_OF_BURST;
                let (io_cost, share, gap) = (spec.number("io-cost"), spec.number("share"), spec.time("gap"));
                let allowance_max = ((1000 - share) * burst / 1000).cast_signed();
                Self { io_cost, sizes_count: true, burst, first_burst: turn, turn, share, allowance_max, gap }
            }
        }
    }

    /// The cost of a request.
    pub(super) fn cost(&self, bytes: u32) -> u64 {
        self.io_cost + if self.sizes_count { bytes.into() } else { 0 }
    }

    /// The number of requests of 4 KiB that this cost covers; `None` if no member is sparse.
    pub(super) fn credit_in_requests(&self, cost: u64) -> Option<u64> {
        (self.burst > 0).then(|| cost.div_ceil(self.cost(USUAL_BYTES)))
    }
}
