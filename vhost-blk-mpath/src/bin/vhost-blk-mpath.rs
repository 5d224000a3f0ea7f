//! The program `vhost-blk-mpath`.

use std::process::ExitCode;

fn main() -> ExitCode {
    vhost_blk_mpath::main()
}
