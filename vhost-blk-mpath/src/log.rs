//! The log, on stderr.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;

/// Stderr, of which nothing is expected: a full disk or a reader that is gone costs the log its lines, and no guest its disk.
struct Lossy;

impl Write for Lossy {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// To be called once. What is logged says `RUST_LOG`, `info` if it does not.
pub(crate) fn init() {
    let filter = EnvFilter::builder().with_default_directive(tracing::Level::INFO.into()).from_env_lossy();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    // It would be told of on stderr too, with a panic if that fails.
    log.log_internal_errors(false).with_writer(|| Lossy).init();
}
