//! SIGINT and SIGTERM.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};

/// The exit status of a program that was interrupted.
pub const EXIT_INTERRUPTED: u8 = 130;

/// A flag that the first of these signals sets. The second one ends the program at once, for what there is to end may take its
/// time; the kernel then ends what the program has started.
pub fn interrupted() -> io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        register_conditional_shutdown(signal, EXIT_INTERRUPTED.into(), Arc::clone(&interrupted))?;
        register(signal, Arc::clone(&interrupted))?;
    }
    Ok(interrupted)
}
