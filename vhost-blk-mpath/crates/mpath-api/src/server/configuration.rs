//! The routes of the configuration, and the error of a reload.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Control;
use super::document::{Routes, routes};
use super::request::{Answer, query, true_or_false};
use crate::types::{Configuration, Reload};

pub(super) fn routes<C: Control>() -> Routes<Arc<C>> {
    routes!(C: configuration [], reload [BadRequest, ConfigInvalid, NoConfigFile],)
}

/// Why the configuration file was not reloaded. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// The daemon was started with flags.
    #[error(
        "the daemon was started with flags and has no configuration file to reload; `mpathctl config save FILE` makes one to start it with"
    )]
    NoFile,
    /// The file cannot be read, or has errors.
    #[error("{}", errors.join("\n"))]
    Invalid {
        /// The errors, each with the place in the file.
        errors: Vec<String>,
    },
    /// A reload or an upgrade is under way.
    #[error("another reload or an upgrade is under way; try again in a moment")]
    UnderWay,
    /// The daemon is ending.
    #[error("the daemon is ending")]
    Ending,
}

impl ReloadError {
    /// The error on one line.
    #[must_use]
    pub fn first_line(&self) -> String {
        match self {
            Self::Invalid { errors } if errors.len() > 1 => {
                let first = errors.first().map(String::as_str).unwrap_or_default();
                format!("{first}; further errors: {}", errors.len() - 1)
            }
            error => error.to_string(),
        }
    }
}

/// `?dry-run=true&force=true`
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[into_params(parameter_in = Query)]
struct ReloadQuery {
    /// Whether to name the changes only.
    #[serde(default, deserialize_with = "true_or_false")]
    dry_run: bool,
    /// Whether to remove disks with connected front-ends and last paths too.
    #[serde(default, deserialize_with = "true_or_false")]
    force: bool,
}

/// The configuration, as it was given and as it is in effect.
#[utoipa::path(get, path = "/v1/config", responses((status = 200, body = Configuration)))]
async fn configuration<C: Control>(State(control): State<Arc<C>>) -> Answer<Configuration> {
    Ok(Json(control.configuration().await?))
}

/// Has the daemon read its configuration file again and apply the differences. Answers when every change is applied or has failed.
#[utoipa::path(post, path = "/v1/config/reload", params(ReloadQuery), responses((status = 200, body = Reload)))]
async fn reload<C: Control>(
    State(control): State<Arc<C>>,
    wanted: Result<Query<ReloadQuery>, QueryRejection>,
) -> Answer<Reload> {
    let ReloadQuery { dry_run, force } = query(wanted)?;
    Ok(Json(control.reload(dry_run, force).await?))
}
