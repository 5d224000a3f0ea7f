//! From configuration to a serving daemon, and to its end.
//!
//! Nothing is half-started: sockets are taken first, then every path is tried, and only a disk with a working path is shown
//! to front-ends. Whatever fails before that removes what was made.

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpath_api::config::{ConflictError, DiskConfig, LoadError, MAX_PATHS, SocketPath};
use mpath_api::server::Server;
use mpath_api::socket::{BindError, ListeningSocket, Role};
use mpath_api::types::Origin;
use mpath_api::{Config, PathAddress};
use mpath_core::PathId;
use nvme_tcp::host::HostIdentity;
use reactor::IoThreadHandle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

use crate::control::Daemon;
use crate::discovery::Discovery;
use crate::disk::DiskSettings;
use crate::events::EventLog;
use crate::fence_record::{FenceRecords, RecordError};
use crate::frontend::{FrontendThread, ServedDisk};
use crate::host::{self, HostError};
use crate::path::PathError;
use crate::path_status::PathStatus;
use crate::subflows;
use crate::subsystem::Subsystem;

/// Why the daemon did not start, or ended otherwise than by a signal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    File(#[from] LoadError),
    #[error(transparent)]
    Flags(#[from] ConflictError),
    #[error("no path: give --path tcp://HOST:PORT, once for each, or --discovery tcp://HOST, or a file by --config")]
    NoPathGiven,
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("disk {disk}: no path leads to a namespace of `subsystem` {subsystem}{failures}")]
    NoPath {
        disk: String,
        subsystem: String,
        /// Of each path.
        failures: Failures,
    },
    #[error("disk {disk}: no path to `subsystem` {subsystem} is configured or discovered{reasons}")]
    NoneDiscovered {
        disk: String,
        subsystem: String,
        /// Of each discovery controller.
        reasons: Discovered,
    },
    #[error("disk {disk}: no path leads to its namespace of `subsystem` {subsystem}{reasons}")]
    NoNamespace {
        disk: String,
        subsystem: String,
        /// Of each path.
        reasons: Reasons,
    },
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// What went wrong on each path, for one line.
#[derive(Debug)]
pub(crate) struct Failures(Vec<(String, PathError)>);

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(address, error)| write!(f, "; {address}: {error}"))
    }
}

/// What each path has to say, for one line.
#[derive(Debug)]
pub(crate) struct Reasons(Vec<(PathAddress, String)>);

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(address, reason)| write!(f, "; {address}: {reason}"))
    }
}

/// What each discovery controller has to say, for one line.
#[derive(Debug)]
pub(crate) struct Discovered(Vec<(PathAddress, String)>);

impl fmt::Display for Discovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(address, reason)| write!(f, "; discovery controller {address}: {reason}"))
    }
}

