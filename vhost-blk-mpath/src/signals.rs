//! Decides: a signal ends the daemon, or is ignored.
//!
//! Signals: two end the daemon in order, one reloads its configuration, and stray ones do not end it.
//!
//! A daemon that a signal kills leaves its disks held. So signals that no operator sends to end a program are caught.
//! Those that report a fault of the program or ask for a core dump (SIGQUIT) keep their default action.

use std::fmt;
use std::io;

use reactor::interrupt_signal;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals without a meaning here, whose default action ends a process. SIGXFSZ is among them so that a file that
/// cannot grow is an error of its write.
const STRAY: [libc::c_int; 9] = [
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGXFSZ,
];

/// A signal that ends the daemon in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndSignal {
    Terminate,
    Interrupt,
}

impl fmt::Display for EndSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        })
    }
}

/// The signals that end the daemon in order.
pub(crate) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl EndSignals {
    /// Catches the signals that end the daemon, and ignores stray ones. Must be called in the runtime.
    pub(crate) fn new() -> io::Result<Self> {
        // tokio never removes a handler, so the signals stay caught when their streams are dropped. It has calls restarted, which that of
        // I/O threads must not be.
        let real_time = (libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(|number| *number != interrupt_signal());
        for number in STRAY.into_iter().chain(real_time) {
            drop(signal(SignalKind::from_raw(number))?);
        }
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one of them.
    pub(crate) async fn recv(&mut self) -> EndSignal {
        tokio::select! {
            _ = self.terminate.recv() => EndSignal::Terminate,
            _ = self.interrupt.recv() => EndSignal::Interrupt,
        }
    }
}

/// SIGHUP, which reloads the configuration.
pub(crate) struct ReloadSignal(Signal);

impl ReloadSignal {
    /// Catches the signal. One that comes before [`recv`](Self::recv) is kept. Must be called in the runtime.
    pub(crate) fn new() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for it. Several at a time count as one.
    pub(crate) async fn recv(&mut self) {
        // tokio never ends this stream.
        let _ = self.0.recv().await;
    }
}
