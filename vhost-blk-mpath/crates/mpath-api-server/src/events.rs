//! `GET /v1/events`: the events that the daemon keeps, or a stream of server-sent events.
//!
//! A message of the stream has the same JSON as the other answer, on one line. Its id has what a client needs to resume.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hyper::body::Frame;
use mpath_api::HEARTBEAT;
use mpath_api::types::{ErrorCode, Events};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Control;
use super::connections::Busy;
use super::error::ApiError;
use super::request::{EventsQuery, query};

/// The places of clients that follow events.
#[derive(Debug, Clone)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    all: usize,
    /// How long a client may read nothing.
    pub(super) stall: Duration,
}

impl Places {
    pub(super) fn new(all: usize, stall: Duration) -> Self {
        Self { free: Arc::new(Semaphore::new(all)), all, stall }
    }

    fn take(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.free).try_acquire_owned().map_err(|_| {
            let message = format!("{} clients follow events, which is the most allowed; end one of them", self.all);
            ApiError::new(ErrorCode::Unavailable, message)
        })
    }
}

/// The events that the daemon keeps, at once, or with `Accept: text/event-stream` a stream of server-sent events.
///
/// The data of each message is the answer with the events that are new. Its id resumes the stream as `Last-Event-ID`, also after a
/// restart of the daemon: then all events of the new daemon are new. The first message comes at once, even without events.
#[utoipa::path(
    get,
    path = "/v1/events",
    params(
        EventsQuery,
        ("Last-Event-ID" = Option<String>, Header, nullable = false, description = "The id of the last message that is known, in place of `after`.")
    ),
    responses((status = 200, content((Events = "application/json"), (String = "text/event-stream"))))
)]
pub(super) async fn events<C: Control>(
    State(control): State<Arc<C>>,
    Extension(places): Extension<Places>,
    Extension(busy): Extension<Busy>,
    headers: HeaderMap,
    wanted: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let wanted = query(wanted)?;
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let after = text(header::HeaderName::from_static("last-event-id")).map_or(wanted.after, |id| known(id, &*control));
    if !text(header::ACCEPT).is_some_and(|accepted| accepted.contains("text/event-stream")) {
        return Ok(Json(control.events(after)).into_response());
    }
    let stream = Followed { control, after, has_begun: false, _place: places.take()? };
    let stall = places.stall;
    busy.keep(stall);
    let body = Messages { next: Box::pin(stream.next()), busy, stall };
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::new(body)).into_response())
}

/// The number in the id of a message. 0 for an id of another run of the daemon: all events are new.
fn known<C: Control>(id: &str, control: &C) -> u64 {
    let Some((boot_id, number)) = id.rsplit_once(':') else { return 0 };
    let number = number.parse().unwrap_or(0);
    if control.events(number).boot_id == boot_id { number } else { 0 }
}

/// The state of a stream between two messages.
struct Followed<C> {
    control: Arc<C>,
    after: u64,
    has_begun: bool,
    _place: OwnedSemaphorePermit,
}

impl<C: Control> Followed<C> {
    /// The next message or comment. `None` at the end of the daemon, after its last events.
    async fn next(mut self) -> Next<C> {
        let mut ends = false;
        if std::mem::replace(&mut self.has_begun, true) {
            match timeout(HEARTBEAT, self.control.more_events(self.after)).await {
                Ok(more) => ends = !more,
                Err(_) => return Some((Bytes::from_static(b":\n\n"), self)),
            }
        }
        let events = self.control.events(self.after);
        if ends && events.events.is_empty() {
            return None;
        }
        self.after = events.last;
        Some((message(&events).into(), self))
    }
}

fn message(events: &Events) -> String {
    let data = serde_json::to_string(events).expect("events are JSON");
    format!("id: {}:{}\ndata: {data}\n\n", events.boot_id, events.last)
}

/// A message or comment, and the stream after it.
type Next<C> = Option<(Bytes, Followed<C>)>;

/// The body of the stream. A message is made when the client has room for it, so none is kept for a slow client.
struct Messages<C> {
    next: Pin<Box<dyn Future<Output = Next<C>> + Send>>,
    busy: Busy,
    stall: Duration,
}

impl<C: Control> hyper::body::Body for Messages<C> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.busy.keep(self.stall);
        let Some((message, stream)) = ready!(self.next.as_mut().poll(cx)) else { return Poll::Ready(None) };
        self.next = Box::pin(stream.next());
        Poll::Ready(Some(Ok(Frame::data(message))))
    }
}
