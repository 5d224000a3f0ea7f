//! The tables: what is measured on which paths.

use crate::paths::{FAR, NEAR, PathSpec, Paths, heterogeneous, heterogeneous_loaded};
use clap::ValueEnum;
use vublk_bench::options::Mode;
use vublk_bench::sizes::Sizes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Table {
    /// Asymmetric: one of two paths 30 ms slower
    A,
    /// Symmetric: two equal paths, mixed sizes, busy processors
    B,
    /// Heterogeneous: eight paths, fast to awful, also with a background load
    C,
    /// Bandwidth 1:4 with mixed sizes; paths that change
    D,
}

/// A line of a table.
#[derive(Debug, Clone)]
pub(crate) struct RowSpec {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) sizes: Sizes,
    /// Requests outstanding on each queue.
    pub(crate) depth: u16,
    pub(crate) queues: u16,
    /// The paths at the start.
    pub(crate) paths: Paths,
    /// Whether threads keep all processors busy meanwhile.
    pub(crate) cpu_load: bool,
    /// How long a cell is measured, in thirds of `--seconds`.
    pub(crate) thirds: f64,
    /// The time of each change, in thirds of `--seconds`, and the paths from then on.
    pub(crate) changes: Vec<(f64, Paths)>,
    /// Whether each change is a jump from which throughput has to recover.
    pub(crate) jumps: bool,
}

/// Length of rows whose tail or small differences are judged, in thirds of `--seconds`.
const FULL: f64 = 3.0;
/// Length of rows whose throughput is judged, or a tail that a thousand requests show.
const QUARTER: f64 = 0.75;

/// Sizes in KiB with their shares in percent, as in the job of the kernel series.
const MIXED: [(u32, u8); 6] = [(4, 10), (32, 10), (64, 10), (128, 30), (256, 10), (512, 30)];
/// Small requests together with large ones; none is large enough to fill the narrow path for long.
const SMALL_AND_LARGE: [(u32, u8); 4] = [(4, 40), (16, 20), (64, 20), (128, 20)];

const READ: Mode = Mode::Randread;
const WRITE: Mode = Mode::Randwrite;
const RW: Mode = Mode::Randrw;

impl RowSpec {
    fn new(name: String, mode: Mode, kib: &[(u32, u8)], depth: u16, paths: &[PathSpec]) -> Self {
        Self {
            name,
            mode,
            sizes: Sizes::mixed(kib),
            depth,
            queues: 1,
            paths: paths.to_vec(),
            cpu_load: false,
            thirds: QUARTER,
            changes: Vec::new(),
            jumps: false,
        }
    }

    /// Requests outstanding on all queues.
    pub(crate) fn outstanding(&self) -> u32 {
        u32::from(self.depth) * u32::from(self.queues)
    }

    /// Whether the paths change meanwhile.
    pub(crate) fn is_series(&self) -> bool {
        !self.changes.is_empty()
    }
}

fn verb(mode: Mode) -> &'static str {
    match mode {
        Mode::Randread => "randread",
        Mode::Randwrite => "randwrite",
        _ => "randrw",
    }
}

impl Table {
    pub(crate) const ALL: [Self; 4] = [Self::A, Self::B, Self::C, Self::D];

    /// Its letter, the name of its publication, and the title of its picture.
    pub(crate) fn names(self) -> [&'static str; 3] {
        match self {
            Self::A => ["a", "policies-a", "Asymmetric: one of two paths 30 ms slower"],
            Self::B => ["b", "policies-b", "Symmetric: two equal paths, mixed sizes, busy processors"],
            Self::C => ["c", "policies-c", "Heterogeneous: eight paths"],
            Self::D => ["d", "policies-d", "Bandwidth 1:4, and paths that change"],
        }
    }

    pub(crate) fn letter(self) -> &'static str {
        self.names()[0]
    }

    pub(crate) fn rows(self) -> Vec<RowSpec> {
        match self {
            Self::A => asymmetric(),
            Self::B => symmetric(),
            Self::C => eight_paths(),
            Self::D => one_to_four().into_iter().chain(changing()).collect(),
        }
    }
}

/// Writes and mixtures go the same ways as reads, so only some depths have them. The place of the slow path matters to the
/// first choice and to ties, which some reads show.
fn asymmetric() -> Vec<RowSpec> {
    const FIRST: &str = "slow first";
    const SECOND: &str = "slow second";
    let rows = [
        (READ, "4k", 1, FIRST),
        (READ, "4k", 1, SECOND),
        (READ, "4k", 4, FIRST),
        (READ, "4k", 32, FIRST),
        (READ, "4k", 32, SECOND),
        (READ, "4k", 256, FIRST),
        (READ, "64k", 1, FIRST),
        (READ, "64k", 4, FIRST),
        (READ, "64k", 32, FIRST),
        (READ, "64k", 32, SECOND),
        (READ, "64k", 256, FIRST),
        (READ, "mixed", 1, FIRST),
        (READ, "mixed", 32, FIRST),
        (WRITE, "4k", 32, FIRST),
        (WRITE, "64k", 32, FIRST),
        (RW, "4k", 32, FIRST),
        (RW, "64k", 4, FIRST),
    ];
    let rows = rows.into_iter().map(|(mode, size, depth, place)| {
        let paths = if place == FIRST { [FAR, NEAR] } else { [NEAR, FAR] };
        let kib: &[(u32, u8)] = match size {
            "4k" => &[(4, 100)],
            "64k" => &[(64, 100)],
            _ => &MIXED,
        };
        RowSpec::new(format!("{size} {} QD{depth}, {place}", verb(mode)), mode, kib, depth, &paths)
    });
    rows.collect()
}

