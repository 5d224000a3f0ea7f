//! Decides: other threads wait for a processor, so a thread does not poll.
//!
//! Whether threads of the host wait for a processor.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::unistd::{SysconfVar, sysconf};

/// Counts the runnable threads of the host, which are those that run or wait for a processor.
#[derive(Debug)]
pub(crate) struct Runnable {
    loadavg: File,
    processors: u32,
}

impl Runnable {
    pub(crate) fn open() -> io::Result<Self> {
        let loadavg = File::open("/proc/loadavg")?;
        let processors = sysconf(SysconfVar::_NPROCESSORS_ONLN)?.and_then(|count| count.try_into().ok()).unwrap_or(1);
        Ok(Self { loadavg, processors })
    }

    /// Whether more threads are runnable than the host has processors, so that one of them waits. `true` if the kernel does not tell.
    pub(crate) fn exceed_processors(&self) -> bool {
        let mut text = [0; 128];
        let length = self.loadavg.read_at(&mut text, 0).unwrap_or(0);
        runnable(&text[..length]).is_none_or(|runnable| runnable > self.processors)
    }
}

/// The number of runnable threads in `/proc/loadavg`: `0.20 0.18 0.12 RUNNABLE/ALL LAST_PID`.
fn runnable(loadavg: &[u8]) -> Option<u32> {
    let (runnable, _) = std::str::from_utf8(loadavg).ok()?.split(' ').nth(3)?.split_once('/')?;
    runnable.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_runnable_threads_is_read() {
        assert_eq!(runnable(b"0.20 0.18 0.12 3/80 11206\n"), Some(3));
        for text in
            [&b""[..], b"0.20 0.18 0.12", b"0.20 0.18 0.12 3", b"0.20 0.18 0.12 x/80 1", b"\xff \xff \xff 3/80 1"]
        {
            assert_eq!(runnable(text), None);
        }
    }

    #[test]
    fn more_threads_than_processors_wait() {
        let mut host = Runnable::open().unwrap();
        host.processors = 0;
        assert!(host.exceed_processors(), "this thread runs");
        host.processors = u32::MAX;
        assert!(!host.exceed_processors());
    }

    #[test]
    fn without_the_number_threads_may_wait() {
        let silent = Runnable { loadavg: File::open("/dev/null").unwrap(), processors: u32::MAX };
        assert!(silent.exceed_processors());
    }
}
