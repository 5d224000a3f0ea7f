//! Flags made of the settings of a configuration, for the daemon and for `mpathctl disk add`.

use std::marker::PhantomData;

use clap::builder::StyledStr;
use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Id};

use crate::config::{DiskConfig, Nqn, SocketPath};

/// The flags of a [`Config`](crate::Config) or of a [`DiskConfig`]. Each has the name and the description of a setting, and may be left
/// out.
#[derive(Debug, Clone)]
pub struct Flags<T> {
    given: ArgMatches,
    of: PhantomData<T>,
}

/// Why flags describe no disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiskFlagsError {
    /// No socket.
    #[error("no socket: give --socket-path PATH; see --help")]
    NoSocket,
    /// No subsystem.
    #[error("no subsystem: give --subsystem NQN; see --help")]
    NoSubsystem,
    /// No path and no discovery controller.
    #[error("no path: give --path tcp://HOST:PORT for each path, --discovery tcp://HOST, or --config FILE")]
    NoPath,
}

impl<T: Args> Args for Flags<T> {
    fn group_id() -> Option<Id> {
        T::group_id()
    }

    fn augment_args(command: Command) -> Command {
        let flags: Vec<_> = T::augment_args(Command::new("")).get_arguments().map(flag).collect();
        let all = T::group_id().map(|id| ArgGroup::new(id).multiple(true).args(flags.iter().map(Arg::get_id)));
        command.args(flags).groups(all)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The flag of a setting.
fn flag(setting: &Arg) -> Arg {
    let description = setting.get_help().map(StyledStr::to_string).unwrap_or_default();
    let help = description.replace('`', "").replace(" Can be changed while I/O runs", "");
    setting.clone().required(false).help(help.trim_end_matches('.').to_owned())
}

impl<T: Args> FromArgMatches for Flags<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { given: matches.clone(), of: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Args> Flags<T> {
    /// Sets the settings whose flags are given.
    pub fn apply(&self, settings: &mut T) {
        settings.update_from_arg_matches(&self.given).expect("the values are checked, and none is required");
    }
}

impl Flags<DiskConfig> {
    /// The disk that the flags describe, perhaps on a socket that no flag names.
    pub fn disk(&self, socket: Option<SocketPath>) -> Result<DiskConfig, DiskFlagsError> {
        let socket = socket.or_else(|| self.given.get_one("socket_path").cloned());
        let socket = socket.ok_or(DiskFlagsError::NoSocket)?;
        let subsystem: &Nqn = self.given.get_one("subsystem").ok_or(DiskFlagsError::NoSubsystem)?;
        let mut disk = DiskConfig::new(socket, subsystem.clone(), Vec::new());
        self.apply(&mut disk);
        if disk.paths.is_empty() && disk.discovery.is_empty() { Err(DiskFlagsError::NoPath) } else { Ok(disk) }
    }
}
