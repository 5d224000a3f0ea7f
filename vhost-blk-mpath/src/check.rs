//! `--check`: everything about a configuration that can be known without side effects.

use std::io::{self, Write};
use std::process::ExitCode;

use mpath_api::Config;
use mpath_api::server::MetricsServer;
use mpath_api::socket::{self, Role};

use crate::args::Args;
use crate::disk::settings::DiskSettings;
use crate::host;
use crate::run::RunError;
use crate::sockets::location;
use crate::transport::{SecretCheck, SecretError};

/// Exit code of a configuration with errors.
const ERRORS: u8 = 2;

/// Prints all errors on stderr, one a line. Without errors, prints a line that says so.
pub(crate) fn check(args: Args) -> ExitCode {
    let errors = match args.into_checked() {
        Ok((source, config)) => {
            let errors = of_this_host(&config);
            if errors.is_empty() {
                let count = config.disks.iter().map(|disk| DiskSettings::all(disk).len()).sum::<usize>();
                // A reader that has closed its end wants no answer.
                let _ = writeln!(io::stdout(), "{source}: no errors; disks: {count}");
                return ExitCode::SUCCESS;
            }
            errors
        }
        Err(errors) => errors,
    };
    for error in errors {
        let _ = writeln!(io::stderr(), "{error}");
    }
    ExitCode::from(ERRORS)
}

/// What this host lacks: the identity, keys, accounts, the directories of the sockets, and the address of the metrics.
fn of_this_host(config: &Config) -> Vec<RunError> {
    let mut errors = Vec::new();
    errors.extend(host::identity(config).err().map(RunError::from));
    errors.extend(secrets(config).into_iter().map(RunError::from));
    errors.extend(location::conflicts(config).into_iter().map(RunError::from));
    let api = socket::check(&config.api, Role::Api, &config.api_access());
    let read_only = config.api_read_only.iter();
    let read_only = read_only.flat_map(|path| socket::check(path, Role::ReadOnlyApi, &config.api_read_only_access()));
    let disks = config.disks.iter().flat_map(DiskSettings::all);
    let of_disks = disks.flat_map(|disk| socket::check(&disk.socket_path, Role::VhostUser, &disk.socket_access));
    errors.extend(api.into_iter().chain(read_only).chain(of_disks).map(RunError::from));
    let metrics = config.metrics_address.and_then(|address| MetricsServer::check(address).err());
    errors.extend(metrics.map(RunError::from));
    errors
}

/// The errors in the files of keys and secrets. Reports what only the daemon's user can check.
fn secrets(config: &Config) -> Vec<SecretError> {
    let mut errors = Vec::new();
    for check in config.disks.iter().map(SecretCheck::of) {
        errors.extend(check.errors);
        for unchecked in check.unchecked {
            // A reader that has closed its end wants no answer.
            let _ = writeln!(io::stderr(), "{unchecked}");
        }
    }
    errors
}
