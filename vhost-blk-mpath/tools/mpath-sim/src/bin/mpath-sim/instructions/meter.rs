//! Counts instructions with valgrind, in one function of this program alone.

use std::hint::black_box;
use std::process::Command;

use monotonic::{Duration, Instant};
use rustix::time::{ClockId, clock_gettime};

/// Makes the C library copy memory in the same way on every processor. By default it picks the fastest way of the processor.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX2,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM,-SSSE3";

/// Whether work is counted.
#[derive(Clone, Copy)]
pub(super) enum Meter {
    Off,
    On,
}

impl Meter {
    /// Does the work, and counts its instructions if the meter is on.
    pub(super) fn count<T>(self, work: impl FnOnce() -> T) -> T {
        match self {
            Self::Off => work(),
            Self::On => counted_by_valgrind(work),
        }
    }
}

/// valgrind counts between the start and the end of the function with this name.
#[inline(never)]
fn counted_by_valgrind<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

/// The requests before this call warm up.
#[inline(never)]
pub(super) fn warmed_up_for_valgrind() {
    black_box(());
}

/// Does the work of this number of requests.
pub(super) type Work = Box<dyn FnMut(Meter, u32)>;

/// Work whose instructions are counted.
pub(super) struct Case {
    pub(super) name: String,
    /// The number of requests that are counted. The same number runs before, to warm up.
    pub(super) times: u32,
    pub(super) set_up: Box<dyn Fn() -> Work + Sync>,
}

impl Case {
    pub(super) fn new(name: impl Into<String>, set_up: impl Fn() -> Work + Sync + 'static) -> Self {
        Self { name: name.into(), times: 2048, set_up: Box::new(set_up) }
    }
}

/// The time at which cases start: about the start of a second. Two times in different seconds take longer to compare.
pub(super) fn start() -> Instant {
    let nanos = clock_gettime(ClockId::Monotonic).tv_nsec;
    Instant::now() + Duration::from_nanos((1_000_000_000 - nanos).cast_unsigned())
}

/// The instructions of a case for one request.
pub(super) fn instructions(case: &Case) -> Result<u64, String> {
    let itself = std::env::current_exe().map_err(|error| format!("cannot find itself: {error}"))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/stdout", "--zero-before=*warmed_up_for_valgrind*"])
        // Also `uncounted_by_valgrind` of the simulated ring, which counts as no work.
        .arg("--toggle-collect=*counted_by_valgrind*")
        .arg(itself)
        .args(["instructions", "--case", &case.name])
        .env("GLIBC_TUNABLES", TUNABLES)
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}; install the package valgrind"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counted = text.lines().find_map(|line| line.strip_prefix("summary: ")?.trim().parse::<u64>().ok());
    let counted = counted.filter(|count| output.status.success() && *count > 0);
    let said = String::from_utf8_lossy(&output.stderr);
    let failed = || format!("valgrind counted nothing of '{}' ({}):\n{said}", case.name, output.status);
    Ok(counted.ok_or_else(failed)? / u64::from(case.times))
}
