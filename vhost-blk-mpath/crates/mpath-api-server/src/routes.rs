//! All routes, and those of the daemon itself.

use std::sync::{Arc, OnceLock};

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path as RoutePath, Query, State};
use axum::http::header;
use axum::response::IntoResponse;
use axum::{Json, Router};
use mpath_api::types::{ClearedFences, DiskFences, Status, Upgrade};
use mpath_config::DiskName;

use super::disks::of_disks;
use super::document::{Routes, routes};
use super::error::ApiError;
use super::events::{__path_events, events};
use super::metrics::{__path_metrics, metrics};
use super::request::{Answer, DiskQuery, ForceQuery, query, route};
use super::{Control, configuration, diagnostics, disks, paths, policies, scheduling, settings};

pub(super) fn router<C: Control>(control: Arc<C>) -> Router {
    routes::<C>().router().with_state(control)
}

/// The OpenAPI document of these routes.
pub(super) fn document<C: Control>() -> String {
    routes::<C>().document()
}

fn routes<C: Control>() -> Routes<Arc<C>> {
    routes!(C:
        status [],
        fences [BadRequest, UnknownDisk],
        clear_fences [BadRequest, UnknownDisk, DiskConnected, NeedsForce],
        upgrade [BadRequest, UpgradeFailed],
        events [BadRequest],
        healthz [],
        readyz [],
        metrics [],
        openapi [],
    )
    .merge(configuration::routes())
    .merge(disks::routes())
    .merge(paths::routes())
    .merge(policies::routes())
    .merge(scheduling::routes())
    .merge(settings::routes())
    .merge(diagnostics::routes())
}

/// The daemon, its disks and discovery controllers.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = Status)))]
async fn status<C: Control>(State(control): State<Arc<C>>) -> Answer<Status> {
    Ok(Json(control.status().await?))
}

/// Fences, and everything else that the fence records of disks keep.
#[utoipa::path(get, path = "/v1/fences", params(DiskQuery), responses((status = 200, body = Vec<DiskFences>)))]
async fn fences<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<DiskFences>> {
    let mut fences = control.fences().await?;
    if let Some(disk) = query(disk)?.disk {
        of_disks(control.disks(), Some(disk.clone()))?;
        fences.retain(|of| of.disk == disk);
    }
    Ok(Json(fences))
}

/// Has the daemon start its program anew and hand over to it. Answers when the new process is ready to take over.
///
/// With `force` it goes ahead although a disk has no path, the metrics address cannot be used, or a connected front-end loses its disk or gets another one.
#[utoipa::path(post, path = "/v1/upgrade", params(ForceQuery), responses((status = 200, body = Upgrade)))]
async fn upgrade<C: Control>(
    State(control): State<Arc<C>>,
    wanted: Result<Query<ForceQuery>, QueryRejection>,
) -> Answer<Upgrade> {
    let ForceQuery { force } = query(wanted)?;
    Ok(Json(control.upgrade(force).await?))
}

/// Declares void what the fence record of a disk keeps.
///
/// Without `force` only what cannot lose data once the guest is gone.
#[utoipa::path(delete, path = "/v1/fences/{disk}", params(("disk" = DiskName, Path, description = "The disk's name."), ForceQuery), responses((status = 200, body = ClearedFences)))]
async fn clear_fences<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<RoutePath<String>, PathRejection>,
    wanted: Result<Query<ForceQuery>, QueryRejection>,
) -> Answer<ClearedFences> {
    let (disk, ForceQuery { force }) = (route(disk)?, query(wanted)?);
    of_disks(control.disks(), Some(disk.clone()))?;
    Ok(Json(control.clear_fences(&disk, force).await?))
}

/// Whether the process answers: `ok`.
#[utoipa::path(get, path = "/healthz", responses((status = 200, content_type = "text/plain", body = String)))]
async fn healthz<C: Control>(_: State<Arc<C>>) -> &'static str {
    "ok\n"
}

/// Whether the daemon has reported that it is ready, and is not ending: `ready`.
///
/// Until then the error says what the daemon waits for.
#[utoipa::path(get, path = "/readyz", responses((status = 200, content_type = "text/plain", body = String)))]
async fn readyz<C: Control>(State(control): State<Arc<C>>) -> Result<&'static str, ApiError> {
    control.readiness()?;
    Ok("ready\n")
}

/// The OpenAPI document of this API.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, body = serde_json::Value)))]
async fn openapi<C: Control>() -> impl IntoResponse {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let document = DOCUMENT.get_or_init(document::<C>).as_str();
    ([(header::CONTENT_TYPE, "application/json")], document)
}
