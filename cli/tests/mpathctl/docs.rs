//! What documents show: every command parses, commands that show something run, and every configuration loads.

mod text;

use std::collections::BTreeSet;

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use mpath_config::{Config, usage_line};

use self::text::Call;
use crate::daemon::Daemon;

fn programs() -> [Command; 4] {
    [
        mpathctl::command_line(),
        vhost_blk_mpath::command_line(),
        mpath_target::args::Args::command(),
        vublk_bench::options::Line::command(),
    ]
}

/// A value that stands for others: a word in capitals, or a variable.
fn is_placeholder(value: &str) -> bool {
    let is_capitals = |word: &str| word.bytes().all(|byte| byte.is_ascii_uppercase());
    let words = || value.split(|char: char| !char.is_ascii_alphanumeric());
    value.starts_with('$')
        || value.len() == 1 && is_capitals(value)
        || words().any(|word| word.len() > 1 && is_capitals(word))
}

/// The program with any value for this argument, which is named as in clap's errors.
fn with_any_value(program: Command, argument: &str) -> Command {
    let is_it = |arg: &Arg| match (arg.get_long(), arg.get_value_names()) {
        (Some(long), _) => argument.split(' ').next().and_then(|flag| flag.strip_prefix("--")) == Some(long),
        (None, Some(names)) => argument.trim_matches(['<', '>', '[', ']', '.']) == names[0].as_str(),
        (None, None) => false,
    };
    let any_value = |arg: Arg| if is_it(&arg) { arg.value_parser(ValueParser::string()) } else { arg };
    program.mut_args(any_value).mut_subcommands(|below| with_any_value(below, argument))
}

/// What is wrong with the call.
fn fault(mut program: Command, call: &Call) -> Option<String> {
    let mut relaxed = String::new();
    loop {
        let error = program.clone().try_get_matches_from(&call.words).err()?;
        match (error.kind(), error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue)) {
            (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, ..) => return None,
            (
                ErrorKind::MissingRequiredArgument
                | ErrorKind::MissingSubcommand
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                ..,
            ) if call.is_open => return None,
            // An option without its value.
            (ErrorKind::InvalidValue, _, Some(ContextValue::String(value))) if call.is_open && value.is_empty() => {
                return None;
            }
            (_, Some(ContextValue::String(argument)), Some(ContextValue::String(value)))
                if is_placeholder(value) && *argument != relaxed =>
            {
                program = with_any_value(program, argument);
                relaxed.clone_from(argument);
            }
            _ => {
                let why = usage_line(&error).unwrap_or_else(|| error.kind().to_string());
                return Some(format!("{}: {}: {why}", call.place, call.words.join(" ")));
            }
        }
    }
}

#[test]
fn every_command_parses() {
    let (mut calls, mut faults) = (0, Vec::new());
    for program in programs() {
        let name = program.get_name();
        for call in text::all().iter().flat_map(|code| code.calls(&[name])) {
            calls += 1;
            faults.extend(fault(program.clone(), &call));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(calls > 200, "{calls} calls found");
}

/// The arguments to run, if the call shows something and ends. Its disks and paths are replaced by those of the fake daemon.
fn shown(program: &Command, call: &Call) -> Option<Vec<String>> {
    let matches = program.clone().try_get_matches_from(&call.words).ok().filter(|_| !call.is_open)?;
    let (mut command, mut below) = (program, &matches);
    while let Some((name, next)) = below.subcommand() {
        (command, below) = (command.find_subcommand(name)?, next);
    }
    let given = |id: &str| below.try_get_raw(id).ok().flatten()?.next()?.to_str();
    let is_repeatable = command.get_arguments().any(|arg| arg.get_id() == "watch");
    if !is_repeatable || given("watch").is_some() || given("api").is_some() {
        return None;
    }
    let there = |word: &String| match Some(word.as_str()) {
        word if word == given("disk") => "disk0".into(),
        word if word == given("path") => "0".into(),
        _ => word.clone(),
    };
    Some(call.words[1..].iter().map(there).collect())
}

#[test]
fn commands_that_show_something_run() {
    let (daemon, program) = (Daemon::start(), mpathctl::command_line());
    let calls = text::all().iter().flat_map(|code| code.calls(&["mpathctl"])).collect::<Vec<_>>();
    let shown: BTreeSet<_> = calls.iter().filter_map(|call| shown(&program, call)).collect();
    for args in &shown {
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        assert!(!daemon.run(&args).is_empty(), "{args:?}");
    }
    assert!(shown.len() > 20, "{shown:?}");
}

/// The errors of these settings in a disk, and outside of disks. `None` if they load in either place.
fn errors(settings: &str) -> Option<[String; 2]> {
    let disk =
        "disks:\n  - socket-path: /run/s.sock\n    subsystem: nqn.2026-11.io.example:disk\n    paths: [tcp://h]\n";
    let of_disk = settings.lines().fold(disk.to_owned(), |text, line| format!("{text}    {line}\n"));
    let [of_disk, of_daemon] = [of_disk, format!("{settings}\n{disk}")].map(|text| Config::parse(&text).err());
    Some([of_disk?.to_string(), of_daemon?.to_string()])
}

/// The error of settings of which the first has this key. `None` if they load, or if the key is no setting.
fn setting_fault(key: &str, settings: &str) -> Option<String> {
    let is_known = |error: &String| !error.contains(&format!("unknown field `{key}`"));
    errors(&format!("{key}: 0")).is_none_or(|errors| errors.iter().any(is_known)).then_some(())?;
    errors(settings)?.into_iter().find(is_known)
}

#[test]
fn every_configuration_loads() {
    let (mut configurations, mut faults) = (0, Vec::new());
    for block in text::all().into_iter().filter(|code| code.is_block && !code.text.contains("...")) {
        let Some((key, _)) = block.text.split_once(':').filter(|(key, _)| !key.contains(char::is_whitespace)) else {
            continue;
        };
        configurations += 1;
        let fault = if block.text.lines().any(|line| line == "disks:") {
            Config::parse(&block.text).err().map(|error| error.to_string())
        } else {
            // A block may show several values of one setting.
            let each = || block.text.lines().find_map(|line| setting_fault(key, line));
            setting_fault(key, &block.text).and_then(|fault| each().map(|_| fault))
        };
        faults.extend(fault.map(|fault| format!("{}: {fault}", block.place)));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(configurations > 5, "{configurations} configurations found");
}
