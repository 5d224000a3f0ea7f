//! Threads that keep the processors busy during a measurement.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

/// A thread uses 85 % of a processor in each period, as in the published table, or less if the others leave less.
const PERIOD: Duration = Duration::from_millis(10);
const BUSY: Duration = Duration::from_micros(8500);

/// One busy thread for each processor. The threads end within a period after this is dropped.
#[derive(Debug)]
pub(crate) struct CpuLoad(Arc<AtomicBool>);

impl CpuLoad {
    pub(crate) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let (start, used) = (Instant::now(), thread_time());
                    while thread_time().saturating_sub(used) < BUSY {
                        std::hint::spin_loop();
                    }
                    thread::sleep(PERIOD.saturating_sub(start.elapsed()));
                }
            });
        }
        Self(stop)
    }
}

/// Processor time of this thread. It is never negative.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

impl Drop for CpuLoad {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vublk_bench::process::cpu_time;

    #[test]
    fn uses_processor_time_until_dropped() {
        let used = || cpu_time(std::process::id()).unwrap();
        let before = used();
        let load = CpuLoad::start();
        thread::sleep(Duration::from_millis(200));
        drop(load);
        assert!(used().saturating_sub(before) >= Duration::from_millis(20));
    }
}
