//! Steal time: the processor time that the hypervisor took, by its own count.

use rustix::param::clock_ticks_per_second;
use std::fs;
use std::io;
use std::time::Duration;

const FILE: &str = "/proc/stat";
/// Behind a processor's name: user, nice, system, idle, iowait, irq, softirq, steal.
const STEAL: usize = 8;

/// Why the steal time is not known.
#[derive(Debug, thiserror::Error)]
pub enum StealError {
    /// The file cannot be read.
    #[error("cannot read {FILE}: {0}")]
    Read(#[from] io::Error),
    /// A processor or its steal time is missing in the file.
    #[error("{FILE} has no steal time of cpu{processor}")]
    Missing {
        /// Which.
        processor: usize,
    },
}

/// Steal time of these processors together, since the machine started.
pub(super) fn steal(processors: impl Iterator<Item = usize>) -> Result<Duration, StealError> {
    let stat = fs::read_to_string(FILE)?;
    let ticks = processors.map(|processor| ticks(&stat, processor).ok_or(StealError::Missing { processor }));
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

fn ticks(stat: &str, processor: usize) -> Option<u64> {
    let name = format!("cpu{processor}");
    let mut lines = stat.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| (words.next()? == name).then_some(words))?.nth(STEAL - 1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_time_is_the_eighth_number_of_a_processor() {
        let stat =
            "cpu  9 9 9 9 9 9 9 99 0 0\ncpu1 1 2 3 4 5 6 7 81 0 0\ncpu12 1 2 3 4 5 6 7 8 0 0\ncpu3 1 2 3\nintr 5\n";
        let found = [1, 12, 3, 0].map(|processor| ticks(stat, processor));
        assert_eq!(found, [Some(81), Some(8), None, None]);
    }

    #[test]
    fn this_machine_has_steal_time() {
        assert!(steal(std::iter::once(0)).is_ok());
        let none = steal(std::iter::once(usize::MAX)).unwrap_err().to_string();
        assert!(none.starts_with("/proc/stat has no steal time of cpu18446744"), "{none}");
    }
}
