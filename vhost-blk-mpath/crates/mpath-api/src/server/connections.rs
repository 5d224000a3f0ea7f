//! The connections of the server: how many, and for how long.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::Limits;

/// The request line and headers of any sensible client fit in this.
const READ_BUFFER_BYTES: usize = 16 << 10;

/// Whether a connection's request has wholly arrived and is being answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy(Arc<AtomicBool>);

impl Busy {
    // Only ever read to choose whom to displace, so no ordering with other memory is needed.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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

    /// Whether one more can start, be it by displacing one that has not sent its request.
    pub(super) fn has_room(&self) -> bool {
        self.open.len() < self.limits.connections || self.open.iter().any(|c| !c.busy.get())
    }

    /// Waits until a connection ends. Only meaningful with any open.
    pub(super) async fn reap(&mut self) {
        self.tasks.join_next().await;
        self.forget_finished();
    }

    fn forget_finished(&mut self) {
        self.open.retain(|connection| !connection.task.is_finished());
    }

    pub(super) fn start(&mut self, stream: UnixStream) {
        self.forget_finished();
        if self.open.len() >= self.limits.connections
            && let Some(idle) = self.open.iter().position(|c| !c.busy.get())
            && let Some(connection) = self.open.remove(idle)
        {
            connection.task.abort();
        }
        let busy = Busy::default();
        let router = self.router.clone().layer(Extension(busy.clone()));
        let task = self.tasks.spawn(converse(stream, router, self.limits));
        self.open.push_back(Connection { task, busy });
    }

    /// Lets requests under way end within `grace`, and drops all else.
    pub(super) async fn finish(mut self, grace: Duration) {
        for connection in self.open.iter().filter(|connection| !connection.busy.get()) {
            connection.task.abort();
        }
        // Whatever is left when the time is up is aborted with the set.
        let _ = timeout(grace, async { while self.tasks.join_next().await.is_some() {} }).await;
    }
}

/// Answers the one request of a connection.
async fn converse(stream: UnixStream, router: Router, limits: Limits) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(READ_BUFFER_BYTES)
        .keep_alive(false)
        // `printf ... | nc -U` closes its half at once and still wants the answer.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match timeout(limits.connection, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an API connection broke"),
        Err(_) => tracing::debug!("an API connection took too long"),
    }
}
