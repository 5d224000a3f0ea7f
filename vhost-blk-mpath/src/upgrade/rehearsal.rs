//! Decides: the new program refuses an upgrade, for example without a path.
//!
//! The rehearsal of a start: each disk is reached over one of its paths, before the running daemon ends.

use std::future::poll_fn;

use monotonic::{Duration, Instant};
use mpath_config::{Config, DiskConfig, PathAddress};
use mpath_lifecycle::SHUTDOWN_MAX;
use nvme_tcp::host::{ControllerConfig, ControllerEvent, HostController, HostIdentity};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use crate::clock::sleep_until;
use crate::discovery::saved_logs;
use crate::disk_files::state_file::StateFile;
use crate::subsystem::controller_config;
use crate::transport::{BegunAssociation, ControlSocket, Security, far_future};

/// How long the paths of a disk may take.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The most paths that an error names.
const NAMED_MAX: usize = 4;

/// Why the next daemon would not serve a disk.
#[derive(Debug, thiserror::Error)]
#[error("disk {disk}: no path leads to its namespace: {}; correct that, or use --force", listed(.failures))]
pub(crate) struct RehearsalError {
    disk: String,
    /// In the order of the configuration, discovered paths last.
    failures: Vec<(PathAddress, String)>,
}

/// The first paths with their reasons, and the number of the others.
fn listed(failures: &[(PathAddress, String)]) -> String {
    let named = failures.iter().take(NAMED_MAX).map(|(address, reason)| format!("{address} ({reason})"));
    let others = failures.len().saturating_sub(NAMED_MAX);
    named.chain((others > 0).then(|| format!("and {others} more"))).collect::<Vec<_>>().join(", ")
}

/// Rehearses the start of all disks, unless `force`.
pub(crate) async fn rehearse_all(config: &Config, host: &HostIdentity, force: bool) -> Result<(), RehearsalError> {
    if force {
        return Ok(());
    }
    let io_threads = config.io_threads.get() as u16;
    let mut disks = JoinSet::new();
    for disk in &config.disks {
        let (disk, host) = (disk.clone(), host.clone());
        disks.spawn(async move { rehearse(&disk, &host, io_threads).await });
    }
    while let Some(rehearsed) = disks.join_next().await {
        rehearsed.expect("it does not panic")?;
    }
    Ok(())
}

/// Connects a controller of the disk and identifies its namespaces, over any configured path, or any that the running daemon has
/// discovered. Succeeds at once without such paths.
async fn rehearse(config: &DiskConfig, host: &HostIdentity, io_threads: u16) -> Result<(), RehearsalError> {
    let controller = controller_config(config, host, io_threads);
    let mut attempts = JoinSet::new();
    let discovered = saved_logs::load(config, &StateFile::open(config.socket_path.as_path()));
    let mut paths = config.paths.clone();
    for address in discovered.paths() {
        if !paths.contains(address) {
            paths.push(address.clone());
        }
    }
    for (place, address) in paths.into_iter().enumerate() {
        let (controller, security) = (controller.clone(), Security::of(config, host));
        attempts.spawn(async move {
            let attempt = timeout(TIME_MAX.into(), reach(&address, security, controller)).await;
            let reached = attempt.unwrap_or_else(|_| Err(format!("no answer within {TIME_MAX:?}")));
            reached.map_err(|reason| (place, address, reason))
        });
    }
    let mut failures = Vec::new();
    while let Some(attempt) = attempts.join_next().await {
        match attempt.expect("it does not panic") {
            Ok(()) => return Ok(()),
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    failures.sort_by_key(|(place, ..)| *place);
    let failures = failures.into_iter().map(|(_, address, reason)| (address, reason)).collect();
    Err(RehearsalError { disk: config.name.to_string(), failures })
}

async fn reach(address: &PathAddress, security: Security, mut config: ControllerConfig) -> Result<(), String> {
    let BegunAssociation { mut socket, authentication, .. } =
        security.begin(address, &config).await.map_err(|error| error.to_string())?;
    config.authentication = authentication;
    let mut controller = HostController::new(config, Instant::now()).map_err(|error| error.to_string())?;
    let live = |event| if let ControllerEvent::Live(info) = event { Some(info) } else { None };
    let info = run_until(live, &mut socket, &mut controller).await?;
    controller.shutdown(Instant::now());
    let complete = |event| matches!(event, ControllerEvent::ShutdownComplete).then_some(());
    // The controller may not answer.
    let _ = timeout(SHUTDOWN_MAX.into(), run_until(complete, &mut socket, &mut controller)).await;
    info.namespaces.iter().try_for_each(|namespace| match namespace {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    })
}

/// Runs a controller until it has the wanted event.
async fn run_until<T>(
    wanted: impl Fn(ControllerEvent) -> Option<T>,
    socket: &mut ControlSocket,
    controller: &mut HostController,
) -> Result<T, String> {
    loop {
        controller.fill_tx(socket.out());
        if let Some(bytes) = socket.exchange().map_err(|error| error.to_string())? {
            controller.receive(Instant::now(), bytes).map_err(|error| error.to_string())?;
            // A controller that sends without pause must not keep the time from running out.
            yield_now().await;
        } else {
            let next_timeout = controller.next_timeout().unwrap_or_else(far_future);
            tokio::select! {
                () = poll_fn(|context| socket.poll_ready(context)) => {}
                () = sleep_until(next_timeout) => {
                    controller.handle_timeout(Instant::now()).map_err(|error| error.to_string())?;
                }
            }
        }
        if let Some(found) = std::iter::from_fn(|| controller.poll_event()).find_map(&wanted) {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_first_paths_and_the_number_of_the_others() {
        let failures = |count: u8| -> Vec<_> {
            (0..count).map(|n| (format!("tcp://192.0.2.{n}").parse().unwrap(), "refused".to_owned())).collect()
        };
        assert_eq!(listed(&failures(2)), "tcp://192.0.2.0:4420 (refused), tcp://192.0.2.1:4420 (refused)");
        assert!(listed(&failures(6)).ends_with(", tcp://192.0.2.3:4420 (refused), and 2 more"));
    }
}
