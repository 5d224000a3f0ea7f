//! The routes that say why: the next request of a disk, and the slowest of the last minutes.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path as RoutePath, Query, State};
use mpath_api::types::{Explanation, SlowRequest};
use mpath_config::DiskName;

use super::Control;
use super::disks::{disk_of, of_disks};
use super::document::{Routes, routes};
use super::request::{Answer, DiskQuery, query, route};

pub(super) fn routes<C: Control>() -> Routes<Arc<C>> {
    routes!(C: explain [BadRequest, UnknownDisk], slow [BadRequest, UnknownDisk],)
}

/// Which path the next requests of a disk would take, why not the others, and what waits.
#[utoipa::path(get, path = "/v1/disks/{disk}/explain", params(("disk" = DiskName, Path, description = "The disk's name.")), responses((status = 200, body = Explanation)))]
async fn explain<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<RoutePath<String>, PathRejection>,
) -> Answer<Explanation> {
    let disk = disk_of(&*control, route(disk)?).await?;
    let threads = control.explain(&disk.name).await?;
    let (condition, reasons) = (disk.health.condition, disk.health.reasons);
    Ok(Json(Explanation { disk: disk.name, condition, reasons, policy: disk.policy, threads }))
}

/// The slowest requests of the last minutes, the slowest first.
#[utoipa::path(get, path = "/v1/slow", params(DiskQuery), responses((status = 200, body = Vec<SlowRequest>)))]
async fn slow<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<SlowRequest>> {
    let wanted = query(disk)?.disk;
    let mut slow = control.slow().await?;
    if let Some(disk) = wanted {
        of_disks(control.disks(), Some(disk.clone()))?;
        slow.retain(|request| request.disk == disk);
    }
    slow.sort_by_key(|request| Reverse(request.total_us));
    Ok(Json(slow))
}
