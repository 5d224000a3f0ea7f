//! Watches whether the daemon's memory stays flat.

use std::time::{Duration, Instant};
use vublk_bench::process::resident_bytes;

const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Growth that is not taken for a leak. The limit is this, or a twentieth of the memory before if that is more.
const ALLOWED_BYTES: u64 = 4 << 20;
const ALLOWED_DIVISOR: u64 = 20;

/// Fewer samples than this say nothing.
const FEWEST_SAMPLES: usize = 9;

/// One sample a second.
#[derive(Debug)]
pub(crate) struct MemoryWatch {
    pid: u32,
    next: Instant,
    samples: Vec<u64>,
}

impl MemoryWatch {
    pub(crate) fn new(pid: u32) -> Self {
        Self { pid, next: Instant::now() + SAMPLE_INTERVAL, samples: Vec::new() }
    }

    /// Takes a sample when it is time for one.
    pub(crate) fn sample(&mut self) {
        if Instant::now() >= self.next {
            self.next += SAMPLE_INTERVAL;
            self.samples.extend(resident_bytes(self.pid));
        }
    }

    /// Whether the memory is flat, and why.
    pub(crate) fn verdict(&self) -> (bool, String) {
        judge(&self.samples)
    }
}

fn median(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// The first third is warm-up. The first quarter of the rest is compared with the last.
fn judge(samples: &[u64]) -> (bool, String) {
    if samples.len() < FEWEST_SAMPLES {
        return (false, format!("only {} memory samples, too few to judge", samples.len()));
    }
    let settled = &samples[samples.len() / 3..];
    let quarter = (settled.len() / 4).max(1);
    let (begin, end) = (median(&settled[..quarter]), median(&settled[settled.len() - quarter..]));
    let allowed = ALLOWED_BYTES.max(begin / ALLOWED_DIVISOR);
    let [begin_mib, end_mib, allowed_mib] = [begin, end, allowed].map(|bytes| bytes as f64 / 1_048_576.0);
    let words = format!(
        "daemon memory {begin_mib:.1} MiB after the first third, {end_mib:.1} MiB at the end (growth of {allowed_mib:.1} MiB allowed)"
    );
    (end <= begin + allowed, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn warm_up_does_not_count_and_a_leak_does() {
        let warm_up = (0..20).map(|second| second * 10 * MIB);
        let flat: Vec<u64> = warm_up.clone().chain((0..40).map(|second| (200 + second % 3) * MIB)).collect();
        assert!(judge(&flat).0, "{:?}", judge(&flat));
        let leak: Vec<u64> = warm_up.chain((0..40).map(|second| (200 + second) * MIB)).collect();
        assert!(!judge(&leak).0, "{:?}", judge(&leak));
        assert!(!judge(&[MIB; 5]).0);
    }
}
