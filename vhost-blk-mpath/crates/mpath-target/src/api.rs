//! The control API of a running target: HTTP/1.1 with JSON bodies on a Unix socket, in the style of the daemon's.
//!
//! * `GET /v1/status` answers with a [`Status`].
//! * `PUT /v1/settings` takes a [`Change`] and answers with the [`Status`] afterwards.
//!
//! Every other answer is an error with one line for people, `{"error": {"code": …, "message": …}}`.

use std::fmt;
use std::future::Future;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, put};
use axum::{Json, Router};
use mpath_api::server::{ApiError, JsonBody, Server};
use mpath_api::types::ErrorCode;
use serde::{Deserialize, Serialize};

use crate::server::{DiscoveryStatus, ListenerStatus, StartError, TargetServer};
use crate::setting::Setting;

/// The target and all it is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The target's version.
    pub version: String,
    /// The target's process identifier.
    pub pid: u32,
    /// Name of the subsystem.
    pub nqn: String,
    /// Every listener, by port id.
    pub listeners: Vec<ListenerStatus>,
    /// The discovery service, `null` if there is none.
    pub discovery: Option<DiscoveryStatus>,
}

/// The body of `PUT /v1/settings`: `{"port": "1", "settings": ["ana=inaccessible"]}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Which listener.
    pub port: PortSelector,
    /// What is to change, in this order. If one does not fit the target, nothing changes.
    pub settings: Vec<Setting>,
}

/// Names listeners: a port id (`1`), `all` for every port of the subsystem, or `discovery`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PortSelector {
    /// Every port of the subsystem.
    All,
    /// One of them.
    Port(u16),
    /// The discovery service.
    Discovery,
}

/// A text that is no [`PortSelector`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("port '{0}': give a port id from 1, all or discovery")]
pub struct PortError(pub String);

impl FromStr for PortSelector {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        match text {
            "all" => Ok(Self::All),
            "discovery" => Ok(Self::Discovery),
            id => {
                let id = id.parse().ok().filter(|&id| id > 0);
                id.map(Self::Port).ok_or_else(|| PortError(text.to_owned()))
            }
        }
    }
}

impl fmt::Display for PortSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Discovery => f.write_str("discovery"),
            Self::Port(id) => id.fmt(f),
        }
    }
}

impl TryFrom<String> for PortSelector {
    type Error = PortError;

    fn try_from(text: String) -> Result<Self, PortError> {
        text.parse()
    }
}

impl From<PortSelector> for String {
    fn from(selector: PortSelector) -> Self {
        selector.to_string()
    }
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
enum ChangeError {
    /// There is no such port.
    #[error("port {port}: this target has ports 1 to {ports}")]
    Port {
        /// The port.
        port: u16,
        /// How many there are.
        ports: usize,
    },
    /// There is no discovery service.
    #[error("port discovery: this target was started without --discovery")]
    NoDiscovery,
    /// A setting does not fit, or could not be applied.
    #[error(transparent)]
    Apply(#[from] StartError),
    /// The thread that made it has failed.
    #[error("the change has failed half-way")]
    Failed,
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        let code = match &error {
            ChangeError::Port { .. } | ChangeError::NoDiscovery | ChangeError::Apply(StartError::Setting(_)) => {
                ErrorCode::BadRequest
            }
            ChangeError::Apply(_) | ChangeError::Failed => ErrorCode::Other,
        };
        Self::new(code, error.to_string())
    }
}

/// Serves the API of `target` on `socket` until `shutdown` completes. Needs a tokio runtime with I/O and time.
pub async fn serve(socket: Server, target: Arc<TargetServer>, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let routes = Router::new().route("/v1/status", get(status)).route("/v1/settings", put(change));
    socket.serve_routes(routes.with_state(target), shutdown).await
}

async fn status(State(target): State<Arc<TargetServer>>) -> Json<Status> {
    Json(status_of(&target))
}

fn status_of(target: &TargetServer) -> Status {
    Status {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        nqn: target.nqn().into(),
        listeners: target.status(),
        discovery: target.discovery_status(),
    }
}

async fn change(
    State(target): State<Arc<TargetServer>>,
    JsonBody(change): JsonBody<Change>,
) -> Result<Json<Status>, ApiError> {
    // Ending connections waits for their threads.
    let changed = tokio::task::spawn_blocking(move || apply(&target, &change).map(|()| status_of(&target)));
    let status = changed.await.unwrap_or(Err(ChangeError::Failed))?;
    Ok(Json(status))
}

fn apply(target: &TargetServer, change: &Change) -> Result<(), ChangeError> {
    let ports = target.addrs().len();
    let listeners = match change.port {
        PortSelector::All => 0..ports,
        PortSelector::Port(port) if (1..=ports).contains(&port.into()) => usize::from(port) - 1..usize::from(port),
        PortSelector::Port(port) => return Err(ChangeError::Port { port, ports }),
        PortSelector::Discovery if target.discovery_addr().is_none() => return Err(ChangeError::NoDiscovery),
        PortSelector::Discovery => return Ok(target.apply_to_discovery(&change.settings)?),
    };
    for listener in listeners {
        target.apply(listener, &change.settings)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_named() {
        for (text, selector) in
            [("all", PortSelector::All), ("discovery", PortSelector::Discovery), ("65535", PortSelector::Port(65535))]
        {
            assert_eq!(text.parse(), Ok(selector));
            assert_eq!(selector.to_string(), text);
        }
        for text in ["", "0", "-1", "65536", "first"] {
            assert_eq!(text.parse::<PortSelector>(), Err(PortError(text.into())));
        }
    }

    #[test]
    fn bodies_are_plain_and_nothing_unknown_is_taken() {
        let change: Change = serde_json::from_str(r#"{"port":"1","settings":["hold=on"]}"#).unwrap();
        assert_eq!(serde_json::to_string(&change).unwrap(), r#"{"port":"1","settings":["hold=on"]}"#);
        for (body, word) in [
            (r#"{"port":"1"}"#, "settings"),
            (r#"{"port":"x","settings":[]}"#, "port 'x'"),
            (r#"{"port":"1","settings":["hold=maybe"]}"#, "hold 'maybe'"),
            (r#"{"port":"1","settings":[],"now":true}"#, "now"),
        ] {
            let error = serde_json::from_str::<Change>(body).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
