//! The tables: what is measured on which paths.

use crate::scene::{
    FAR, FAR_MICROS, GIGABIT_MIB, NEAR, NEAR_MICROS, PathSpec, Scene, heterogeneous, heterogeneous_loaded,
};
use clap::ValueEnum;
use std::time::Duration;
use vublk_bench::options::Mode;
use vublk_bench::publish::Section;
use vublk_bench::sizes::Sizes;

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Table {
    /// Asymmetric: one of two paths 30 ms slower
    A,
    /// Symmetric: two equal paths, mixed sizes, a CPU load beside it
    B,
    /// Heterogeneous: eight paths, fast to awful, also with a background load
    C,
    /// Bandwidth 1:4 with mixed sizes; changes under way
    D,
}

/// A line of a table.
#[derive(Debug, Clone)]
pub(crate) struct RowSpec {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) sizes: Sizes,
    /// Of each queue.
    pub(crate) depth: u16,
    pub(crate) queues: u16,
    /// What the paths are like at the start.
    pub(crate) scene: Scene,
    /// Whether all processors have something else to do as well.
    pub(crate) cpu_load: bool,
    pub(crate) length: Length,
}

/// How long a cell of a row is measured, in terms of `--seconds`.
#[derive(Debug, Clone)]
pub(crate) enum Length {
    /// All of it: where the tail is judged, or small differences are.
    Full,
    /// A quarter: where throughput is judged, or a tail that shows in a thousand requests.
    Quarter,
    /// To the end of a series of changes.
    Series(Series),
}

/// Paths that change while they are measured.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// When, in thirds of `--seconds`, and to what. In this order.
    pub(crate) changes: Vec<(f64, Scene)>,
    /// When it ends, in thirds of `--seconds`.
    pub(crate) end: f64,
    /// Whether each change is a jump, of which one may ask how long it takes to make up for it.
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
/// Small requests beside large ones; none is large enough to fill the narrow path for long.
const SMALL_AND_LARGE: &str = "4k/40:16k/20:64k/20:128k/20";

fn mixed(text: &str) -> Sizes {
    let text = if text.contains('/') { text.to_owned() } else { format!("{text}/100") };
    text.parse().expect("the mixtures are well-formed")
}

fn row(name: impl Into<String>, mode: Mode, sizes: Sizes, depth: u16, scene: Scene) -> RowSpec {
    RowSpec { name: name.into(), mode, sizes, depth, queues: 1, scene, cpu_load: false, length: Length::Quarter }
}

fn verb(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "read",
        Mode::Write => "write",
        Mode::Randread => "randread",
        Mode::Randwrite => "randwrite",
        Mode::Randrw => "randrw",
        Mode::Verify => "verify",
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

    /// Where it stands in the document.
    pub(crate) fn section(self) -> Section {
        let name = match self {
            Self::A => "policies-a",
            Self::B => "policies-b",
            Self::C => "policies-c",
            Self::D => "policies-d",
        };
        Section { name, command: "make bench-policies" }
    }

    /// What to know about its rows.
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
                "Two paths of {SYMMETRIC_MIB} MiB/s (2 Gb/s), {near} ms, sizes `{MIXED}`. One thread per processor is busy 85 % of \
                 the time beside it."
            ),
            Self::C => format!(
                "Paths in this order (ms, MiB/s): {}. With background: {}: one path of each kind but the awful one is ten times as slow \
                 and has half its rate. `pid` goes by virtqueue: the rows with 8 queues are the ones it can spread.",
                list(&heterogeneous()),
                list(&heterogeneous_loaded())
            ),
            Self::D => format!(
                "1:4: {NARROW_MIB} and {} MiB/s, {near} ms, sizes `{SMALL_AND_LARGE}`; `service-time` is not told the rates. The \
                 rows below start from two paths of {GIGABIT_MIB} MiB/s: \"flapping\" has {far} ms on one of them, on the other one after \
                 every two thirds of --seconds; \"degrading\" goes from {near} to {far} ms on the first path in small steps; \
                 \"recovery\" has {far} ms on the first path and then no more. Their IOPS and bound are means over the whole run.",
                NARROW_MIB * 4
            ),
        }
    }

    /// Its rows; `full` is every operation at every depth, size and place of the slow path.
    pub(crate) fn rows(self, full: bool) -> Vec<RowSpec> {
        match self {
            Self::A => asymmetric(full),
            Self::B => symmetric(),
            Self::C => eight_paths(),
            Self::D => one_to_four().into_iter().chain(changing()).collect(),
        }
    }
}

fn list(scene: &Scene) -> String {
    let paths = scene.iter().map(|path| {
        let rate = path.mib_per_second.map_or("no limit".to_owned(), |mib| mib.to_string());
        format!("{} {rate}", path.delay.as_micros() as f64 / 1000.0)
    });
    paths.collect::<Vec<_>>().join(", ")
}

