//! Lines on the standard output.

use std::fmt;
use std::io::{self, Write};

/// Prints a line. The process ends if its reader is gone, as with `| head`.
///
/// # Panics
///
/// If the line cannot be written for another reason.
pub fn print_line(line: impl fmt::Display) {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.expect("the standard output takes a line"),
    }
}
