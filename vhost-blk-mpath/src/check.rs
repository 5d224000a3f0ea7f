//! `--check`: everything about a configuration that can be known without side effects.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use mpath_api_server::socket::{self, BindError, Role};
use mpath_api_server::{MetricsBindError, MetricsServer};
use mpath_config::{Config, DiskConfig, DiskName, DiskPlace, place_of};

use crate::args::{Args, Checked};
use crate::disk::settings::DiskSettings;
use crate::host;
use crate::run::RunError;
use crate::sockets::location;
use crate::transport::{SecretCheck, UNPROVEN_CONTROLLER};

/// Exit code of a configuration with errors.
const ERRORS: u8 = 2;

/// When a process may have a socket of the daemon.
const KEPT: &str = "that is well if it is this daemon, or if systemd keeps the socket for the daemon";

/// What this host lacks.
struct Fault {
    /// The setting that needs it, such as `disks[0].socket-path`.
    setting: Option<String>,
    /// The disk of the setting, if the error itself does not name it.
    disk: Option<DiskName>,
    error: RunError,
}

impl Fault {
    fn new(error: impl Into<RunError>) -> Self {
        Self { setting: None, disk: None, error: error.into() }
    }

    fn of_setting(setting: &str, error: impl Into<RunError>) -> Self {
        Self { setting: Some(setting.into()), ..Self::new(error) }
    }

    fn of_disk(disk: &DiskName, setting: &str, error: impl Into<RunError>) -> Self {
        Self { disk: Some(disk.clone()), ..Self::of_setting(setting, error) }
    }

    /// Whether a process has the socket.
    fn is_busy(&self) -> bool {
        matches!(self.error, RunError::Bind(BindError::Busy { .. }))
    }

    /// The error on one line, with its place if the configuration is a file.
    fn shown(&self, file: Option<&(PathBuf, String)>) -> String {
        let place = file.zip(self.setting.as_ref()).and_then(|((file, text), setting)| {
            let (line, column) = place_of(text, setting)?;
            Some(format!("{}:{line}:{column}: ", file.display()))
        });
        let disk = self.disk.as_ref().map(|disk| format!("disk {disk}: "));
        format!("{}{}{}", place.unwrap_or_default(), disk.unwrap_or_default(), self.error)
    }
}

/// The outcome of a check, in lines to print.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The line for a configuration without errors.
    pub(crate) success: Option<String>,
    /// Files that only the daemon's user can check, and keys that protect less than others.
    pub(crate) notes: Vec<String>,
    pub(crate) errors: Vec<String>,
}

/// Prints notes and all errors on stderr, one a line. Without errors, prints a line that says so.
pub(crate) fn check(args: Args) -> ExitCode {
    let Findings { success, notes, errors } = find(args);
    // A reader that has closed its end wants no answer.
    for line in notes.iter().chain(&errors) {
        let _ = writeln!(io::stderr(), "{line}");
    }
    let Some(line) = success else { return ExitCode::from(ERRORS) };
    let _ = writeln!(io::stdout(), "{line}");
    ExitCode::SUCCESS
}

/// All errors of the configuration and of this host.
pub(crate) fn find(args: Args) -> Findings {
    let Checked { file, config } = match args.into_checked() {
        Ok(checked) => checked,
        Err(errors) => {
            return Findings { errors: errors.iter().map(RunError::to_string).collect(), ..Findings::default() };
        }
    };
    let mut notes = Vec::new();
    let faults = of_this_host(&config, &mut notes);
    let success = faults.is_empty().then(|| {
        let source = file.as_ref().map_or_else(|| "the flags".into(), |(file, _)| file.display().to_string());
        let count = config.disks.iter().map(|disk| DiskSettings::all(disk).len()).sum::<usize>();
        format!("{source}: no errors; disks: {count}")
    });
    Findings { success, notes, errors: faults.iter().map(|fault| fault.shown(file.as_ref())).collect() }
}

/// What this host lacks: `io_uring`, the identity, keys, accounts, places for the sockets, and the address of the metrics.
fn of_this_host(config: &Config, notes: &mut Vec<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(reactor::rehearse_start().err().map(Fault::new));
    faults.extend(host::identity(config).err().map(Fault::new));
    faults.extend(config.disks.iter().enumerate().flat_map(|(index, disk)| secrets(index, disk, notes)));
    faults.extend(location::conflicts(config).into_iter().map(Fault::new));
    faults.extend(all_sockets(config, notes));
    let metrics = config.metrics_address.and_then(|address| MetricsServer::check(address).err());
    // The process that listens there may be the running daemon.
    let metrics = metrics.filter(|error| !matches!(error, MetricsBindError::InUse { .. }));
    faults.extend(metrics.map(|error| Fault::of_setting("metrics-address", error)));
    faults
}

/// The errors of all sockets. A socket that a process has is only noted: systemd may keep the socket for the daemon.
fn all_sockets(config: &Config, notes: &mut Vec<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let api = socket::check(&config.api, Role::Api, &config.api_access());
    faults.extend(api.into_iter().map(|error| Fault::of_setting("api", error)));
    if let Some(path) = &config.api_read_only {
        let read_only = socket::check(path, Role::ReadOnlyApi, &config.api_read_only_access());
        faults.extend(read_only.into_iter().map(|error| Fault::of_setting("api-read-only", error)));
    }
    faults.extend(config.disks.iter().enumerate().flat_map(|(index, disk)| sockets(index, disk)));
    let (busy, faults): (Vec<_>, _) = faults.into_iter().partition(Fault::is_busy);
    notes.extend(busy.iter().map(|fault| format!("warning: {}; {KEPT}", fault.shown(None))));
    faults
}

/// The errors in the files of keys and secrets.
fn secrets(index: usize, disk: &DiskConfig, notes: &mut Vec<String>) -> Vec<Fault> {
    if disk.leaves_controller_unproven() {
        notes.push(format!("warning: disk {}: {UNPROVEN_CONTROLLER}", disk.name));
    }
    let check = SecretCheck::of(disk);
    notes.extend(check.unchecked.iter().map(ToString::to_string));
    let fault = |(setting, error)| Fault::of_disk(&disk.name, &format!("disks[{index}].{setting}"), error);
    check.errors.into_iter().map(fault).collect()
}

/// Errors of the sockets of a disk and of the disks that share its paths.
fn sockets(index: usize, disk: &DiskConfig) -> impl Iterator<Item = Fault> {
    let place = DiskPlace { disk: index, sharer: None };
    DiskSettings::all(disk).into_iter().enumerate().flat_map(move |(position, disk)| {
        let place = DiskPlace { sharer: position.checked_sub(1), ..place };
        let errors = socket::check(&disk.socket_path, Role::VhostUser, &disk.socket_access).into_iter();
        errors.map(move |error| Fault::of_disk(&disk.name, &format!("{place}.socket-path"), error))
    })
}
