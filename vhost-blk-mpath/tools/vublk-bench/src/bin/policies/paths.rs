//! The delays and rates of the paths, and the settings of the target that make them.

use std::time::Duration;
use vublk_bench::control::{Control, ControlError};

const MIB: f64 = 1_048_576.0;

/// One listener of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathSpec {
    /// The delay, in addition to the time of a request without any delay.
    pub(crate) delay: Duration,
    /// Limit of reads and writes together.
    pub(crate) mib_per_second: Option<u32>,
}

/// All paths, in the daemon's order.
pub(crate) type Paths = Vec<PathSpec>;

impl PathSpec {
    pub(crate) const fn new(delay_micros: u64, mib_per_second: u32) -> Self {
        Self { delay: Duration::from_micros(delay_micros), mib_per_second: Some(mib_per_second) }
    }

    pub(crate) fn bytes_per_second(self) -> Option<f64> {
        self.mib_per_second.map(|mib| f64::from(mib) * MIB)
    }

    /// The settings of a listener of `mpath-target` that make this path.
    pub(crate) fn settings(self) -> [String; 2] {
        let rate = self.mib_per_second.map_or("off".to_owned(), |mib| format!("{mib}MiB"));
        [format!("delay={}us", self.delay.as_micros()), format!("rate={rate}")]
    }
}

/// Gives the paths these delays and rates; `now` are the present ones, if they are known.
pub(crate) fn set(control: &Control, paths: &Paths, now: Option<&Paths>) -> Result<(), ControlError> {
    for (index, path) in paths.iter().enumerate() {
        if now.and_then(|now| now.get(index)) != Some(path) {
            control.set_listener(index + 1, &path.settings())?;
        }
    }
    Ok(())
}

/// 1 Gb/s: 1900 requests of 64 KiB a second or 30,000 of 4 KiB. Two cores carry several times as many.
const GIGABIT_MIB: u32 = 119;
/// The base of the published simulations. This machine adds about 0.07 ms of its own, which should not be the larger part.
pub(crate) const NEAR: PathSpec = PathSpec::new(200, GIGABIT_MIB);
/// The delay of the kernel series' table.
pub(crate) const FAR: PathSpec = PathSpec::new(30_000, GIGABIT_MIB);

/// Table c without its background load. Each kind stands for a real device. `pid` and `numa` take the first path, so the first path is
/// neither the best nor the worst. The kinds are mixed, so that no order of the list is a good guess.
pub(crate) fn heterogeneous() -> Paths {
    // Flash behind 500 Mb/s: 15,000 requests of 4 KiB a second, so that the processor is not the limit.
    const FAST: PathSpec = PathSpec::new(200, 60);
    // A busy array in the next building, 1 Gb/s.
    const MEDIUM: PathSpec = PathSpec::new(2_000, GIGABIT_MIB);
    // Disks: a seek.
    const SLOW: PathSpec = PathSpec::new(10_000, 60);
    // A disk that reads every sector several times.
    const AWFUL: PathSpec = PathSpec::new(100_000, 12);
    vec![MEDIUM, FAST, SLOW, MEDIUM, AWFUL, FAST, MEDIUM, SLOW]
}

/// Table c with a background load on one path of each kind but the awful one. These paths are ten times as slow and have half
/// their rate. A fast path, two medium paths and a slow path stay free.
pub(crate) fn heterogeneous_loaded() -> Paths {
    let mut paths = heterogeneous();
    for path in &mut paths[..3] {
        path.delay *= 10;
        path.mib_per_second = path.mib_per_second.map(|mib| mib / 2);
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_target() {
        assert_eq!(PathSpec::new(30_000, 119).settings(), ["delay=30000us", "rate=119MiB"]);
        assert_eq!(PathSpec { mib_per_second: None, ..NEAR }.settings(), ["delay=200us", "rate=off"]);
    }

    #[test]
    fn a_background_load_changes_some_paths() {
        let (free, loaded) = (heterogeneous(), heterogeneous_loaded());
        assert_eq!(free.len(), 8);
        assert_eq!(free.iter().zip(&loaded).filter(|(free, loaded)| free != loaded).count(), 3);
        assert_eq!(loaded[1], PathSpec::new(2_000, 30));
    }
}