impl RunError {
    /// See `--help`.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::System(_) | Self::Record(_) => 1,
            Self::NoPath { failures, .. } if failures.0.iter().any(|(_, error)| error.is_of_this_host()) => 1,
            Self::File(_) | Self::Flags(_) | Self::NoPathGiven | Self::Host(_) => 2,
            Self::NoPath { .. } | Self::NoneDiscovered { .. } | Self::NoNamespace { .. } => 3,
            Self::Bind(_) => 4,
        })
    }
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(config: Config) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> Result<(), RunError> {
    let started = Instant::now();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut ending = async move || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };

    for disk in config.disks.iter().filter(|disk| !disk.subsystem.has_form()) {
        // Not refused: there are targets that have such names.
        tracing::warn!(
            disk = %disk.name,
            subsystem = %disk.subsystem,
            "the subsystem's name does not start with `nqn.`: if that is not what the target calls it, mend `subsystem`"
        );
    }
    let host = host::identity(&config)?;
    let api = Server::bind(&config.api)?;
    let socket_paths: Vec<Vec<_>> = config
        .disks
        .iter()
        .map(|disk| DiskSettings::all(disk).into_iter().map(|disk| disk.socket_path).collect())
        .collect();
    let sockets: Vec<_> = socket_paths
        .iter()
        .flatten()
        .map(|path| ListeningSocket::bind(path, Role::VhostUser))
        .collect::<Result<_, _>>()?;

    let events = Arc::new(EventLog::new());
    let mut discoveries: Vec<_> = config.disks.iter().map(|disk| Discovery::start(disk, &host, &events)).collect();
    let discovered = async {
        let mut discovered = Vec::new();
        for (disk, discovery) in config.disks.iter().zip(&mut discoveries) {
            discovered.push(match discovery {
                Some(discovery) => discovered_paths(disk, discovery).await?,
                None => Vec::new(),
            });
        }
        Ok::<_, RunError>(discovered)
    };
    let discovered = tokio::select! {
        discovered = discovered => discovered?,
        () = ending() => return Ok(()),
    };

    let records: Vec<_> = socket_paths
        .iter()
        .map(|paths| FenceRecords::open(paths.iter().map(SocketPath::as_path)))
        .collect::<Result<_, _>>()?;

    let (shutdown, ends) = watch::channel(false);
    let io_threads = config.io_threads.get() as u16;
    let starting: Vec<_> = config
        .disks
        .into_iter()
        .zip(discovered)
        .zip(records)
        .map(|((disk, discovered), records)| {
            StartingSubsystem::new(disk, &discovered, records, host.clone(), io_threads, &ends, &events)
        })
        .collect();
    let subsystems: Vec<_> = starting.iter().map(|starting| Arc::clone(&starting.subsystem)).collect();
    let shown = discoveries.iter().flatten().map(Discovery::shown).collect();
    let daemon = Arc::new(Daemon { subsystems, started, events, discovery: shown });
    let mut tasks = vec![tokio::spawn(subflows::watch(daemon.subsystems.clone(), ends.clone()))];
    let started = async {
        for subsystem in starting {
            subsystem.paths_tried().await?;
        }
        for (subsystem, discovery) in daemon.subsystems.iter().zip(discoveries) {
            let run = discovery.map(|discovery| discovery.run(Arc::clone(subsystem), ends.clone()));
            tasks.extend(run.map(tokio::spawn));
        }
        Ok::<_, RunError>(())
    };
    let started = tokio::select! {
        started = started => started.map(|()| true),
        () = ending() => Ok(false),
    };
    let result = match started {
        Ok(true) => serve_disks(&daemon, sockets, api, ending()).await,
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };

    // Whatever has been started ends, in the order in which requests come down.
    for subsystem in &daemon.subsystems {
        subsystem.threads().iter().for_each(IoThreadHandle::begin_shutdown);
        let in_doubt = subsystem.threads().iter().filter(|thread| thread.join()).count();
        if in_doubt == 0 {
            subsystem.records.end();
        } else {
            tracing::warn!(
                disk = %subsystem.name(),
                "writes were given up whose fate is not known; a daemon started on this disk waits for their fence"
            );
        }
    }
    shutdown.send_replace(true);
    for task in tasks {
        // The same; after these no more paths are added.
        let _ = task.await;
    }
    for task in daemon.subsystems.iter().flat_map(|subsystem| subsystem.take_tasks()) {
        // A task that was cancelled or panicked has ended as well.
        let _ = task.await;
    }
    result
}

/// The paths that a disk has besides those configured when it starts.
async fn discovered_paths(config: &DiskConfig, discovery: &mut Discovery) -> Result<Vec<PathAddress>, RunError> {
    let mut discovered = discovery.first().await;
    discovered.retain(|address| !config.paths.contains(address));
    discovered.truncate(MAX_PATHS - config.paths.len());
    if config.paths.is_empty() && discovered.is_empty() {
        let (disk, subsystem) = (config.name.to_string(), config.subsystem.to_string());
        return Err(RunError::NoneDiscovered { disk, subsystem, reasons: Discovered(discovery.reasons()) });
    }
    Ok(discovered)
}

/// A subsystem whose paths are being tried for the first time.
struct StartingSubsystem {
    subsystem: Arc<Subsystem>,
    paths: Vec<StartingPath>,
}

struct StartingPath {
    path: PathId,
    tried: oneshot::Receiver<Result<(), PathError>>,
}

