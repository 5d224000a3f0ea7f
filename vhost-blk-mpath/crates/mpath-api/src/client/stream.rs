//! Events as they happen, from the stream of the daemon.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, header};

use super::{Client, ClientError, MAX_ANSWER_BYTES, target};
use crate::HEARTBEAT;
use crate::types::Events;

/// The place in the events where a stream begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    /// After the event with this number.
    After(u64),
    /// After the last event of these, or with every event of a daemon that has started since.
    Seen {
        /// [`Events::boot_id`].
        boot_id: String,
        /// [`Events::last`].
        last: u64,
    },
}

/// Events as they happen. Each call blocks.
#[derive(Debug)]
pub struct EventStream<'a> {
    client: &'a Client,
    body: Incoming,
    unread: Vec<u8>,
}

impl Client {
    /// Begins to follow events. The first answer of the stream comes at once, even without events.
    pub fn follow(&self, position: &Position) -> Result<EventStream<'_>, ClientError> {
        let request = Request::builder().method(Method::GET).header(header::ACCEPT, "text/event-stream");
        let request = match position {
            Position::After(after) => request.uri(target("/v1/events", &[("after", Some(&after.to_string()))])),
            Position::Seen { boot_id, last } => {
                request.uri("/v1/events").header("last-event-id", format!("{boot_id}:{last}"))
            }
        };
        let body = self.block_on(self.timeout, async {
            let (head, body) = self.send(request, Bytes::new()).await?.into_parts();
            if head.status.is_success() {
                return Ok(body);
            }
            Err(self.refusal(head.status, &self.whole(body).await?))
        })?;
        Ok(EventStream { client: self, body, unread: Vec::new() })
    }
}

impl EventStream<'_> {
    /// The next events. Waits for them. `None`: the daemon has ended the stream, as it does at its own end.
    pub fn read(&mut self) -> Result<Option<Events>, ClientError> {
        loop {
            while let Some(end) = self.unread.windows(2).position(|end| end == b"\n\n") {
                let message: Vec<u8> = self.unread.drain(..end + 2).collect();
                let data = message.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"data: "));
                // A comment has no data.
                if let Some(data) = data {
                    let unreadable = |source| self.client.unreadable(200, source);
                    return serde_json::from_slice(data).map(Some).map_err(unreadable);
                }
            }
            let (client, body) = (self.client, &mut self.body);
            // The daemon is silent for a heartbeat at most.
            let silence: Duration = client.timeout.max(HEARTBEAT * 3);
            let Some(frame) = client.block_on(silence, async { Ok(body.frame().await) })? else { return Ok(None) };
            let frame = frame.map_err(|source| ClientError::Http { socket: client.socket.clone(), source })?;
            self.unread.extend(frame.into_data().unwrap_or_default());
            if self.unread.len() > MAX_ANSWER_BYTES {
                return Err(ClientError::TooLong { socket: client.socket.clone(), max_bytes: MAX_ANSWER_BYTES });
            }
        }
    }
}
