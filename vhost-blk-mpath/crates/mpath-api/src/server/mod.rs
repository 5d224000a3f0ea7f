//! The server side of the API: `GET /v1/status` and so on, over a Unix socket.
//!
//! The daemon implements [`Control`]; everything a client can get wrong is dealt with here. One
//! connection carries one request, so that the time a connection may take bounds what a slow or
//! silent client can hold, and ending the daemon never waits for one.

mod connections;
mod disks;
mod error;
mod metrics;
mod routes;
mod scheduling;

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use mpath_core::{PolicyChange, SchedulerChange};

use self::connections::Connections;
pub use self::error::{AddDiskError, AddPathError, ApiError, ControlError, RemoveDiskError, RemovePathError};
pub use self::routes::JsonBody;
use crate::address::PathAddress;
use crate::config::{DiskConfig, Hedge, HedgeBudget, SocketPath, Weight};
use crate::socket::{BindError, ListeningSocket, Role};

use crate::types::{Events, Injection, Path, PathAction, RemovedDisk, SchedulerDetail, SetLimits, Status};

/// One path, by name of disk and position.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathRef {
    /// The disk's name.
    pub disk: String,
    /// Its number on the disk, from 0.
    pub index: u16,
}

/// What the daemon does for the API.
///
/// What is said for several disks is done for those that are still there; that none is, is an error.
///
/// The futures may wait for the I/O threads, but only those of [`Control::add_disk`] and [`Control::remove_disk`] for networks and
/// front-ends: after five seconds, a minute with these, the client is told that the daemon does not answer and the future is
/// dropped, which must do no harm.
pub trait Control: Send + Sync + 'static {
    /// The daemon and every disk: those that share the paths of another one too, after that one.
    fn status(&self) -> impl Future<Output = Result<Status, ControlError>> + Send;

    /// Every path of every disk, by disk and index; one that several disks use once, by the disk that has it. [`Path::io_share`] and its like are filled in by the server.
    fn paths(&self) -> impl Future<Output = Result<Vec<Path>, ControlError>> + Send;

    /// Changes the policies of these disks (never none, each of them in [`Control::status`] and with paths of its own), by
    /// [`ClassPolicies::change`](mpath_core::ClassPolicies::change); done when every I/O thread uses them.
    fn set_policy(
        &self,
        disks: &[String],
        change: &PolicyChange,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Changes how these disks hedge reads (never none, each of them in [`Control::status`] and with paths of its own); done when
    /// every I/O thread does. What is left out stays.
    fn set_hedge(
        &self,
        disks: &[String],
        hedge: Option<Hedge>,
        budget: Option<HedgeBudget>,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// The scheduler, the weight, the virtqueues and the limits of every disk: of those that share the paths of another one too,
    /// with [`SchedulerDetail::shares_paths_of`] set, after that one.
    fn scheduling(&self) -> impl Future<Output = Result<Vec<SchedulerDetail>, ControlError>> + Send;

    /// Changes the schedulers of these disks (never none, each of them in [`Control::scheduling`] and with paths of its own), by
    /// [`SchedulerSpec::change`](mpath_core::SchedulerSpec::change); done when every I/O thread uses them.
    fn set_scheduler(
        &self,
        disks: &[String],
        change: &SchedulerChange,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Changes the limits of these disks (never none, each of them in [`Control::scheduling`]), by [`SetLimits::applied_to`];
    /// done when every I/O thread keeps them.
    fn set_limits(&self, disks: &[String], change: &SetLimits)
    -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Changes the weight of a disk (in [`Control::status`]), which says what it is; done when every I/O thread goes by it.
    fn set_weight(&self, disk: &str, weight: Weight) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Sets or clears the impairment of these paths (each of them in
    /// [`Control::paths`]); done when every I/O thread has it.
    fn set_injection(
        &self,
        paths: &[PathRef],
        injection: Option<Injection>,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Does `action` to these paths (each of them in [`Control::paths`]), to all of them or to none; done when
    /// every I/O thread knows of it, though what drains may drain for long. `force` is [`SteerPaths::force`].
    ///
    /// [`SteerPaths::force`]: crate::types::SteerPaths::force
    fn steer(
        &self,
        paths: &[PathRef],
        action: PathAction,
        force: bool,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Adds a path to a disk (in [`Control::status`] and with paths of its own); done when there is one, whether or not it can be connected.
    fn add_path(&self, disk: &str, address: PathAddress) -> impl Future<Output = Result<PathRef, ControlError>> + Send;

    /// Removes a path, in order or with `force` at once; done when every I/O thread knows that it gets nothing new, though it
    /// may be there for long.
    fn remove_path(&self, path: &PathRef, force: bool) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Adds a disk with paths of its own, and those in its `share-paths-with`; done when they are served.
    fn add_disk(&self, config: DiskConfig) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Removes a disk (in [`Control::status`]) and those that share its paths, with `force` even if front-ends are connected; done
    /// when they are gone: which, and what of their writes is in doubt.
    fn remove_disk(
        &self,
        disk: &str,
        force: bool,
    ) -> impl Future<Output = Result<Vec<RemovedDisk>, ControlError>> + Send;

    /// The events after that one; if there are none, waits for the next one, at most so long.
    fn events(&self, after: u64, wait: Duration) -> impl Future<Output = Result<Events, ControlError>> + Send;
}

/// The longest that a client may wait for events; less than the daemon's time to answer.
pub const EVENTS_WAIT_MAX: Duration = Duration::from_secs(4);

/// What clients may take up.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Connections at a time. One more displaces the oldest that has not sent its request yet.
    connections: usize,
    /// Bytes of a request's body.
    body_bytes: usize,
    /// For the request line and headers to arrive.
    header: Duration,
    /// For the body to arrive.
    body: Duration,
    /// For the daemon to answer.
    control: Duration,
    /// The same where disks come or go, which waits for targets and front-ends.
    disks: Duration,
    /// For all of that and the client to take the answer.
    connection: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            body_bytes: 64 << 10,
            header: Duration::from_secs(5),
            body: Duration::from_secs(5),
            control: Duration::from_secs(5),
            disks: DISKS_MAX,
            connection: DISKS_MAX + Duration::from_secs(15),
        }
    }
}

/// How long disks may take to come or go.
pub(crate) const DISKS_MAX: Duration = Duration::from_secs(60);
/// After a failure to accept (out of descriptors, say) the next attempt waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Requests under way when the server ends may take this much longer.
const END_GRACE: Duration = Duration::from_secs(1);

/// A bound API socket. The file goes when this does.
#[derive(Debug)]
pub struct Server {
    socket: ListeningSocket,
    limits: Limits,
}

impl Server {
    /// Creates the socket, for its owner only (mode 0600) from the first moment, and listens.
    ///
    /// A socket file that nobody listens on is replaced. The directory is created if only it is
    /// missing.
    pub fn bind(path: &SocketPath) -> Result<Self, BindError> {
        Ok(Self::on(ListeningSocket::bind(path, Role::Api)?))
    }

    /// The same on a socket that there is.
    #[must_use]
    pub fn on(socket: ListeningSocket) -> Self {
        Self { socket, limits: Limits::default() }
    }

    /// Serves until `shutdown` completes, then ends within about a second.
    ///
    /// Needs a tokio runtime with I/O and time. Fails only before the first request.
    pub async fn serve<C: Control>(self, control: Arc<C>, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        self.serve_routes(routes::router(control), shutdown).await
    }

    /// Serves other routes than the daemon's, with the same limits and the same errors: for programs with an API of
    /// their own. Otherwise as [`serve`](Self::serve).
    pub async fn serve_routes(self, routes: Router, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let listener = tokio::net::UnixListener::from_std(self.socket.listener()?)?;
        let mut connections = Connections::new(routes::bounded(routes, self.limits), self.limits);
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = listener.accept(), if connections.has_room() => match accepted {
                    Ok((stream, _)) => connections.start(stream),
                    Err(error) => {
                        tracing::warn!(%error, "the API socket does not accept");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                () = connections.reap(), if !connections.is_empty() => {}
            }
        }
        drop((listener, self.socket));
        connections.finish(END_GRACE).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
