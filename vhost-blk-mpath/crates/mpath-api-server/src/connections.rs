//! Decides: another client of the API is served.
//!
//! The connections of the server, limited in number and time.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use mpath_api::types::Caller;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use super::Limits;
use super::caller::on_behalf_of;

/// A connected socket.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// Buffer for the request line and the headers.
const READ_BUFFER_BYTES: usize = 16 << 10;

/// Whether the whole request of a connection has arrived, and until when a stream keeps the connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy(Arc<(AtomicBool, Mutex<Option<Instant>>)>);

impl Busy {
    // Only read to choose the connection to replace, so no ordering with other memory is needed.
    pub(super) fn set(&self) {
        self.0.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }

    /// Lets the connection live for this time from now on, beyond the limit of all connections.
    pub(super) fn keep(&self, time: Duration) {
        *self.kept() = Some(Instant::now() + time);
    }

    fn kept(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.1.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Connection {
    task: AbortHandle,
    busy: Busy,
}

/// The open connections, oldest first.
pub(super) struct Connections {
    router: Router,
    limits: Limits,
    tasks: JoinSet<()>,
    open: VecDeque<Connection>,
}

impl Connections {
    pub(super) fn new(router: Router, limits: Limits) -> Self {
        Self { router, limits, tasks: JoinSet::new(), open: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Whether another connection can start, perhaps in place of one that has not sent its request.
    pub(super) fn has_room(&self) -> bool {
        self.open.len() < self.limits.connections || self.open.iter().any(|c| !c.busy.get())
    }

    /// Waits until a connection ends. There must be one.
    pub(super) async fn reap(&mut self) {
        self.tasks.join_next().await;
        self.forget_finished();
    }

    fn forget_finished(&mut self) {
        self.open.retain(|connection| !connection.task.is_finished());
    }

    /// Serves the connection of a client.
    pub(super) fn start<S: Stream>(&mut self, stream: S, caller: Option<Caller>) {
        self.forget_finished();
        if self.open.len() >= self.limits.connections
            && let Some(idle) = self.open.iter().position(|c| !c.busy.get())
            && let Some(connection) = self.open.remove(idle)
        {
            connection.task.abort();
        }
        let busy = Busy::default();
        let conversation = converse(stream, self.router.clone(), self.limits, busy.clone());
        let task = self.tasks.spawn(on_behalf_of(caller, conversation));
        self.open.push_back(Connection { task, busy });
    }

    /// Waits up to `grace` for requests under way, and closes all other connections.
    pub(super) async fn finish(mut self, grace: Duration) {
        for connection in self.open.iter().filter(|connection| !connection.busy.get()) {
            connection.task.abort();
        }
        // Dropping the set aborts the rest.
        let _ = timeout(grace, async { while self.tasks.join_next().await.is_some() {} }).await;
    }
}

/// Answers the request of a connection.
async fn converse<S: Stream>(stream: S, router: Router, limits: Limits, busy: Busy) {
    let service = TowerToHyperService::new(router);
    // A layer of the router would be built again for each connection, route by route.
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(busy.clone());
        service.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(READ_BUFFER_BYTES)
        .keep_alive(false)
        // `printf ... | nc -U` shuts down its sending side at once and still reads the answer.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let (mut connection, mut end) = (pin!(connection), Instant::now() + limits.connection);
    loop {
        match timeout_at(end, &mut connection).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "an API connection broke"),
            Err(_) => {
                if let Some(later) = busy.kept().filter(|kept| *kept > end) {
                    end = later;
                    continue;
                }
                tracing::debug!("an API connection took too long");
            }
        }
        return;
    }
}