impl StartingSubsystem {
    fn new(
        config: DiskConfig,
        discovered: &[PathAddress],
        (records, inherited): (FenceRecords, Option<Duration>),
        host: HostIdentity,
        io_threads: u16,
        ends: &watch::Receiver<bool>,
        log: &Arc<EventLog>,
    ) -> Self {
        if let Some(fence) = inherited {
            for disk in DiskSettings::all(&config) {
                tracing::warn!(
                    disk = %disk.name,
                    wait = ?fence,
                    "a daemon before this one did not end in order: requests wait until its writes cannot be executed any more"
                );
            }
            let records = records.clone();
            tokio::spawn(async move {
                tokio::time::sleep(fence).await;
                if let Err(error) = records.remove_inherited().await {
                    tracing::warn!(%error, "fence record not brought up to date");
                }
            });
        }
        let inherited = inherited.map(|fence| Instant::now() + fence);
        let subsystem =
            Arc::new(Subsystem::new(config, host, records, inherited, io_threads, ends.clone(), Arc::clone(log)));
        let configured = subsystem.config.paths.iter().map(|address| (address, Origin::Configured));
        let addresses = configured.chain(discovered.iter().map(|address| (address, Origin::Discovery)));
        let paths = addresses.map(|(address, origin)| {
            let (first, tried) = oneshot::channel();
            let path = subsystem.start_path(address.clone(), origin, Some(first));
            StartingPath { path: path.expect("at most 64 paths, no two alike"), tried }
        });
        Self { paths: paths.collect(), subsystem }
    }

    /// Waits for the outcome of every path's first attempt; one that worked is enough for each disk.
    async fn paths_tried(self) -> Result<(), RunError> {
        let subsystem = self.subsystem;
        let (mut failures, mut live) = (Vec::new(), 0);
        for StartingPath { path, tried } in self.paths {
            match tried.await {
                Ok(Ok(())) => live += 1,
                Ok(Err(error)) => failures.push((path, error)),
                // It was removed before its first attempt had ended.
                Err(_) => {}
            }
        }
        if live == 0 {
            let state = subsystem.state();
            let address = |(path, error)| Some((state.path(path)?.address.to_string(), error));
            let failures = failures.into_iter().filter_map(address).collect();
            let disk = subsystem.name().to_string();
            let subsystem = subsystem.config.subsystem.to_string();
            return Err(RunError::NoPath { disk, subsystem, failures: Failures(failures) });
        }
        if let Some(disk) = subsystem.disks.iter().find(|disk| disk.served().is_none()) {
            let state = subsystem.state();
            let reason = |path: &PathStatus| Some((path.address.clone(), path.namespace(disk.id)?.unusable.clone()?));
            let reasons = Reasons(state.paths().filter_map(reason).collect());
            let (disk, subsystem) = (disk.name().to_string(), subsystem.config.subsystem.to_string());
            return Err(RunError::NoNamespace { disk, subsystem, reasons });
        }
        for (path, error) in failures {
            subsystem.path_started_down(path, &error);
        }
        Ok(())
    }
}

/// Serves front-ends and the API until the end is asked for, and winds both down.
async fn serve_disks(
    daemon: &Arc<Daemon>,
    sockets: Vec<ListeningSocket>,
    api: Server,
    ending: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let frontends = daemon
        .disks()
        .zip(sockets)
        .map(|((subsystem, disk), socket)| {
            FrontendThread::start(ServedDisk { subsystem: Arc::clone(subsystem), id: disk.id }, socket)
        })
        .collect::<io::Result<Vec<_>>>()?;
    for (_, disk) in daemon.disks() {
        tracing::info!(disk = disk.name(), socket = %disk.settings.socket_path, "ready");
    }
    let ending = async {
        ending.await;
        // Who waits for events does not hold up the end.
        daemon.events.end();
    };
    let served = api.serve(Arc::clone(daemon), ending).await;
    tracing::info!("ending");
    daemon.subsystems.iter().flat_map(|subsystem| subsystem.threads()).for_each(IoThreadHandle::begin_shutdown);
    // Blocks this thread: there is nothing else left to do, and the end of an I/O thread is bounded.
    frontends.into_iter().for_each(FrontendThread::shutdown);
    Ok(served?)
}
