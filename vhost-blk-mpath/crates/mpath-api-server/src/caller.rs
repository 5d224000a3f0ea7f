//! Decides: an event comes from this client.
//!
//! The client whose request a task carries out.

use std::future::Future;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use mpath_api::types::Caller;
use tokio::net::UnixStream;

use super::process;

tokio::task_local! {
    static CALLER: Option<Caller>;
}

/// The client whose request the current task carries out. `None` outside of requests, and if the kernel did not say who it is.
///
/// A task that a request starts has no caller by itself: see [`on_behalf_of`].
#[must_use]
pub fn caller() -> Option<Caller> {
    CALLER.try_with(Clone::clone).ok().flatten()
}

/// Carries out work for a client, so that [`caller`] names the client.
pub async fn on_behalf_of<F: Future>(caller: Option<Caller>, work: F) -> F::Output {
    CALLER.scope(caller, work).await
}

/// Does work that no client has asked for, within a request of a client. [`caller`] is `None` there.
pub fn on_own_behalf<T>(work: impl FnOnce() -> T) -> T {
    CALLER.sync_scope(None, work)
}

/// The client at the other end of a connection.
pub(super) fn peer(stream: &UnixStream) -> Option<Caller> {
    let peer = stream.peer_cred().ok()?;
    // The kernel says 0 for a process in another PID namespace.
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    Some(Caller::new(peer.uid(), pid))
}

/// Looks the client's process up for a request that may change something. The client waits for its answer, so the process is usually there.
pub(super) async fn look_up(request: Request, next: Next) -> Response {
    match caller() {
        Some(known) if !request.method().is_safe() => {
            on_behalf_of(Some(process::describe(known).await), next.run(request)).await
        }
        _ => next.run(request).await,
    }
}
