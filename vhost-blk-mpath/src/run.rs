//! Decides: SIGTERM ends the daemon in this order.
//! Decides: the daemon ends with this exit code (`exit_code`).
//! Decides: the daemon is ready, or ends because of `wait-for` (`serve_api`).
//!
//! Starts the daemon from its configuration, and ends it.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use monotonic::Instant;
use mpath_api::types::EventKind;
use mpath_api_server::socket::BindError;
use mpath_api_server::{MetricsBindError, on_behalf_of};
use mpath_config::{Config, ConflictError, DiskFlagsError, LoadError, WaitFor};
use nvme_tcp::host::HostIdentity;
use reactor::IoThreads;
use sd_notify::NotifyState;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::configuration::reload::{ReloadBy, ReloadOptions};
use crate::configuration::{Configuration, Given};
use crate::control::{Daemon, VERSION};
use crate::disk_files::fence_record::RecordError;
use crate::disk_files::lock::LockError;
use crate::host::{self, HostError};
use crate::log_limit;
use crate::metrics::Metrics;
use crate::open_files::{self, OpenFilesError};
use crate::saved_events;
use crate::service::disks::Disks;
use crate::service::history::History;
use crate::service::start_error::StartError;
use crate::service::{DiskSockets, StartingService};
use crate::service::{connection_watch, health_watch, socket_watch};
use crate::signals::{EndSignals, ReloadSignal};
use crate::sockets::activation::{ActivationError, ActivationSockets, ApiServers, InUseError};
use crate::sockets::location::{self, SocketConflict};
use crate::subsystem::shared_context::SharedContext;
use crate::transport::SecretError;
use crate::upgrade;
use crate::upgrade::predecessor::Upgrader;
use crate::upgrade::rehearsal::{self, RehearsalError};
use crate::upgrade::successor::{Predecessor, TakeOverError};

/// How long the end of the daemon waits for a file system that does not answer.
const BLOCKED_MAX: Duration = Duration::from_secs(2);
/// How long a helper of the control thread waits for other work. They take turns with the looks of each second, so after a busy start all
/// of them would stay that get one in this time.
const HELPERS_KEPT: Duration = Duration::from_secs(2);

