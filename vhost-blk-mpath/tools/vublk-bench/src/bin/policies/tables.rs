//! The tables: what is measured on which paths.

use crate::paths::{
    FAR, FAR_MICROS, GIGABIT_MIB, NEAR, NEAR_MICROS, PathSpec, Paths, heterogeneous, heterogeneous_loaded,
};
use crate::targets::targets;
use crate::{chart, section};
use clap::ValueEnum;
use std::time::Duration;
use vublk_bench::harness::{Publication, Results};
use vublk_bench::options::Mode;
use vublk_bench::sizes::Sizes;

/// A table.
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
    /// At the start.
    pub(crate) paths: Paths,
    /// Whether threads keep all processors busy meanwhile.
    pub(crate) cpu_load: bool,
    pub(crate) length: Length,
}

/// How long a cell of a row is measured, in terms of `--seconds`.
#[derive(Debug, Clone)]
pub(crate) enum Length {
    /// All of it: for rows whose tail or small differences are judged.
    Full,
    /// A quarter: for rows whose throughput is judged, or a tail that a thousand requests show.
    Quarter,
    /// Until a series of changes ends.
    Series(Series),
}

/// Paths that change while they are measured.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// The time of each change, in thirds of `--seconds`, and the paths from then on.
    pub(crate) changes: Vec<(f64, Paths)>,
    /// The end, in thirds of `--seconds`.
    pub(crate) end: f64,
    /// Whether each change is a jump from which throughput has to recover.
    pub(crate) jumps: bool,
}

impl Length {
    /// In seconds.
    pub(crate) fn time(&self, seconds: Duration) -> Duration {
        match self {
            Self::Full => seconds,
            Self::Quarter => seconds / 4,
            Self::Series(series) => seconds.mul_f64(series.end / 3.0),
        }
    }
}

/// The kernel series' job.
const MIXED: &str = "4k/10:32k/10:64k/10:128k/30:256k/10:512k/30";
/// Small requests together with large ones; none is large enough to fill the narrow path for long.
const SMALL_AND_LARGE: &str = "4k/40:16k/20:64k/20:128k/20";

fn mixed(text: &str) -> Sizes {
    let text = if text.contains('/') { text.to_owned() } else { format!("{text}/100") };
    text.parse().expect("the mixtures are well-formed")
}

fn row(name: impl Into<String>, mode: Mode, sizes: Sizes, depth: u16, paths: Paths) -> RowSpec {
    RowSpec { name: name.into(), mode, sizes, depth, queues: 1, paths, cpu_load: false, length: Length::Quarter }
}

impl RowSpec {
    /// Requests outstanding on all queues.
    pub(crate) fn outstanding(&self) -> u32 {
        u32::from(self.depth) * u32::from(self.queues)
    }
}

fn verb(mode: Mode) -> &'static str {
    match mode {
        Mode::Randread => "randread",
        Mode::Randwrite => "randwrite",
        _ => "randrw",
    }
}

const READ: Mode = Mode::Randread;
const WRITE: Mode = Mode::Randwrite;
const RW: Mode = Mode::Randrw;

impl Table {
    pub(crate) const ALL: [Self; 4] = [Self::A, Self::B, Self::C, Self::D];

    pub(crate) fn letter(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::A => "Asymmetric: one of two paths 30 ms slower",
            Self::B => "Symmetric: two equal paths, mixed sizes, busy processors",
            Self::C => "Heterogeneous: eight paths",
            Self::D => "Bandwidth 1:4, and paths that change",
        }
    }

    /// The table of these results.
    pub(crate) fn of(results: &Results) -> Option<Self> {
        let letter = &results.rows.first()?.table;
        Self::ALL.into_iter().find(|table| table.letter() == letter)
    }

    pub(crate) fn publication(self) -> Publication {
        let name = match self {
            Self::A => "policies-a",
            Self::B => "policies-b",
            Self::C => "policies-c",
            Self::D => "policies-d",
        };
        Publication { name, command: "make bench-policies", document: "benchmarks.md", targets, section, chart }
    }

    /// Explains the rows.
    pub(crate) fn note(self) -> String {
        let near = NEAR_MICROS as f64 / 1000.0;
        let far = FAR_MICROS / 1000;
        match self {
            Self::A => format!(
                "Two paths of {GIGABIT_MIB} MiB/s (1 Gb/s), {near} ms and {far} ms. \"slow first\": the {far} ms path is the first \
                 in the daemon's list. Mixed sizes: `{MIXED}`. \"fast path alone\" is `numa`, which uses one path, with the \
                 {near} ms path put first: the same daemon, target and connections, and the slow path idle."
            ),
            Self::B => format!(
                "Two paths of {SYMMETRIC_MIB} MiB/s (2 Gb/s), {near} ms, sizes `{MIXED}`. Meanwhile one thread per processor is busy \
                 85 % of the time."
            ),
            Self::C => format!(
                "Paths in this order (ms, MiB/s): {}. With background: {}. One path of each kind but the slowest is then ten times as slow \
                 and has half its rate. `pid` picks paths by virtqueue, so it can spread only the rows with 8 queues.",
                list(&heterogeneous()),
                list(&heterogeneous_loaded())
            ),
            Self::D => format!(
                "1:4: {NARROW_MIB} and {} MiB/s, {near} ms, sizes `{SMALL_AND_LARGE}`. `service-time` is not told the rates. The \
                 other rows start from two paths of {GIGABIT_MIB} MiB/s. \"flapping\" has {far} ms on one path, and on the other one after \
                 every two thirds of --seconds. \"degrading\" goes from {near} to {far} ms on the first path in small steps. \
                 \"recovery\" has {far} ms on the first path, and then {near} ms. Their IOPS and bound are means over the whole run.",
                NARROW_MIB * 4
            ),
        }
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

fn list(paths: &Paths) -> String {
    let paths = paths.iter().map(|path| {
        let rate = path.mib_per_second.map_or("no limit".to_owned(), |mib| mib.to_string());
        format!("{} {rate}", path.delay.as_micros() as f64 / 1000.0)
    });
    paths.collect::<Vec<_>>().join(", ")
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
        let paths = if place == FIRST { vec![FAR, NEAR] } else { vec![NEAR, FAR] };
        let sizes = mixed(if size == "mixed" { MIXED } else { size });
        row(format!("{size} {} QD{depth}, {place}", verb(mode)), mode, sizes, depth, paths)
    });
    rows.collect()
}

