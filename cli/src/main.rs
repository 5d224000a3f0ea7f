//! `mpathctl`: shows and controls a running vhost-blk-mpath.

#![forbid(unsafe_code)]

mod cmd;
mod import;
mod mptcp;
mod output;

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use mpath_api::client::{Client, ClientError};
use mpath_api::config::LoadError;
use mpath_api::types::InjectionError;
use mpath_api::{DEFAULT_API_SOCKET, DiskFlagsError, usage_line};

use crate::cmd::{Command, SocketError};
use crate::import::ImportError;
use crate::mptcp::{FollowError, GatherError};
use crate::output::Output;

/// The longest wait for an answer. The daemon answers within five seconds.
const TIMEOUT: Duration = Duration::from_secs(10);

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the daemon refused the request, a check found a problem, or the output could not be written
  2  the command line or a file is wrong
  3  the daemon cannot be reached or sent a wrong answer, or the state of this host cannot be read";

/// Show and control a running vhost-blk-mpath.
#[derive(Debug, Parser)]
#[command(name = "mpathctl", version = env!("VHOST_BLK_MPATH_VERSION"), after_help = EXIT_CODES, max_term_width = 100)]
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
    /// Flags that describe no disk.
    Disk(DiskFlagsError),
    /// A relative socket path that cannot be made absolute.
    Socket(SocketError),
    /// Contradictory options of `inject set`.
    Injection(InjectionError),
    Output(io::Error),
    Gather(GatherError),
    Follow(FollowError),
    /// The error is already printed.
    AlreadyReported,
    /// A command for one disk, without its name although there are several.
    AmbiguousDisk,
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

impl From<DiskFlagsError> for Failure {
    fn from(error: DiskFlagsError) -> Self {
        Self::Disk(error)
    }
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        Self::Socket(error)
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

const REFUSED: u8 = 1;
const USAGE: u8 = 2;
const UNREACHABLE: u8 = 3;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe has closed it, as `head` does.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failure::Output(error)) => fail(REFUSED, &format_args!("cannot write the output: {error}")),
        Err(Failure::AmbiguousDisk) => {
            fail(USAGE, &"there are several disks; name one with --disk (`mpathctl status` shows the disks)")
        }
        Err(Failure::AlreadyReported) => ExitCode::from(REFUSED),
        Err(Failure::Gather(error @ GatherError::Ip(_))) => fail(UNREACHABLE, &error),
        Err(Failure::Gather(error)) => fail(USAGE, &error),
        Err(Failure::Follow(error @ FollowError::NotRestored(_))) => fail(REFUSED, &error),
        Err(Failure::Follow(error)) => fail(UNREACHABLE, &error),
        Err(Failure::Load(error)) => fail(USAGE, &error),
        Err(Failure::Disk(error)) => fail(USAGE, &error),
        Err(Failure::Socket(error)) => fail(USAGE, &error),
        Err(Failure::Import(error)) => fail(USAGE, &error),
        Err(Failure::Injection(error)) => fail(USAGE, &error),
        Err(Failure::Api(error @ ClientError::Refused(_))) => fail(REFUSED, &error),
        Err(Failure::Api(error)) => fail(UNREACHABLE, &error),
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let from_environment = || std::env::var_os("MPATH_API").filter(|path| !path.is_empty()).map(PathBuf::from);
    let api = args.api.clone().or_else(from_environment).unwrap_or_else(|| DEFAULT_API_SOCKET.into());
    let client = Client::new(&api, TIMEOUT)?;
    args.command.run(&client, &mut Output::new(args.output))
}

fn fail(code: u8, message: &dyn Display) -> ExitCode {
    eprintln!("mpathctl: {message}");
    ExitCode::from(code)
}

/// Prints the error, the help or the version. Help and version are no errors.
fn usage(error: &clap::Error) -> ExitCode {
    if let Some(line) = usage_line(error) {
        return fail(USAGE, &line);
    }
    // A failed write leaves nothing to do.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}
