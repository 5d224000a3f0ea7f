//! The routes of the configuration.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use mpath_api::types::{Configuration, Reload};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Control;
use super::document::{Routes, routes};
use super::request::{Answer, query, true_or_false};

pub(super) fn routes<C: Control>() -> Routes<Arc<C>> {
    routes!(C: configuration [], reload [BadRequest, ConfigInvalid, NoConfigFile],)
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
