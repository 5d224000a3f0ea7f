//! What is measured: sweeps, each of which changes one dimension of a common base.

use clap::ValueEnum;
use std::fmt;
use vublk_bench::harness::PlannedRow;
use vublk_bench::stack::Disks;

/// The dimension that a sweep changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sweep {
    /// Disks, with paths of their own and with shared paths, all busy
    Disks,
    /// Virtqueues of a disk, with one and two I/O threads
    Virtqueues,
    /// Paths of a disk
    Paths,
    /// Requests in flight
    Requests,
    /// One busy disk among idle ones
    Idle,
}

/// A daemon and its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) disks: Disks,
    /// Disks with load: the first ones.
    pub(crate) busy: u16,
    /// Requests in flight of all busy disks together, dealt out evenly; at least one in each virtqueue.
    pub(crate) in_flight: u16,
    /// Whether the daemon is watched while no disk is busy.
    pub(crate) is_idle_watched: bool,
}

/// One disk with one virtqueue over two paths, 32 requests in flight, one I/O thread.
const BASE: Setup = Setup {
    disks: Disks { count: 1, are_sharing: false, paths: 2, queues: 1, io_threads: 1 },
    busy: 1,
    in_flight: 32,
    is_idle_watched: false,
};

/// The most requests in flight of a virtqueue. More are dealt out to several.
const QUEUE_DEPTH_MAX: u16 = 256;

pub(crate) const OWN: &str = "own paths";
pub(crate) const SHARED: &str = "shared paths";
/// The contender with 32 requests in flight for each disk, in place of 32 for all disks together.
const OWN_32_EACH: &str = "own paths, 32 each";
const SHARED_32_EACH: &str = "shared paths, 32 each";
/// The contender with one request in flight, in place of 32.
pub(crate) const OWN_ONE: &str = "own paths, depth 1";
pub(crate) const SHARED_ONE: &str = "shared paths, depth 1";
const DISK: &str = "one disk";

/// A setup, named as the column of the tables names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contender {
    name: &'static str,
    pub(crate) setup: Setup,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Setup {
    /// Requests in flight of each virtqueue.
    pub(crate) fn queue_depth(&self) -> u16 {
        (self.in_flight / self.busy / self.disks.queues).max(1)
    }

    /// More open files than any of the programs needs.
    pub(crate) fn open_files(&self) -> u64 {
        let Disks { count, paths, queues, io_threads, .. } = self.disks;
        // Connections of a path count twice in the daemon, because earlier ones may still be closing.
        let disk = 32 + 4 * u64::from(queues) + 2 * u64::from(io_threads) + 2 * u64::from(paths * (1 + io_threads));
        256 + disk * u64::from(count)
    }
}

impl Sweep {
    /// The name of its table.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The name of a row of this size.
    pub(crate) fn row_name(self, size: u16) -> String {
        match self {
            Self::Idle if size == 1 => "alone".to_owned(),
            Self::Idle => format!("among {} idle", size - 1),
            _ => size.to_string(),
        }
    }

    fn sizes(self) -> &'static [u16] {
        match self {
            Self::Disks => &[1, 4, 16, 64],
            Self::Virtqueues => &[1, 2, 4, 8, 16],
            Self::Paths => &[1, 2, 4, 8],
            Self::Requests => &[1, 4, 16, 32, 64, 256, 1024],
            Self::Idle => &[1, 64, 256],
        }
    }

    fn contenders(self, size: u16) -> Vec<Contender> {
        let of = |disks| Setup { disks, ..BASE };
        let disks = |are_sharing| of(Disks { count: size, are_sharing, ..BASE.disks });
        let contender = |(name, setup)| Contender { name, setup };
        let setups = match self {
            Self::Disks => {
                let busy = |are_sharing, in_flight| Setup { busy: size, in_flight, ..disks(are_sharing) };
                vec![
                    (OWN, busy(false, BASE.in_flight)),
                    (SHARED, busy(true, BASE.in_flight)),
                    (OWN_32_EACH, busy(false, BASE.in_flight * size)),
                    (SHARED_32_EACH, busy(true, BASE.in_flight * size)),
                ]
            }
            Self::Virtqueues => {
                let with = |io_threads| of(Disks { queues: size, io_threads, ..BASE.disks });
                vec![("1 I/O thread", with(1)), ("2 I/O threads", with(2))]
            }
            Self::Paths => vec![(DISK, of(Disks { paths: size, ..BASE.disks }))],
            Self::Requests => {
                let disks = Disks { queues: size.div_ceil(QUEUE_DEPTH_MAX), ..BASE.disks };
                vec![(DISK, Setup { in_flight: size, ..of(disks) })]
            }
            Self::Idle => {
                let watched = |are_sharing| Setup { is_idle_watched: true, ..disks(are_sharing) };
                let one = |are_sharing| Setup { in_flight: 1, ..disks(are_sharing) };
                vec![(OWN, watched(false)), (SHARED, watched(true)), (OWN_ONE, one(false)), (SHARED_ONE, one(true))]
            }
        };
        setups.into_iter().map(contender).collect()
    }

    /// Its rows.
    pub(crate) fn rows(self, rounds: u16) -> impl Iterator<Item = PlannedRow<Self, Contender>> {
        self.sizes()
            .iter()
            .map(move |&size| PlannedRow::new(&self.name(), &self.row_name(size), self, self.contenders(size), rounds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sweep_has_the_base_and_changes_one_dimension() {
        for &sweep in Sweep::value_variants() {
            let setups: Vec<Setup> =
                sweep.rows(1).flat_map(|row| row.contenders).map(|contender| contender.setup).collect();
            let is_base = |setup: &Setup| Setup { is_idle_watched: false, ..*setup } == BASE;
            assert!(setups.iter().any(is_base), "{sweep:?}");
            for setup in setups {
                let changes = [
                    setup.disks.count != 1,
                    setup.disks.paths != 2,
                    sweep == Sweep::Virtqueues && setup.disks.queues != 1,
                    sweep == Sweep::Requests && setup.in_flight != 32,
                ];
                assert!(changes.into_iter().filter(|changed| *changed).count() <= 1, "{setup:?}");
                assert!(setup.queue_depth() <= QUEUE_DEPTH_MAX, "{setup:?}");
                let in_flight = setup.queue_depth() * setup.disks.queues * setup.busy;
                assert_eq!(in_flight, setup.in_flight.max(setup.busy), "{setup:?}");
            }
        }
    }
}