/// 2 Gb/s: 1100 requests of the mean size a second on each path, a tenth of what two idle processors carry. Differences of
/// 2 % are judged.
fn symmetric() -> Vec<RowSpec> {
    let paths = [PathSpec { mib_per_second: Some(238), ..NEAR }; 2];
    let row = |mode| RowSpec::new(format!("{} QD32", verb(mode)), mode, &MIXED, 32, &paths);
    [READ, WRITE, RW].map(|mode| RowSpec { cpu_load: true, thirds: FULL, ..row(mode) }).into()
}

/// The tail is judged without a background load.
fn eight_paths() -> Vec<RowSpec> {
    let (free, loaded) = (heterogeneous(), heterogeneous_loaded());
    let rows = [
        ("4k randread QD1", READ, 4, 1, 1, FULL, &free),
        ("4k randread QD8 (8 queues × 1)", READ, 4, 8, 1, FULL, &free),
        ("4k randread QD32 (8 queues × 4)", READ, 4, 8, 4, FULL, &free),
        ("128k read QD8", Mode::Read, 128, 1, 8, QUARTER, &free),
        ("4k randread QD1, background", READ, 4, 1, 1, QUARTER, &loaded),
        ("4k randread QD32 (8 queues × 4), background", READ, 4, 8, 4, QUARTER, &loaded),
        ("128k read QD8, background", Mode::Read, 128, 1, 8, QUARTER, &loaded),
    ];
    let rows = rows.into_iter().map(|(name, mode, kib, queues, depth, thirds, paths)| RowSpec {
        queues,
        thirds,
        ..RowSpec::new(name.to_owned(), mode, &[(kib, 100)], depth, paths)
    });
    rows.collect()
}

/// 500 Mb/s and 2 Gb/s.
fn one_to_four() -> Vec<RowSpec> {
    let paths = [60, 240].map(|mib| PathSpec { mib_per_second: Some(mib), ..NEAR });
    let row = |(mode, depth)| {
        RowSpec::new(format!("1:4, mixed {} QD{depth}", verb(mode)), mode, &SMALL_AND_LARGE, depth, &paths)
    };
    [(READ, 8), (READ, 32), (RW, 32)].map(row).into()
}

/// Steps of the path that degrades.
const DEGRADING_STEPS: u32 = 20;

fn changing() -> Vec<RowSpec> {
    // In equal ratios, during the second and third third.
    let step = |step: u32| {
        let part = f64::from(step) / f64::from(DEGRADING_STEPS);
        let ratio = FAR.delay.as_secs_f64() / NEAR.delay.as_secs_f64();
        let delay = NEAR.delay.mul_f64(ratio.powf(part));
        (1.0 + 2.0 * part, vec![PathSpec { delay, ..NEAR }, NEAR])
    };
    let steps = (1..=DEGRADING_STEPS).map(step).collect();
    let flips = vec![(2.0, vec![NEAR, FAR]), (4.0, vec![FAR, NEAR])];
    let rows = [
        ("flapping", 8, FAR, flips, 6.0, true),
        ("degrading", 8, NEAR, steps, 4.0, false),
        // Deep enough that both paths are needed.
        ("recovery", 32, FAR, vec![(2.0, vec![NEAR, NEAR])], 4.5, true),
    ];
    let rows = rows.map(|(name, depth, first, changes, thirds, jumps)| RowSpec {
        thirds,
        changes,
        jumps,
        ..RowSpec::new(format!("{name}, 16k randread QD{depth}"), READ, &[(16, 100)], depth, &[first, NEAR])
    });
    rows.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_rows_of_a_table_differ_in_name_and_have_as_many_paths() {
        for table in Table::ALL {
            let rows = table.rows();
            let paths = rows[0].paths.len();
            for (index, row) in rows.iter().enumerate() {
                assert!(rows[..index].iter().all(|other| other.name != row.name), "{}", row.name);
                assert_eq!(row.paths.len(), paths, "{}", row.name);
                assert!(row.changes.iter().all(|(at, later)| *at < row.thirds && later.len() == paths));
                assert!(row.changes.is_sorted_by_key(|(at, _)| *at), "{}", row.name);
            }
        }
    }

    #[test]
    fn degrading_ends_far_away() {
        let row = Table::D.rows().into_iter().find(|row| row.name.starts_with("degrading")).unwrap();
        let (at, paths) = row.changes.last().unwrap();
        assert!((at - 3.0).abs() < 1e-9 && paths[0].delay.abs_diff(FAR.delay) < Duration::from_micros(5), "{paths:?}");
        assert_eq!(paths[1], NEAR);
    }
}
