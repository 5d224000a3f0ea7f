//! The program `mpathctl`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mpathctl::main()
}
