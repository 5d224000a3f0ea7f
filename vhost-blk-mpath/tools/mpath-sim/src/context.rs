//! The clock, the network and the checker, which every part of the simulation uses.

use crate::checker::Checker;
use crate::clock::Clock;
use crate::net::Net;
use crate::print_line;

/// The clock, the network and the checker of a run.
pub(crate) struct Ctx {
    pub(crate) clock: Clock,
    pub(crate) net: Net,
    pub(crate) checker: Checker,
    pub(crate) verbose: bool,
}

impl Ctx {
    /// Prints an event of a verbose run.
    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            print_line(format_args!("{:>13.6} {}", self.clock.elapsed().as_secs_f64(), what()));
        }
    }
}
