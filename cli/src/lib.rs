//! Decides: `mpathctl` ends with this exit code (`Kind`).
//!
//! `mpathctl`: shows and controls a running vhost-blk-mpath.

#![forbid(unsafe_code)]

mod cmd;
mod import;
mod mptcp;
mod output;
mod table;
mod tone;
mod top;
mod watch;
mod when;
mod yaml;

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};
use mpath_api::client::{Client, ClientError};
use mpath_api::types::{ErrorCode, InjectionError};
use mpath_config::{DEFAULT_API_SOCKET, DiskFlagsError, LoadError, completable, usage_line};

use crate::cmd::{Command, RelativePathError, SaveError, Unwell};
use crate::import::ImportError;
use crate::mptcp::{FollowError, GatherError};
use crate::output::{Code, Output};
use crate::when::WrongOrder;

/// The longest wait for an answer. The daemon answers within five seconds.
const TIMEOUT: Duration = Duration::from_secs(10);

const VERSION: &str = env!("VHOST_BLK_MPATH_VERSION");

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the daemon refused the request: an unknown disk or path, or one whose state does not allow it
  2  the command line, a value or a file is wrong
  3  the daemon cannot be reached, is too busy or ending, or sent a wrong answer
  4  `mptcp check` found a problem, or `config diff` a difference
  5  this host: its state cannot be read or changed, or the output cannot be written

With -o json or yaml, an error on stderr has the form of the API's: {\"error\": {\"code\": ..., \"message\": ...}}";

/// Show and control a running vhost-blk-mpath.
#[derive(Debug, Parser)]
#[command(name = "mpathctl", version = VERSION, after_help = EXIT_CODES, max_term_width = 100)]
struct Args {
    // Not clap's `env`, which refuses a variable that is set and empty.
    #[arg(
        long,
        value_name = "SOCKET",
        global = true,
        help = "API socket of the daemon [env: MPATH_API] [default: /run/vhost-blk-mpath/api.sock]"
    )]
    api: Option<PathBuf>,

    /// Output format; json and yaml are the answer of the API, for programs
    #[arg(short, long, value_enum, default_value_t, global = true)]
    output: Format,

    #[command(subcommand)]
    command: Command,
}

/// Output format.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// Aligned columns, units in the headers
    #[default]
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    Api(ClientError),
    Import(ImportError),
    /// A configuration file.
    Load(LoadError),
    /// All errors of a configuration file.
    Errors(Vec<LoadError>),
    /// The configuration in effect, of a daemon of another version.
    Effective(serde_json::Error),
    Save(SaveError),
    /// Flags that describe no disk.
    Disk(DiskFlagsError),
    /// A relative path that cannot be made absolute.
    RelativePath(RelativePathError),
    /// Contradictory options of `inject set`.
    Injection(InjectionError),
    Output(io::Error),
    Gather(GatherError),
    Follow(FollowError),
    /// The errors or problems are already printed.
    Reported(Kind),
    /// Times in the wrong order.
    Order(WrongOrder),
    /// `health` says that something is not well, and why it cannot say more.
    Unwell(Unwell, Option<ClientError>),
    /// `top` without a terminal.
    NoTerminal,
    /// A command for one disk, without its name although there are several.
    AmbiguousDisk,
    /// A change without `--disk` or `--all` selects paths of several disks.
    PathsOfSeveralDisks,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Api(error)
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        Self::Import(error)
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

impl From<WrongOrder> for Failure {
    fn from(error: WrongOrder) -> Self {
        Self::Order(error)
    }
}

impl From<SaveError> for Failure {
    fn from(error: SaveError) -> Self {
        Self::Save(error)
    }
}

impl From<DiskFlagsError> for Failure {
    fn from(error: DiskFlagsError) -> Self {
        Self::Disk(error)
    }
}

impl From<RelativePathError> for Failure {
    fn from(error: RelativePathError) -> Self {
        Self::RelativePath(error)
    }
}

impl From<GatherError> for Failure {
    fn from(error: GatherError) -> Self {
        Self::Gather(error)
    }
}

