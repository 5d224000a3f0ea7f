//! The control API of a running target: HTTP/1.1 with JSON bodies on a Unix socket, like the API of the daemon.
//!
//! * `GET /v1/status` returns a [`Status`].
//! * `PUT /v1/settings` takes a [`SettingsRequest`] and returns the [`Status`] afterwards.
//!
//! An error is `{"error": {"code": …, "message": …}}`, with a message of one line.

use std::fmt;
use std::future::Future;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, put};
use axum::{Json, Router};
use mpath_api::types::ErrorCode;
use mpath_api_server::{ApiError, JsonBody, Server};
use mpath_config::text_serde;
use serde::{Deserialize, Serialize};

use crate::server::{DiscoveryStatus, ListenerStatus, StartError, TargetServer};
use crate::setting::Setting;

/// The status of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub pid: u32,
    pub nqn: String,
    pub listeners: Vec<ListenerStatus>,
    pub discovery: Option<DiscoveryStatus>,
}

/// The body of `PUT /v1/settings`: `{"port": "1", "settings": ["ana=inaccessible"]}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsRequest {
    pub port: PortSelector,
    /// The settings, in order. If one is not possible with this target, none is applied.
    pub settings: Vec<Setting>,
}

/// A selection of listeners: a port ID (`1`), `all` for all ports of the subsystem, or `discovery`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortSelector {
    All,
    Port(u16),
    Discovery,
}

/// A text that is not a [`PortSelector`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("port '{0}': give a port ID from 1, all or discovery")]
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

text_serde!(PortSelector, "a port ID from 1, `all` or `discovery`");

/// Why settings were not applied.
#[derive(Debug, thiserror::Error)]
enum ApplyError {
    #[error("port {port} does not exist: this target has ports 1 to {ports}")]
    Port { port: u16, ports: usize },
    #[error("port discovery does not exist: this target was started without --discovery")]
    NoDiscovery,
    #[error(transparent)]
    Apply(#[from] StartError),
    #[error("the settings may be applied in part: an internal error has occurred")]
    Failed,
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        let code = match &error {
            ApplyError::Port { .. } | ApplyError::NoDiscovery | ApplyError::Apply(StartError::Setting(_)) => {
                ErrorCode::BadRequest
            }
            ApplyError::Apply(_) | ApplyError::Failed => ErrorCode::Other,
        };
        Self::new(code, error.to_string())
    }
}

/// Serves the API of `target` on `socket` until `shutdown` completes. Requires a tokio runtime with I/O and time.
pub async fn serve(socket: Server, target: Arc<TargetServer>, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let routes = Router::new().route("/v1/status", get(status)).route("/v1/settings", put(put_settings));
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

async fn put_settings(
    State(target): State<Arc<TargetServer>>,
    JsonBody(request): JsonBody<SettingsRequest>,
) -> Result<Json<Status>, ApiError> {
    // Ending connections blocks until their threads have ended.
    let applied = tokio::task::spawn_blocking(move || apply(&target, &request).map(|()| status_of(&target)));
    let status = applied.await.unwrap_or(Err(ApplyError::Failed))?;
    Ok(Json(status))
}

fn apply(target: &TargetServer, request: &SettingsRequest) -> Result<(), ApplyError> {
    let ports = target.addrs().len();
    let listeners = match request.port {
        PortSelector::All => 0..ports,
        PortSelector::Port(port) if (1..=ports).contains(&port.into()) => usize::from(port) - 1..usize::from(port),
        PortSelector::Port(port) => return Err(ApplyError::Port { port, ports }),
        PortSelector::Discovery if target.discovery_addr().is_none() => return Err(ApplyError::NoDiscovery),
        PortSelector::Discovery => return Ok(target.apply_to_discovery(&request.settings)?),
    };
    for listener in listeners {
        target.apply(listener, &request.settings)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_selectors_parse_and_print() {
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
    fn request_bodies_with_unknown_fields_are_refused() {
        let request: SettingsRequest = serde_json::from_str(r#"{"port":"1","settings":["hold=on"]}"#).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"port":"1","settings":["hold=on"]}"#);
        for (body, word) in [
            (r#"{"port":"1"}"#, "settings"),
            (r#"{"port":"x","settings":[]}"#, "port 'x'"),
            (r#"{"port":"1","settings":["hold=maybe"]}"#, "hold 'maybe'"),
            (r#"{"port":"1","settings":[],"now":true}"#, "now"),
        ] {
            let error = serde_json::from_str::<SettingsRequest>(body).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
