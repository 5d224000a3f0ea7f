//! From configuration to a serving daemon, and to its end.

use std::future::pending;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use mpath_api::config::{ConflictError, LoadError};
use mpath_api::server::Server;
use mpath_api::socket::BindError;
use mpath_api::{Config, DiskFlagsError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

use crate::control::Daemon;
use crate::events::EventLog;
use crate::fence_record::RecordError;
use crate::fence_record::lock::LockError;
use crate::host::{self, HostError};
use crate::service::disks::Disks;
use crate::service::mptcp_watch;
use crate::service::start_error::StartError;
use crate::service::{Connecting, Starting};
use crate::sockets::activation::{HandedOver, HandedOverError};
use crate::sockets::place::{self, SameSocket};
use crate::subsystem::common::Common;

/// Why the daemon did not start, or ended otherwise than by a signal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    File(#[from] LoadError),
    #[error(transparent)]
    Flags(#[from] ConflictError),
    #[error(transparent)]
    Disk(#[from] DiskFlagsError),
    #[error(transparent)]
    HandedOver(#[from] HandedOverError),
    #[error(transparent)]
    SameSocket(#[from] SameSocket),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl RunError {
    /// See `--help`.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::System(_) => 1,
            Self::Start(StartError::Record(RecordError::Lock(LockError::Held { .. }))) => 4,
            Self::Start(error) if error.is_of_this_host() => 1,
            Self::File(_)
            | Self::Flags(_)
            | Self::Disk(_)
            | Self::HandedOver(_)
            | Self::SameSocket(_)
            | Self::Host(_)
            | Self::Start(StartError::SameNamespace { .. } | StartError::OtherNamespace { .. }) => 2,
            Self::Bind(_) | Self::Start(StartError::Bind(_)) => 4,
            Self::Start(_) => 3,
        })
    }
}

/// Runs until SIGTERM or SIGINT, or until the only front-end there will be has left.
pub(crate) fn run(config: Config, handed_over: HandedOver) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(config, handed_over))
}

async fn serve(config: Config, mut handed_over: HandedOver) -> Result<(), RunError> {
    let started = Instant::now();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut left = handed_over.left();
    let mut ending = async move || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = leaves(left.as_mut()) => {}
        }
    };

    let host = host::identity(&config)?;
    let handed_over = Arc::new(handed_over);
    let api = handed_over.server(&config.api)?;
    for path in handed_over.left_over(&config) {
        tracing::warn!(socket = %path.display(), "a socket was handed over that is neither a disk's nor the API's");
    }
    place::check(&config)?;
    let common = Common { host, io_threads: config.io_threads.get() as u16, events: Arc::new(EventLog::new()) };
    let starting = config.disks.into_iter().map(|disk| Starting::bind(disk, &handed_over));
    let mut starting = starting.collect::<Result<Vec<_>, _>>()?;
    for starting in &mut starting {
        starting.discover(&common);
    }
    let discovered = async {
        for starting in &mut starting {
            starting.discovered().await?;
        }
        Ok::<_, RunError>(())
    };
    tokio::select! {
        discovered = discovered => discovered?,
        () = ending() => return Ok(()),
    }

    let disks = Arc::new(Disks::new(common, config.api, handed_over));
    let mut connecting: Vec<_> = starting.into_iter().map(|starting| starting.connect(&disks.common)).collect();
    for connecting in &connecting {
        disks.push(Arc::clone(&connecting.service));
    }
    let (shutdown, ends) = watch::channel(false);
    let watching = tokio::spawn(mptcp_watch::watch(Arc::clone(&disks), ends));
    let daemon = Arc::new(Daemon { disks: Arc::clone(&disks), started });
    let tried = async {
        for connecting in &mut connecting {
            connecting.tried().await?;
        }
        disks.check_writers()?;
        Ok::<_, RunError>(true)
    };
    let tried = tokio::select! {
        tried = tried => tried,
        () = ending() => Ok(false),
    };
    let result = match tried {
        Ok(true) => serve_disks(&daemon, connecting, api, ending()).await,
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };

    disks.end_all().await;
    shutdown.send_replace(true);
    // One that panicked has ended as well.
    let _ = watching.await;
    result
}

/// Serves front-ends and the API until the end is asked for.
async fn serve_disks(
    daemon: &Arc<Daemon>,
    disks: Vec<Connecting>,
    api: Server,
    ending: impl Future<Output = ()>,
) -> Result<(), RunError> {
    for connecting in disks {
        connecting.serve()?;
    }
    let ending = async {
        ending.await;
        // Who waits for events, or for a disk, does not hold up the end.
        daemon.disks.common.events.end();
        daemon.disks.begin_end();
    };
    let served = api.serve(Arc::clone(daemon), ending).await;
    tracing::info!("ending");
    Ok(served?)
}

/// Resolves when the only front-end there will be has left, if there will be only one.
async fn leaves(left: Option<&mut oneshot::Receiver<()>>) {
    match left {
        // However it ended.
        Some(left) => drop(left.await),
        None => pending().await,
    }
}