impl From<FollowError> for Failure {
    fn from(error: FollowError) -> Self {
        match error {
            FollowError::Gather(error) => Self::Gather(error),
            FollowError::Output(error) => Self::Output(error),
            error => Self::Follow(error),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Kinds of failures, each with its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The daemon refused the request.
    Refused = 1,
    /// The command line, a value or a file is wrong.
    Usage = 2,
    /// The daemon cannot be reached, is too busy or ending, or sent a wrong answer.
    Unreachable = 3,
    /// A check found problems, or a comparison found differences.
    Problems = 4,
    /// The state of this host cannot be read or changed, or the output cannot be written.
    Host = 5,
}

impl From<Kind> for ExitCode {
    fn from(kind: Kind) -> Self {
        Self::from(kind as u8)
    }
}

impl Failure {
    /// As [`Self::describe`], of an error of the client.
    fn describe_client(error: &ClientError) -> (Kind, Code, String) {
        let ClientError::Refused(refusal) = error else {
            return (Kind::Unreachable, Code::Own("unreachable"), error.to_string());
        };
        // The daemon checks values that only it knows.
        let kind = match refusal.code {
            ErrorCode::BadRequest | ErrorCode::ConfigInvalid => Kind::Usage,
            ErrorCode::Unavailable => Kind::Unreachable,
            _ => Kind::Refused,
        };
        (kind, Code::Api(refusal.code), refusal.message.clone())
    }

    /// The kind of the failure, and what to print.
    fn describe(&self) -> (Kind, Code, String) {
        let (kind, message): (_, &dyn Display) = match self {
            Self::Api(error) | Self::Unwell(_, Some(error)) => return Self::describe_client(error),
            Self::Output(error) => {
                return (Kind::Host, Code::Own("host"), format!("cannot write the output: {error}"));
            }
            Self::AmbiguousDisk => {
                (Kind::Usage, &"there are several disks; name one with --disk (`mpathctl status` shows the disks)")
            }
            Self::PathsOfSeveralDisks => {
                (Kind::Usage, &"there are such paths of several disks; name one with --disk NAME, or give --all")
            }
            Self::NoTerminal => (
                Kind::Usage,
                &"top needs a terminal; for a file or a pipe use a command with --watch, such as `path list --watch`",
            ),
            Self::Reported(kind) => (*kind, &"failed"),
            Self::Unwell(_, None) => (Kind::Problems, &"not well"),
            Self::Gather(error @ GatherError::Ip(_)) => (Kind::Host, error),
            Self::Gather(error) => (Kind::Usage, error),
            Self::Follow(error) => (Kind::Host, error),
            Self::Load(error) => (Kind::Usage, error),
            Self::Errors(errors) => {
                let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
                return (Kind::Usage, Code::Own("usage"), lines.join("\n"));
            }
            Self::Effective(error) => {
                let message =
                    format!("the daemon's configuration cannot be read: {error}; use the mpathctl of its version");
                return (Kind::Unreachable, Code::Own("unreachable"), message);
            }
            Self::Save(error @ SaveError::Write { .. }) => (Kind::Host, error),
            Self::Save(error) => (Kind::Usage, error),
            Self::Disk(error) => (Kind::Usage, error),
            Self::RelativePath(error) => (Kind::Usage, error),
            Self::Import(error) => (Kind::Usage, error),
            Self::Injection(error) => (Kind::Usage, error),
            Self::Order(error) => (Kind::Usage, error),
        };
        let code = match kind {
            Kind::Refused | Kind::Usage => "usage",
            Kind::Unreachable => "unreachable",
            Kind::Problems => "problems",
            Kind::Host => "host",
        };
        (kind, Code::Own(code), message.to_string())
    }
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let (args, watch) = match parse() {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    let (result, daemon_version) = run(&args, watch);
    let note = version_note(daemon_version.as_deref(), result.as_ref().err());
    match result {
        Ok(()) => {
            if let Some(note) = note {
                output::note(format_args!("{note}; use the mpathctl of the daemon's version"));
            }
            ExitCode::SUCCESS
        }
        Err(failure) => failed(&failure, args.output, note),
    }
}

/// Prints why the command failed, if that has not been said.
fn failed(failure: &Failure, format: Format, note: Option<String>) -> ExitCode {
    match failure {
        // The reader of a pipe has closed it, as `head` does.
        Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Failure::Reported(kind) => (*kind).into(),
        Failure::Unwell(unwell, None) => (*unwell as u8).into(),
        failure => {
            let (kind, code, mut message) = failure.describe();
            message.extend(note.map(|note| format!("; {note}")));
            Output::new(format).error(code, &message);
            if let Failure::Unwell(unwell, _) = failure { (*unwell as u8).into() } else { kind.into() }
        }
    }
}

/// The command line with all of its options, for manual pages and completions too.
#[must_use]
pub fn command_line() -> clap::Command {
    completable(watch::with_option(Args::command()))
}

/// The command, and the time after which it is repeated.
fn parse() -> Result<(Args, Option<Duration>), clap::Error> {
    let matches = command_line().try_get_matches()?;
    let args = Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command_line()))?;
    Ok((args, watch::asked(&matches)))
}

/// Runs the command. Returns its outcome, and the version of the daemon that it asked.
fn run(args: &Args, watch: Option<Duration>) -> (Result<(), Failure>, Option<String>) {
    let from_environment = || std::env::var_os("MPATH_API").filter(|path| !path.is_empty()).map(PathBuf::from);
    let api = args.api.clone().or_else(from_environment).unwrap_or_else(|| DEFAULT_API_SOCKET.into());
    let client = match Client::new(&api, TIMEOUT) {
        Ok(client) => Arc::new(client),
        Err(error) => return (Err(error.into()), None),
    };
    let result = match watch {
        Some(every) => watch::repeat(every, args.output, |output| args.command.run(&client, output)),
        None => args.command.run(&client, &mut Output::new(args.output)),
    };
    (result, client.daemon_version())
}

/// Names both versions if the daemon is of another release, or of another build that may be the reason of a failure.
fn version_note(daemon: Option<&str>, failure: Option<&Failure>) -> Option<String> {
    let daemon = daemon.filter(|daemon| *daemon != VERSION)?;
    // The commit follows after a blank.
    let release = |version: &str| version.split(' ').next().map(ToOwned::to_owned);
    let is_reason = match failure {
        Some(Failure::Api(ClientError::Unreadable { .. })) => true,
        Some(Failure::Api(ClientError::Refused(refusal))) => matches!(
            refusal.code,
            ErrorCode::BadRequest | ErrorCode::UnknownRoute | ErrorCode::MethodNotAllowed | ErrorCode::Other
        ),
        _ => false,
    };
    let differs = release(daemon) != release(VERSION);
    (differs || is_reason).then(|| format!("mpathctl has version {VERSION}, and the daemon has version {daemon}"))
}

/// Prints the error, the help or the version. Help and version are no errors.
fn usage(error: &clap::Error) -> ExitCode {
    if let Some(mut line) = usage_line(error) {
        if let Some(meant) = meant(error) {
            line = format!("{}; did you mean {meant}?", line.trim_end_matches("; see --help"));
        }
        Output::new(asked_format(std::env::args().skip(1))).error(Code::Own("usage"), &line);
        return Kind::Usage.into();
    }
    match error.print() {
        // A failed write to stderr leaves nothing to do.
        _ if error.use_stderr() => Kind::Usage.into(),
        Err(error) => failed(&Failure::Output(error), Format::Table, None),
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// The commands that an unknown command may mean: the commands of that name below others, or else those of a similar name.
fn meant(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let whole = |noun: &clap::Command| {
        noun.find_subcommand(unknown).map(|verb| format!("mpathctl {} {}", noun.get_name(), verb.get_name()))
    };
    let mut names: Vec<_> = command_line().get_subcommands().filter_map(whole).collect();
    if names.is_empty()
        && let Some(ContextValue::Strings(similar)) = error.get(ContextKind::SuggestedSubcommand)
    {
        names.clone_from(similar);
    }
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    (!quoted.is_empty()).then(|| quoted.join(" or "))
}

/// The output format that a wrong command line asks for.
fn asked_format(args: impl Iterator<Item = String>) -> Format {
    let mut args = args.peekable();
    let mut format = Format::Table;
    while let Some(arg) = args.next() {
        let value = match arg.as_str() {
            "-o" | "--output" => args.peek().map(String::as_str),
            _ => arg
                .strip_prefix("--output=")
                .or_else(|| arg.strip_prefix("-o"))
                .map(|value| value.trim_start_matches('=')),
        };
        format = value.and_then(|value| Format::from_str(value, false).ok()).unwrap_or(format);
    }
    format
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_has_a_format_too() {
        for (line, is_json) in [
            ("paths -o json", true),
            ("--output json paths", true),
            ("--output=json", true),
            ("-ojson x", true),
            ("-o=json x", true),
            ("-o table", false),
            ("x json", false),
            ("-o", false),
        ] {
            let format = asked_format(line.split(' ').map(String::from));
            assert_eq!(matches!(format, Format::Json), is_json, "{line}");
        }
    }
}
