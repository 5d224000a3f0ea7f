//! The routes that say why: the next request of a disk, and the slowest of the last minutes.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path as RoutePath, Query, State};
use mpath_api::types::{Explanation, HistoryMinute, SlowRequest};
use mpath_config::DiskName;

use super::Control;
use super::disks::{disk_of, of_disks};
use super::document::{Routes, routes};
use super::request::{Answer, DiskQuery, HistoryQuery, query, route};

pub(super) fn routes<C: Control>() -> Routes<Arc<C>> {
    routes!(C: explain [BadRequest, UnknownDisk], history [BadRequest, UnknownDisk], slow [BadRequest, UnknownDisk],)
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

/// The minutes of a disk that began in this time, the oldest first: at most 2880, the latest. Minutes without requests are left out.
#[utoipa::path(get, path = "/v1/disks/{disk}/history", params(("disk" = DiskName, Path, description = "The disk's name."), HistoryQuery), responses((status = 200, body = Vec<HistoryMinute>)))]
async fn history<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<RoutePath<String>, PathRejection>,
    times: Result<Query<HistoryQuery>, QueryRejection>,
) -> Answer<Vec<HistoryMinute>> {
    let (disk, times) = (route(disk)?, query(times)?);
    of_disks(control.disks(), Some(disk.clone()))?;
    let at = |seconds: u32| UNIX_EPOCH + Duration::from_secs(seconds.into());
    // The whole of that second.
    let until = times.until_s.map_or_else(SystemTime::now, |seconds| at(seconds) + Duration::from_millis(999));
    Ok(Json(control.history(&disk, at(times.from_s.unwrap_or(0)), until).await?))
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
