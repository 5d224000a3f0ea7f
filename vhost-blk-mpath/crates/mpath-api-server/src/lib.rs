//! The server of the API, on a Unix socket, and of metrics over TCP.
//!
//! The daemon implements [`Control`]. The server handles wrong requests. One connection carries one request and has limited time.
//! So a slow or silent client holds a connection for a limited time, and the end of the daemon does not wait for it.

#![forbid(unsafe_code)]

mod accept;
mod bounds;
mod caller;
mod configuration;
mod connections;
mod diagnostics;
mod disks;
mod document;
mod error;
mod events;
mod metrics;
mod metrics_server;
mod paths;
mod policies;
mod process;
mod request;
mod routes;
mod scheduling;
mod settings;
pub mod socket;

use std::future::Future;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use axum::Router;
use mpath_api::DISK_CHANGE_MAX;
use mpath_api::types::{
    ClearedFences, Configuration, DiskFences, Events, HistoryMinute, Injection, Path, PathAction, Reload, RemovedDisk,
    SchedulerDetail, SlowRequest, Status, ThreadExplanation, Upgrade,
};
use mpath_config::{DiskConfig, LiveSettings, PathAddress, SocketAccess, SocketPath};

use self::accept::ApiListener;
pub use self::caller::{caller, on_behalf_of, on_own_behalf};
use self::connections::Connections;
pub use self::error::{AddPathError, ApiError, ControlError, RemovePathError};
pub use self::metrics_server::{MetricsBindError, MetricsServer};
pub use self::process::program;
pub use self::request::JsonBody;
use crate::socket::{BindError, ListeningSocket, Role};

/// A reference to a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathRef {
    /// The disk's name.
    pub disk: String,
    /// The path's number on the disk, from 0.
    pub index: u16,
}

/// A reference to a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskRef {
    /// The disk's name.
    pub disk: String,
    /// The disk that has the paths. `None` if it is this disk.
    pub shares_paths_of: Option<String>,
}

/// The operations of the daemon.
///
/// An operation on several disks skips those that were removed meanwhile. It fails if none is left.
///
/// Futures may wait for the I/O threads. Only those of [`Control::add_disk`], [`Control::remove_disk`], [`Control::reload`] and [`Control::upgrade`] may wait
/// for networks and front-ends. After five seconds the server answers that the daemon is unresponsive, and drops the future. These four
/// have a minute. Futures must be safe to drop.
pub trait Control: Send + Sync + 'static {
    /// The version, as in [`Status::version`].
    fn version(&self) -> &str;

    /// Every disk, in the order of [`Control::status`].
    fn disks(&self) -> Vec<DiskRef>;

    /// The daemon and every disk. A disk that shares paths follows the disk that has them.
    fn status(&self) -> impl Future<Output = Result<Status, ControlError>> + Send;

    /// Every path of every disk, in the order of disk and index. A path of several disks is listed once, under the disk that has it.
    /// The server fills in [`Path::io_share`], [`Path::io_share_1s`] and [`Path::io_share_60s`].
    fn paths(&self) -> impl Future<Output = Result<Vec<Path>, ControlError>> + Send;

    /// Changes settings of these disks. Completes when every I/O thread uses them. There is at least one disk, and each is in
    /// [`Control::disks`].
    fn set(
        &self,
        disks: &[String],
        change: impl Fn(&mut LiveSettings) + Send + Sync,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Scheduler, weight, virtqueues and limits of every disk. A disk that shares paths follows the disk that has them, with
    /// [`SchedulerDetail::shares_paths_of`] set.
    fn scheduling(&self) -> impl Future<Output = Result<Vec<SchedulerDetail>, ControlError>> + Send;

    /// Sets an injection on these paths, which ends by itself after `time` if there is one. Completes when every I/O thread uses it.
    /// Each path is in [`Control::paths`].
    fn set_injection(
        &self,
        paths: &[PathRef],
        injection: Injection,
        time: Option<monotonic::Duration>,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Clears the injections of these paths. Completes when every I/O thread has done so. Each path is in [`Control::paths`].
    fn clear_injections(&self, paths: &[PathRef]) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Applies `action` to all of these paths or to none. Completes when every I/O thread knows of it. A path may drain for longer.
    /// `force` is [`ActOnPaths::force`]. Each path is in [`Control::paths`].
    ///
    /// [`ActOnPaths::force`]: mpath_api::types::ActOnPaths::force
    fn act_on_paths(
        &self,
        paths: &[PathRef],
        action: PathAction,
        force: bool,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Adds a path to a disk, which is in [`Control::status`] and has paths of its own. Completes before the path is connected.
    fn add_path(&self, disk: &str, address: PathAddress) -> impl Future<Output = Result<PathRef, ControlError>> + Send;

    /// Removes a path, in order or with `force` at once. Completes when every I/O thread has stopped giving it requests. The path may
    /// exist for longer.
    fn remove_path(&self, path: &PathRef, force: bool) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Adds a disk with paths of its own, and the disks in its `share-paths-with`. Completes when they are served.
    fn add_disk(&self, config: DiskConfig) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Removes a disk, which is in [`Control::status`], and the disks that share its paths. With `force` even if front-ends are
    /// connected. Completes when the disks are gone, and returns them.
    fn remove_disk(
        &self,
        disk: &str,
        force: bool,
    ) -> impl Future<Output = Result<Vec<RemovedDisk>, ControlError>> + Send;

    /// Starts the daemon's program anew. The new process takes sockets and disks over. Completes when the new process is ready, and this
    /// one ends then. With `force` it goes ahead although a disk has no path, the metrics address cannot be used, or a connected
    /// front-end loses its disk or gets another one. If the future is dropped, the upgrade goes on.
    fn upgrade(&self, force: bool) -> impl Future<Output = Result<Upgrade, ControlError>> + Send;

    /// The configuration, as it was given and as it is in effect.
    fn configuration(&self) -> impl Future<Output = Result<Configuration, ControlError>> + Send;

    /// Reads the configuration file again and applies the differences, or with `dry_run` only names them. With `force`, disks with
    /// connected front-ends and last paths are removed too. If the future is dropped, the reload goes on. May take as long as
    /// [`Control::add_disk`].
    fn reload(&self, dry_run: bool, force: bool) -> impl Future<Output = Result<Reload, ControlError>> + Send;

    /// The fences of every disk, in the order of [`Control::status`].
    fn fences(&self) -> impl Future<Output = Result<Vec<DiskFences>, ControlError>> + Send;

    /// Forgets what the fence record of a disk keeps. The disk is in [`Control::status`]. Without `force`, forgets only what
    /// cannot lose data once the disk's guest is gone.
    fn clear_fences(&self, disk: &str, force: bool)
    -> impl Future<Output = Result<ClearedFences, ControlError>> + Send;

    /// The next requests of a disk in each I/O thread. The disk is in [`Control::status`].
    fn explain(&self, disk: &str) -> impl Future<Output = Result<Vec<ThreadExplanation>, ControlError>> + Send;

    /// The minutes of a disk that began from `from` until `until`, the oldest first, and [`HISTORY_MINUTES_MAX`](mpath_api::HISTORY_MINUTES_MAX) at most, the latest.
    fn history(
        &self,
        disk: &str,
        from: SystemTime,
        until: SystemTime,
    ) -> impl Future<Output = Result<Vec<HistoryMinute>, ControlError>> + Send;

    /// The slowest requests of every disk in the last minutes, in no order.
    fn slow(&self) -> impl Future<Output = Result<Vec<SlowRequest>, ControlError>> + Send;

    /// The events after number `after`. A number that was not given yet means all events.
    fn events(&self, after: u64) -> Events;

    /// Waits until there is an event after number `after`, which is the last one that is known. `false`: the daemon ends.
    fn more_events(&self, after: u64) -> impl Future<Output = bool> + Send;

    /// Whether the daemon has reported that it is ready, and is not ending.
    fn readiness(&self) -> Result<(), ControlError>;
}

/// Limits for clients.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Connections at a time. Another one replaces the oldest that has not sent its request.
    connections: usize,
    /// Bytes of a request's body.
    body_bytes: usize,
    /// Time for the request line and the headers to arrive.
    header: Duration,
    /// Time for the body to arrive.
    body: Duration,
    /// Time for the daemon to answer.
    control: Duration,
    /// Time for the daemon to add or remove disks, also by a reload, or to start its successor, which waits for targets and front-ends.
    disks: Duration,
    /// Time for all of these, and for the client to read the answer.
    connection: Duration,
    /// Clients that follow events.
    followers: usize,
    /// How long such a client may read nothing. Longer than the interval of comments.
    stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            body_bytes: 64 << 10,
            header: Duration::from_secs(5),
            body: Duration::from_secs(5),
            control: Duration::from_secs(5),
            disks: DISK_CHANGE_MAX,
            connection: DISK_CHANGE_MAX + Duration::from_secs(15),
            followers: 16,
            stall: Duration::from_secs(15),
        }
    }
}

