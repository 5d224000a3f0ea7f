//! Writes the manual pages and the shell completions of `vhost-blk-mpath` and `mpathctl`, made from their command lines.
//!
//! `mpath-manual DIR DATE` fills `DIR/man8`, `DIR/man1` and `DIR/completions/{bash,zsh,fish}`.

#![forbid(unsafe_code)]

mod page;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use clap::Command;
use clap_complete::Shell;

/// A program with a manual.
struct Program {
    name: &'static str,
    command: Command,
    section: &'static str,
    see_also: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
}

const API: (&str, &str) = ("/run/vhost-blk-mpath/api.sock", "The API socket of the daemon.");

fn programs() -> [Program; 2] {
    [
        Program {
            name: "vhost-blk-mpath",
            command: vhost_blk_mpath::command_line(),
            section: "8",
            see_also: &["mpathctl(1)"],
            files: &[
                ("/etc/vhost-blk-mpath/config.yaml", "The configuration of vhost-blk-mpath.service."),
                ("/etc/vhost-blk-mpath/NAME.yaml", "The configuration of vhost-blk-mpath@NAME.service."),
                (
                    "/usr/share/doc/vhost-blk-mpath/examples/sample.yaml",
                    "Every setting with its default and a comment.",
                ),
                API,
                ("/etc/nvme/hostnqn, /etc/nvme/hostid", "The identity of the host."),
            ],
        },
        Program {
            name: "mpathctl",
            command: mpathctl::command_line(),
            section: "1",
            see_also: &["vhost-blk-mpath(8)"],
            files: &[API],
        },
    ]
}

/// Writes everything for one program.
fn write_all(out: &Path, date: &str, program: Program) -> io::Result<()> {
    let Program { name, command, section, see_also, files } = program;
    let mut command = command.bin_name(name).disable_help_subcommand(true);
    for (shell, folder) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
        let folder = out.join("completions").join(folder);
        fs::create_dir_all(&folder)?;
        clap_complete::generate_to(shell, &mut command, name, &folder)?;
    }
    command.build();
    let folder = out.join(format!("man{section}"));
    fs::create_dir_all(&folder)?;
    page::write(&folder, &command, &page::Place { section, see_also, files, date })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [out, date] = arguments.as_slice() else {
        eprintln!("usage: mpath-manual DIR DATE");
        return ExitCode::from(2);
    };
    for program in programs() {
        let name = program.name;
        if let Err(error) = write_all(out.as_ref(), date, program) {
            eprintln!("mpath-manual: cannot write the manual of {name} to {out}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