/// 2 Gb/s: 1100 requests of the mean size a second on each path, a tenth of what two idle processors carry.
const SYMMETRIC_MIB: u32 = 238;

fn symmetric() -> Vec<RowSpec> {
    let paths = vec![PathSpec::new(NEAR_MICROS, SYMMETRIC_MIB); 2];
    let modes = [READ, WRITE, RW].into_iter();
    let rows = modes.map(|mode| RowSpec {
        cpu_load: true,
        // Differences of 2 % are judged.
        length: Length::Full,
        ..row(format!("{} QD32", verb(mode)), mode, mixed(MIXED), 32, paths.clone())
    });
    rows.collect()
}

fn eight_paths() -> Vec<RowSpec> {
    let mut rows = Vec::new();
    for (suffix, paths) in [("", heterogeneous()), (", background", heterogeneous_loaded())] {
        let small = Sizes::one(4096);
        // The tail is judged without a background load.
        let length = || if suffix.is_empty() { Length::Full } else { Length::Quarter };
        rows.push(RowSpec {
            length: length(),
            ..row(format!("4k randread QD1{suffix}"), READ, small.clone(), 1, paths.clone())
        });
        for depth in [1, 4].into_iter().filter(|depth| *depth == 4 || suffix.is_empty()) {
            rows.push(RowSpec {
                queues: 8,
                length: length(),
                ..row(
                    format!("4k randread QD{} (8 queues × {depth}){suffix}", 8 * depth),
                    READ,
                    small.clone(),
                    depth,
                    paths.clone(),
                )
            });
        }
        rows.push(row(format!("128k read QD8{suffix}"), Mode::Read, Sizes::one(131_072), 8, paths));
    }
    rows
}

/// 500 Mb/s and 2 Gb/s.
const NARROW_MIB: u32 = 60;

fn one_to_four() -> Vec<RowSpec> {
    let paths = vec![PathSpec::new(NEAR_MICROS, NARROW_MIB), PathSpec::new(NEAR_MICROS, NARROW_MIB * 4)];
    let rows = [(READ, 8), (READ, 32), (RW, 32)].into_iter();
    let rows = rows.map(|(mode, depth)| {
        row(format!("1:4, mixed {} QD{depth}", verb(mode)), mode, mixed(SMALL_AND_LARGE), depth, paths.clone())
    });
    rows.collect()
}

/// Steps of the path that degrades.
const DEGRADING_STEPS: u32 = 20;

fn changing() -> Vec<RowSpec> {
    let series = |name: &str, depth, paths: [PathSpec; 2], changes: Vec<(f64, Paths)>, end, jumps| RowSpec {
        length: Length::Series(Series { changes, end, jumps }),
        ..row(format!("{name}, 16k randread QD{depth}"), READ, Sizes::one(16_384), depth, paths.to_vec())
    };
    let flips = vec![(2.0, vec![NEAR, FAR]), (4.0, vec![FAR, NEAR])];
    // In equal ratios, during the second and third third.
    let step = |step: u32| {
        let part = f64::from(step) / f64::from(DEGRADING_STEPS);
        let delay = NEAR.delay.mul_f64((FAR_MICROS as f64 / NEAR_MICROS as f64).powf(part));
        (1.0 + 2.0 * part, vec![PathSpec { delay, ..NEAR }, NEAR])
    };
    vec![
        series("flapping", 8, [FAR, NEAR], flips, 6.0, true),
        series("degrading", 8, [NEAR, NEAR], (1..=DEGRADING_STEPS).map(step).collect(), 4.0, false),
        // Deep enough that both paths are needed.
        series("recovery", 32, [FAR, NEAR], vec![(2.0, vec![NEAR, NEAR])], 4.5, true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_table_differ_in_name_and_have_as_many_paths() {
        for table in Table::ALL {
            let rows = table.rows();
            let paths = rows[0].paths.len();
            for (index, row) in rows.iter().enumerate() {
                assert!(rows[..index].iter().all(|other| other.name != row.name), "{}", row.name);
                assert_eq!(row.paths.len(), paths, "{}", row.name);
                if let Length::Series(series) = &row.length {
                    assert!(series.changes.iter().all(|(at, later)| *at < series.end && later.len() == paths));
                    assert!(series.changes.is_sorted_by_key(|(at, _)| *at), "{}", row.name);
                }
            }
        }
    }

    #[test]
    fn degrading_ends_far_away() {
        let row = Table::D.rows().into_iter().find(|row| row.name.starts_with("degrading")).unwrap();
        let Length::Series(series) = row.length else { panic!("no series") };
        let (at, paths) = series.changes.last().unwrap();
        assert!((at - 3.0).abs() < 1e-9 && paths[0].delay.abs_diff(FAR.delay) < Duration::from_micros(5), "{paths:?}");
        assert_eq!(paths[1], NEAR);
    }
}
