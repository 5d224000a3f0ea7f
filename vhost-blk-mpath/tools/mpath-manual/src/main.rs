//! Writes the manual pages and the shell completions of `vhost-blk-mpath` and `mpathctl`, made from their command lines,
//! and the API reference, made from the OpenAPI document.
//!
//! `mpath-manual DIR DATE` fills `DIR/man8`, `DIR/man1` and `DIR/completions/{bash,zsh,fish}`, and writes
//! `DIR/api-reference.md`.

#![forbid(unsafe_code)]

mod api_reference;
mod page;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use clap::Command;
use clap_complete::{Generator, Shell};

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

/// A completion script without the hidden options of the command, which the library offers too.
fn without_hidden(script: &str, command: &Command) -> String {
    let hidden = command.get_arguments().filter(|argument| argument.is_hide_set());
    let hidden: Vec<&str> = hidden.filter_map(clap::Arg::get_long).collect();
    // bash has the options in one line, zsh and fish one a line.
    let offers =
        |line: &str, option: &&str| line.contains(&format!("'--{option}[")) || line.contains(&format!(" -l {option} "));
    let lines = script.lines().filter(|line| !hidden.iter().any(|option| offers(line, option)));
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    hidden.iter().fold(text, |text, option| text.replace(&format!(" --{option}"), ""))
}

/// Writes everything for one program.
fn write_all(out: &Path, date: &str, program: Program) -> io::Result<()> {
    let Program { name, command, section, see_also, files } = program;
    let mut command = command.bin_name(name).disable_help_subcommand(true);
    for (shell, folder) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
        let folder = out.join("completions").join(folder);
        fs::create_dir_all(&folder)?;
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, name, &mut script);
        let script = without_hidden(&String::from_utf8_lossy(&script), &command);
        fs::write(folder.join(shell.file_name(name)), script)?;
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
    let reference = Path::new(out).join("api-reference.md");
    if let Err(error) = fs::write(&reference, api_reference::page()) {
        eprintln!("mpath-manual: cannot write {}: {error}", reference.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All files below a directory with their contents.
    fn files(directory: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let below = |path: std::path::PathBuf| {
            if path.is_dir() {
                return files(&path);
            }
            vec![(path.file_name().unwrap().to_str().unwrap().into(), fs::read_to_string(&path).unwrap())]
        };
        entries.flat_map(below).collect()
    }

    /// Everything for all programs, with the names of the files.
    fn all_files() -> Vec<(String, String)> {
        let place = tempfile::tempdir().unwrap();
        for program in programs() {
            write_all(place.path(), "2026-11-27", program).unwrap();
        }
        files(place.path())
    }

    #[test]
    fn shells_offer_values_and_offer_files_only_where_one_is_meant() {
        let files = all_files();
        let text = |name: &str| &files.iter().find(|(file, _)| file == name).unwrap().1;
        let policies = "numa round-robin queue-depth adaptive pid latency latency-rr service-time bdp";
        assert!(text("mpathctl.bash").contains(&format!("--help {policies}\"")), "{}", text("mpathctl.bash"));
        assert!(text("_mpathctl").contains(&format!(":({policies})")), "{}", text("_mpathctl"));
        for (script, option, offer) in [
            ("mpathctl.bash", "policy", policies),
            ("mpathctl.bash", "status", "path-error ana-inaccessible"),
            ("mpathctl.bash", "output", "table json yaml"),
            ("mpathctl.bash", "disk", "COMPREPLY=(\"${cur}\")"),
            ("mpathctl.bash", "api", "compgen -f"),
            ("vhost-blk-mpath.bash", "scheduler", "burst-credit published fifo"),
            ("vhost-blk-mpath.bash", "wait-for", "none any all"),
            ("vhost-blk-mpath.bash", "subsystem", "COMPREPLY=(\"${cur}\")"),
            ("vhost-blk-mpath.bash", "socket-path", "compgen -f"),
        ] {
            let option = format!("--{option})\n");
            let mut offers =
                text(script).split(&option).skip(1).map(|rest| rest.split("return").next().unwrap()).peekable();
            assert!(offers.peek().is_some() && offers.all(|of| of.contains(offer)), "{script} {option}");
        }
    }

    #[test]
    fn each_command_has_a_page_and_hidden_options_are_nowhere() {
        let files = all_files();
        for page in ["vhost-blk-mpath.8", "mpathctl.1", "mpathctl-path.1", "mpathctl-path-list.1", "mpathctl-upgrade.1"]
        {
            assert!(files.iter().any(|(name, text)| name == page && text.contains(".SH SYNOPSIS")), "{page}");
        }
        for (name, text) in &files {
            assert!(!text.contains("take-over") && !text.contains("take\\-over"), "{name}");
        }
        let completions =
            files.iter().filter(|(name, text)| !name.contains(".1") && text.contains("shared-write-cache"));
        assert_eq!(completions.count(), 6, "both programs in three shells");
    }
}