fn asymmetric(full: bool) -> Vec<RowSpec> {
    let mut rows = Vec::new();
    for mode in [READ, WRITE, RW] {
        for (size, depth) in
            ["4k", "64k", "mixed"].into_iter().flat_map(|size| [1u16, 4, 32, 256].map(|depth| (size, depth)))
        {
            for (place, scene) in [("slow first", [FAR, NEAR]), ("slow second", [NEAR, FAR])] {
                // Where the slow path stands matters to the first choice and to ties: some reads show it. Writes and mixtures go
                // the same ways as reads, mixed sizes at the ends of the depths as others.
                let default = match (mode, size, place) {
                    (READ, "mixed", "slow first") => depth == 1 || depth == 32,
                    (READ, _, "slow first") => true,
                    (READ, "4k", _) => depth == 1 || depth == 32,
                    (READ, "64k", _) | (WRITE, "4k" | "64k", "slow first") | (RW, "4k", "slow first") => depth == 32,
                    (RW, "64k", "slow first") => depth == 4,
                    _ => false,
                };
                if full || default {
                    let name = format!("{size} {} QD{depth}, {place}", verb(mode));
                    let sizes = mixed(if size == "mixed" { MIXED } else { size });
                    rows.push(row(name, mode, sizes, depth, scene.to_vec()));
                }
            }
        }
    }
    rows
}

/// 2 Gb/s: 1100 requests of the mean size a second on each path, a tenth of what two processors carry when they have nothing else to do.
const SYMMETRIC_MIB: u32 = 238;

fn symmetric() -> Vec<RowSpec> {
    let scene = vec![PathSpec::new(NEAR_MICROS, SYMMETRIC_MIB); 2];
    let modes = [READ, WRITE, RW].into_iter();
    let rows = modes.map(|mode| RowSpec {
        cpu_load: true,
        // Two percent are to be told.
        length: Length::Full,
        ..row(format!("{} QD32", verb(mode)), mode, mixed(MIXED), 32, scene.clone())
    });
    rows.collect()
}

fn eight_paths() -> Vec<RowSpec> {
    let mut rows = Vec::new();
    for (suffix, scene) in [("", heterogeneous()), (", background", heterogeneous_loaded())] {
        let small = Sizes::one(4096);
        // The tail is judged where nothing but the paths is in the way.
        let length = || if suffix.is_empty() { Length::Full } else { Length::Quarter };
        rows.push(RowSpec {
            length: length(),
            ..row(format!("4k randread QD1{suffix}"), READ, small.clone(), 1, scene.clone())
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
                    scene.clone(),
                )
            });
        }
        rows.push(row(format!("128k read QD8{suffix}"), Mode::Read, Sizes::one(131_072), 8, scene));
    }
    rows
}

/// 500 Mb/s and 2 Gb/s.
const NARROW_MIB: u32 = 60;

fn one_to_four() -> Vec<RowSpec> {
    let scene = vec![PathSpec::new(NEAR_MICROS, NARROW_MIB), PathSpec::new(NEAR_MICROS, NARROW_MIB * 4)];
    let rows = [(READ, 8), (READ, 32), (RW, 32)].into_iter();
    let rows = rows.map(|(mode, depth)| {
        row(format!("1:4, mixed {} QD{depth}", verb(mode)), mode, mixed(SMALL_AND_LARGE), depth, scene.clone())
    });
    rows.collect()
}

/// Steps of the path that degrades.
const DEGRADING_STEPS: u32 = 20;

fn changing() -> Vec<RowSpec> {
    let series = |name: &str, depth, scene: [PathSpec; 2], changes: Vec<(f64, Scene)>, end, jumps| RowSpec {
        length: Length::Series(Series { changes, end, jumps }),
        ..row(format!("{name}, 16k randread QD{depth}"), READ, Sizes::one(16_384), depth, scene.to_vec())
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
    fn rows_have_names_of_their_own_and_one_number_of_paths() {
        for (table, full) in Table::ALL.into_iter().flat_map(|table| [(table, false), (table, true)]) {
            let rows = table.rows(full);
            let paths = rows[0].scene.len();
            for (index, row) in rows.iter().enumerate() {
                assert!(rows[..index].iter().all(|other| other.name != row.name), "{}", row.name);
                assert_eq!(row.scene.len(), paths, "{}", row.name);
                if let Length::Series(series) = &row.length {
                    assert!(series.changes.iter().all(|(at, scene)| *at < series.end && scene.len() == paths));
                    assert!(series.changes.is_sorted_by_key(|(at, _)| *at), "{}", row.name);
                }
            }
        }
        assert_eq!(Table::A.rows(true).len(), 3 * 4 * 3 * 2);
    }

    #[test]
    fn degrading_ends_far_away() {
        let rows = Table::D.rows(false);
        let Some(Length::Series(series)) =
            rows.iter().find(|row| row.name.starts_with("degrading")).map(|row| &row.length)
        else {
            panic!("no such row")
        };
        let (at, scene) = series.changes.last().unwrap();
        assert!((at - 3.0).abs() < 1e-9 && scene[0].delay.abs_diff(FAR.delay) < Duration::from_micros(5), "{scene:?}");
        assert_eq!(scene[1], NEAR);
    }
}
