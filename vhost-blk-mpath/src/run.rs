//! From configuration to a serving daemon, and to its end.
//!
//! Nothing is half-started: sockets are taken first, then every path is tried, and only a disk with a working path is shown
//! to front-ends. Whatever fails before that removes what was made.

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpath_api::Config;
use mpath_api::config::{ConflictError, DiskConfig, LoadError};
use mpath_api::server::Server;
use mpath_api::socket::{BindError, ListeningSocket, Role};
use mpath_api::types::Origin;
use mpath_core::PathId;
use nvme_tcp::host::HostIdentity;
use reactor::IoThreadHandle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

use crate::control::Daemon;
use crate::disk::Disk;
use crate::events::EventLog;
use crate::fence_record::{FenceRecord, RecordError};
use crate::frontend::FrontendThread;
use crate::host::{self, HostError};
use crate::path::PathError;

/// Why the daemon did not start, or ended otherwise than by a signal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    File(#[from] LoadError),
    #[error(transparent)]
    Flags(#[from] ConflictError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("disk {disk}: no path leads to a namespace of `subsystem` {subsystem}{failures}")]
    NoPath { disk: String, subsystem: String, failures: Failures },
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

impl RunError {
    /// See `--help`.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::System(_) | Self::Record(_) => 1,
            Self::NoPath { failures, .. } if failures.0.iter().any(|(_, error)| error.is_of_this_host()) => 1,
            Self::File(_) | Self::Flags(_) | Self::Host(_) => 2,
            Self::NoPath { .. } => 3,
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

    let host = host::identity(&config)?;
    let api = Server::bind(&config.api)?;
    let sockets: Vec<_> = config
        .disks
        .iter()
        .map(|disk| ListeningSocket::bind(&disk.socket_path, Role::VhostUser))
        .collect::<Result<_, _>>()?;

    let records: Vec<_> =
        config.disks.iter().map(|disk| FenceRecord::open(disk.socket_path.as_path())).collect::<Result<_, _>>()?;

    let events = Arc::new(EventLog::new());
    let (shutdown, ends) = watch::channel(false);
    let io_threads = config.io_threads.get() as u16;
    let starting: Vec<_> = config
        .disks
        .into_iter()
        .zip(records)
        .map(|(disk, record)| StartingDisk::new(disk, record, host.clone(), io_threads, &ends, &events))
        .collect();
    let disks = starting.iter().map(|disk| Arc::clone(&disk.disk)).collect();
    let daemon = Arc::new(Daemon { disks, started, events });
    let started = async {
        for disk in starting {
            disk.paths_tried().await?;
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
    for disk in &daemon.disks {
        disk.threads().iter().for_each(IoThreadHandle::begin_shutdown);
        let in_doubt = disk.threads().iter().filter(|thread| thread.join()).count();
        if in_doubt == 0 {
            disk.record.end();
        } else {
            tracing::warn!(
                disk = %disk.config.name,
                "writes were given up whose fate is not known; a daemon started on this disk waits for their fence"
            );
        }
    }
    shutdown.send_replace(true);
    for task in daemon.disks.iter().flat_map(|disk| disk.take_tasks()) {
        // A task that was cancelled or panicked has ended as well.
        let _ = task.await;
    }
    result
}

/// A disk whose paths are being tried for the first time.
struct StartingDisk {
    disk: Arc<Disk>,
    paths: Vec<StartingPath>,
}

struct StartingPath {
    path: PathId,
    tried: oneshot::Receiver<Result<(), PathError>>,
}

impl StartingDisk {
    fn new(
        config: DiskConfig,
        (record, inherited): (FenceRecord, Option<Duration>),
        host: HostIdentity,
        io_threads: u16,
        ends: &watch::Receiver<bool>,
        log: &Arc<EventLog>,
    ) -> Self {
        if let Some(fence) = inherited {
            tracing::warn!(
                disk = %config.name,
                wait = ?fence,
                "a daemon before this one did not end in order: front-ends wait until its writes cannot be executed any more"
            );
            let record = record.clone();
            tokio::spawn(async move {
                tokio::time::sleep(fence).await;
                if let Err(error) = record.remove_inherited().await {
                    tracing::warn!(%error, "fence record not brought up to date");
                }
            });
        }
        let inherited = inherited.map(|fence| Instant::now() + fence);
        let disk = Arc::new(Disk::new(config, host, record, inherited, io_threads, ends.clone(), Arc::clone(log)));
        let paths = disk.config.paths.iter().map(|address| {
            let (first, tried) = oneshot::channel();
            let path = disk.start_path(address.clone(), Origin::Configured, Some(first));
            StartingPath { path: path.expect("a configuration has at most 64 paths, no two alike"), tried }
        });
        Self { paths: paths.collect(), disk }
    }

    /// Waits for the outcome of every path's first attempt; one that worked is enough.
    async fn paths_tried(self) -> Result<(), RunError> {
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
            let state = self.disk.state();
            let address = |(path, error)| Some((state.path(path)?.address.to_string(), error));
            let failures = failures.into_iter().filter_map(address).collect();
            let disk = self.disk.config.name.to_string();
            let subsystem = self.disk.config.subsystem.to_string();
            return Err(RunError::NoPath { disk, subsystem, failures: Failures(failures) });
        }
        for (path, error) in failures {
            self.disk.path_started_down(path, &error);
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
        .disks
        .iter()
        .zip(sockets)
        .map(|(disk, socket)| {
            let shown = Arc::clone(disk.frontend().expect("a disk with a live path is known"));
            FrontendThread::start(Arc::clone(disk), shown, socket)
        })
        .collect::<io::Result<Vec<_>>>()?;
    for disk in &daemon.disks {
        tracing::info!(disk = %disk.config.name, socket = %disk.config.socket_path, "ready");
    }
    let ending = async {
        ending.await;
        // Who waits for events does not hold up the end.
        daemon.events.end();
    };
    let served = api.serve(Arc::clone(daemon), ending).await;
    tracing::info!("ending");
    daemon.disks.iter().flat_map(|disk| disk.threads()).for_each(IoThreadHandle::begin_shutdown);
    // Blocks this thread: there is nothing else left to do, and the end of an I/O thread is bounded.
    frontends.into_iter().for_each(FrontendThread::shutdown);
    Ok(served?)
}