/// Why the daemon did not start, or ended by anything other than a signal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    File(#[from] LoadError),
    #[error(transparent)]
    Flags(#[from] ConflictError),
    #[error(transparent)]
    Disk(#[from] DiskFlagsError),
    #[error(transparent)]
    ActivationSockets(#[from] ActivationError),
    #[error(transparent)]
    SocketConflict(#[from] SocketConflict),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    OpenFiles(#[from] OpenFilesError),
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
    #[error(transparent)]
    InUse(#[from] InUseError),
    #[error(transparent)]
    IoThread(#[from] reactor::StartError),
    #[error(transparent)]
    Rehearsal(#[from] RehearsalError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Metrics(#[from] MetricsBindError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl RunError {
    /// The exit code, as `--help` lists it.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::System(_) | Self::OpenFiles(_) | Self::TakeOver(_) | Self::IoThread(_) => 1,
            Self::Metrics(_) | Self::Start(StartError::Record(RecordError::Lock(LockError::Held { .. }))) => 4,
            Self::Start(error) if error.is_of_this_host() => 1,
            Self::File(_)
            | Self::Flags(_)
            | Self::Disk(_)
            | Self::ActivationSockets(_)
            | Self::SocketConflict(_)
            | Self::Host(_)
            | Self::Secret(_)
            | Self::InUse(_)
            | Self::Start(StartError::Refused(_)) => 2,
            Self::Bind(error) | Self::Start(StartError::Bind(error)) => {
                if error.is_of_configuration() {
                    2
                } else {
                    4
                }
            }
            Self::Start(_) | Self::Rehearsal(_) => 3,
        })
    }
}

/// Runs until SIGTERM or SIGINT, or until the front-end connected by `--fd` has left.
///
/// With a `predecessor` it first waits for the end of that daemon.
pub(crate) fn run(
    config: Config,
    given: Given,
    activation_sockets: ActivationSockets,
    predecessor: Option<&mut Predecessor>,
) -> Result<(), RunError> {
    let io_threads = config.io_threads.get() as u16;
    let thread_count = config.io_thread_count(thread::available_parallelism().map_or(1, NonZero::get));
    let open_files = config.disks.iter().map(|disk| open_files::of_disks(disk, disk.paths.len(), io_threads));
    let open_files = open_files.chain([open_files::of_listeners(&config), open_files::of_io_threads(thread_count)]);
    // The runtime needs descriptors too.
    open_files::raise_limit(open_files::needed(open_files))?;
    // Without I/O threads no disk is ever served. An upgrade is refused even with --force: nobody would serve the guests.
    let threads = Arc::new(IoThreads::start(thread_count)?);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().thread_keep_alive(HELPERS_KEPT).build()?;
    let ended = runtime.block_on(serve(config, given, activation_sockets, predecessor, threads));
    // A file system that does not answer must not keep the daemon from ending.
    runtime.shutdown_timeout(BLOCKED_MAX);
    ended
}

async fn serve(
    config: Config,
    given: Given,
    mut activation_sockets: ActivationSockets,
    predecessor: Option<&mut Predecessor>,
    threads: Arc<IoThreads>,
) -> Result<(), RunError> {
    let started = Instant::now();
    let mut signals = EndSignals::new()?;
    let reload = ReloadSignal::new()?;
    let configuration = Arc::new(Configuration::new(given, &config));
    let mut left = activation_sockets.front_end_left();
    let program = upgrade::predecessor::program();
    let host = host::identity(&config)?;
    let is_random_host = host::is_random(&config);
    location::check(&config)?;
    activation_sockets.check_roles(&config)?;
    if predecessor.as_ref().is_some_and(|predecessor| !predecessor.force) {
        activation_sockets.check_in_use(&config)?;
    }
    let activation_sockets = Arc::new(activation_sockets);
    let servers = activation_sockets.servers(&config)?;
    let apis = servers.sockets(&config);
    let disks = config.disks.iter().map(|disk| DiskSockets::bind(disk, &activation_sockets));
    let sockets = disks.collect::<Result<Vec<_>, _>>()?;
    let metrics = match config.metrics_address {
        Some(address) if predecessor.is_none() => Some(Metrics::bind(address)?),
        address => address.map(Metrics::after_upgrade),
    };
    let mut wait_for = config.wait_for;
    let mut upgrade = None;
    if let Some(predecessor) = predecessor {
        tokio::select! {
            result = take_over(predecessor, &config, &host) => result?,
            signal = signals.recv() => return Err(TakeOverError::Signal(signal).into()),
        }
        for (path, socket) in apis.iter().filter_map(|(path, socket)| Some((path, socket.upgrade()?))) {
            socket.own_file();
            if let Err(error) = socket.listen_again() {
                tracing::warn!(socket = %path, %error, "clients of the API may take the earlier process for this one");
            }
        }
        sockets.iter().for_each(DiskSockets::own_files);
        // If this process ended now, nobody would serve the guests.
        wait_for = WaitFor::None;
        upgrade = Some((predecessor.by.take(), format!("took over from version {}", predecessor.version)));
    }
    let upgrader =
        Arc::new(Upgrader::new(program, apis.clone(), config.metrics_address, Arc::clone(&activation_sockets)));
    let mut ending = {
        let upgrader = Arc::clone(&upgrader);
        async move || {
            tokio::select! {
                signal = signals.recv() => tracing::info!("ending: {signal}"),
                () = front_end_left(left.as_mut()) => tracing::info!("ending: the front-end connected by --fd has left"),
                // An event reports the hand-over.
                () = upgrader.handed_over() => return,
            }
            upgrader.end();
            notify(&[NotifyState::Stopping]);
        }
    };
    for path in activation_sockets.unused(&config) {
        tracing::warn!(
            socket = %path.display(),
            "unused activation socket: no disk has this `socket-path`, and it is not the API's; a disk added with this \
             path will use it"
        );
    }
    let starting = config.disks.into_iter().zip(sockets).map(|(disk, sockets)| StartingService::open(disk, sockets));
    let starting = starting.collect::<Result<Vec<_>, _>>()?;
    activation_sockets.remove_untaken();
    // Now this daemon serves, so it may write what the next one reads.
    let (events, saved) = saved_events::restore(config.api.as_path(), BLOCKED_MAX).await;
    let events = Arc::new(events);
    match upgrade {
        Some((by, message)) => on_behalf_of(by, async { events.record_of_daemon(EventKind::Upgraded, message) }).await,
        None => saved_events::record_restart(&events, VERSION),
    }
    threads.report_stalls(|| {
        let stalls = events.stalls.sender();
        Box::new(move |stall| stalls.send(stall))
    });
    let common = SharedContext {
        host,
        io_threads: config.io_threads.get() as u16,
        threads,
        events: Arc::clone(&events),
        writers: Arc::default(),
    };
    let history_bytes_max = config.history_size.get().into();

    let disks = Arc::new(Disks::new(common, Config { disks: Vec::new(), ..config }, activation_sockets));
    disks.begin(starting);
    let (shutdown, ends) = watch::channel(false);
    let watching = tokio::spawn(connection_watch::watch(Arc::clone(&disks), ends));
    let health = tokio::spawn(health_watch::watch(Arc::clone(&disks)));
    let sockets = tokio::spawn(socket_watch::watch(Arc::clone(&disks), apis));
    let (events_end, events_ends) = oneshot::channel();
    let saving = tokio::spawn(saved_events::keep_saved(events, saved, events_ends));
    let (history_ends, history_ended) = oneshot::channel::<()>();
    let history = Arc::new(History::new(Arc::clone(&disks), history_bytes_max));
    let keeping = tokio::spawn(Arc::clone(&history).run(async { drop(history_ended.await) }));
    tokio::spawn(log_limit::report());
    let is_ready = AtomicBool::new(false);
    let daemon =
        Arc::new(Daemon { disks: Arc::clone(&disks), started, upgrader, configuration, wait_for, is_ready, history });
    let result = Box::pin(serve_api(&daemon, servers, metrics, reload, is_random_host, ending())).await;

    // From now on paths and front-ends end by order, which is no trouble to report.
    health.abort();
    sockets.abort();
    drop(history_ends);
    // A task that panicked has ended as well.
    let _ = timeout(BLOCKED_MAX, keeping).await;
    disks.end_all().await;
    shutdown.send_replace(true);
    // A task that panicked has ended as well.
    let _ = watching.await;
    drop(events_end);
    let _ = timeout(BLOCKED_MAX, saving).await;
    result
}

/// Makes sure that this process can reach the disks, and waits for the end of the running daemon.
async fn take_over(predecessor: &mut Predecessor, config: &Config, host: &HostIdentity) -> Result<(), RunError> {
    config.metrics_address.map_or(Ok(()), |address| predecessor.check_metrics(address))?;
    rehearsal::rehearse_all(config, host, predecessor.force).await?;
    Ok(predecessor.wait_for_end(VERSION).await?)
}

/// Serves the API and metrics until `ending` resolves, or until the first attempts to connect do not bring about what `wait-for`
/// names.
async fn serve_api(
    daemon: &Arc<Daemon>,
    servers: ApiServers,
    metrics: Option<Metrics>,
    reload: ReloadSignal,
    is_random_host: bool,
    ending: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let disks = &daemon.disks;
    let ready = async {
        disks.first_attempts(daemon.wait_for).await?;
        daemon.is_ready.store(true, Ordering::Relaxed);
        tracing::info!("ready");
        if is_random_host {
            tracing::warn!(
                hostnqn = %disks.common.host.hostnqn,
                "the name of this host changes with each start, and targets that permit hosts by name need a fixed one: set `hostnqn` and `hostid`"
            );
        }
        notify(&[NotifyState::Ready]);
        Ok::<_, StartError>(reload_by_signals(daemon, reload).await)
    };
    let mut failed = None;
    let ending = async {
        tokio::select! {
            () = ending => {}
            result = ready => failed = result.err(),
        }
        // Clients that follow events, or wait for a disk, must not delay the end.
        disks.common.events.end();
        disks.begin_end();
    };
    let (has_ended, ends) = watch::channel(());
    let ends = || {
        let mut ends = ends.clone();
        async move { drop(ends.changed().await) }
    };
    let api = servers.api.serve(Arc::clone(daemon), async {
        ending.await;
        drop(has_ended);
    });
    let read_only = async {
        let Some(server) = servers.read_only else { return };
        // A failure of this socket must not end the disks.
        if let Err(error) = server.serve(Arc::clone(daemon), ends()).await {
            tracing::error!(%error, "the read-only API socket is not served any more");
        }
    };
    let metrics = async {
        let Some(metrics) = metrics else { return };
        metrics.serve(Arc::clone(daemon), ends()).await;
    };
    let (served, (), ()) = tokio::join!(api, read_only, metrics);
    served?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Reloads the configuration at each SIGHUP, and tells systemd of it as `Type=notify-reload` expects. Events and log have
/// the result.
async fn reload_by_signals(daemon: &Daemon, mut signal: ReloadSignal) -> Infallible {
    loop {
        signal.recv().await;
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!(%error, "cannot read the clock for systemd"),
        }
        let options = ReloadOptions { dry_run: false, force: false, by: ReloadBy::Signal };
        // An event reports an error.
        let _ = daemon.reload_configuration(options).await;
        notify(&[NotifyState::Ready]);
    }
}

/// Tells systemd, if it runs the daemon with `Type=notify`.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

/// Resolves when the front-end connected by `--fd` has left. Without one it never resolves.
async fn front_end_left(left: Option<&mut oneshot::Receiver<()>>) {
    match left {
        // A dropped sender means the same.
        Some(left) => drop(left.await),
        None => pending().await,
    }
}