/// A bound API socket. Dropping it removes the socket file.
#[derive(Debug)]
pub struct Server {
    socket: Arc<ListeningSocket>,
    limits: Limits,
    is_read_only: bool,
}

impl Server {
    /// Creates the socket, for its owner only (mode 0600) from its creation, and listens.
    ///
    /// A stale socket file is replaced. See [`ListeningSocket::bind`].
    pub fn bind(path: &SocketPath) -> Result<Self, BindError> {
        Ok(Self::on(ListeningSocket::bind(path, Role::Api, &SocketAccess::default())?))
    }

    /// A server on an existing socket.
    #[must_use]
    pub fn on(socket: ListeningSocket) -> Self {
        Self { socket: Arc::new(socket), limits: Limits::default(), is_read_only: false }
    }

    /// The same server, which refuses changes.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    /// The socket as long as the server has it.
    #[must_use]
    pub fn socket(&self) -> Weak<ListeningSocket> {
        Arc::downgrade(&self.socket)
    }

    /// Serves until `shutdown` completes, then ends within about a second.
    ///
    /// Needs a tokio runtime with I/O and time. Fails only before the first request.
    pub async fn serve<C: Control>(self, control: Arc<C>, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let version = control.version().to_owned();
        self.serve_all(routes::router(control), Some(&version), shutdown).await
    }

    /// Serves other routes than the daemon's with the same limits and the same errors, for programs with an API of their own.
    /// Otherwise like [`serve`](Self::serve).
    pub async fn serve_routes(self, routes: Router, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        self.serve_all(routes, None, shutdown).await
    }

    async fn serve_all(
        self,
        routes: Router,
        version: Option<&str>,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let listener = tokio::net::UnixListener::from_std(self.socket.listener()?)?;
        let routes = bounds::bounded(routes, self.limits, version, self.is_read_only);
        let connections = Connections::new(routes, self.limits);
        accept::serve(ApiListener { listener, _socket: self.socket }, connections, shutdown).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
