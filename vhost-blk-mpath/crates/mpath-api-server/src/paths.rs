//! The routes of paths and of their injections.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path as RoutePath, Query, State};
use mpath_api::types::{
    ActOnPaths, AddPath, ErrorCode, InjectedMilliseconds, InjectedPath, InjectionInForce, Path, PathSelector,
    PathState, SetInjection,
};
use mpath_config::DiskName;

use super::disks::{of_disks_with_paths, one_or_all, owner};
use super::document::{Routes, routes};
use super::error::{ApiError, ControlError};
use super::request::{Answer, DiskQuery, ForceQuery, JsonBody, PathQuery, query, route};
use super::{Control, PathRef};

pub(super) fn routes<C: Control>() -> Routes<Arc<C>> {
    routes!(C:
        paths [BadRequest, UnknownDisk, UnknownPath, SharesPaths],
        act_on_paths [BadRequest, UnknownDisk, UnknownPath, SharesPaths, LastPath, PathState],
        add_path [BadRequest, UnknownDisk, UnknownPath, SharesPaths, PathExists, TooManyPaths, NotMultipath],
        remove_path [BadRequest, UnknownDisk, UnknownPath, SharesPaths, LastPath],
        injections [BadRequest, UnknownDisk, SharesPaths],
        set_injection [BadRequest, UnknownDisk, UnknownPath, SharesPaths, PathState],
        clear_injections [BadRequest, UnknownDisk, UnknownPath, SharesPaths, PathState],
    )
}

/// Paths, with their states, counters and latencies.
#[utoipa::path(get, path = "/v1/paths", params(PathQuery), responses((status = 200, body = Vec<Path>)))]
async fn paths<C: Control>(
    State(control): State<Arc<C>>,
    wanted: Result<Query<PathQuery>, QueryRejection>,
) -> Answer<Vec<Path>> {
    let wanted = query(wanted)?;
    let disk = owner(&*control, wanted.disk);
    Ok(Json(select(&*control, &wanted.path.unwrap_or(PathSelector::All), disk).await?))
}

/// Enables, drains, disables or resets paths. Answers with the selected paths after the action.
#[utoipa::path(put, path = "/v1/paths", request_body = ActOnPaths, responses((status = 200, body = Vec<Path>)))]
async fn act_on_paths<C: Control>(
    State(control): State<Arc<C>>,
    JsonBody(wanted): JsonBody<ActOnPaths>,
) -> Answer<Vec<Path>> {
    let paths = changeable(&*control, &wanted.path, wanted.disk.clone()).await?;
    one_or_all(wanted.disk.as_deref(), wanted.all, paths.iter().map(|path| &*path.disk))?;
    control.act_on_paths(&refs(&paths), wanted.action, wanted.force).await?;
    Ok(Json(select(&*control, &wanted.path, wanted.disk).await?))
}

/// Adds a path to a disk. Answers with the path, which is not yet connected.
#[utoipa::path(post, path = "/v1/disks/{disk}/paths", params(("disk" = DiskName, Path, description = "The disk's name.")), request_body = AddPath, responses((status = 200, body = Path)))]
async fn add_path<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<RoutePath<String>, PathRejection>,
    JsonBody(wanted): JsonBody<AddPath>,
) -> Answer<Path> {
    let disk = route(disk)?;
    of_disks_with_paths(control.disks(), Some(disk.clone()))?;
    let added = control.add_path(&disk, wanted.address).await?;
    let paths = paths_of(&*control, Some(added.disk.clone())).await?;
    // Another client may have removed it meanwhile.
    let found = paths.into_iter().find(|path| path.index == added.index);
    Ok(Json(found.ok_or(ControlError::UnknownPath(added))?))
}

/// Removes paths of a disk. Answers with the selected paths that are not gone yet.
///
/// With `force` at once, and even the last usable path.
#[utoipa::path(delete, path = "/v1/disks/{disk}/paths/{path}", params(("disk" = DiskName, Path, description = "The disk's name."), ("path" = PathSelector, Path, description = "The paths."), ForceQuery), responses((status = 200, body = Vec<Path>)))]
async fn remove_path<C: Control>(
    State(control): State<Arc<C>>,
    path: Result<RoutePath<(String, PathSelector)>, PathRejection>,
    wanted: Result<Query<ForceQuery>, QueryRejection>,
) -> Answer<Vec<Path>> {
    let ((disk, selector), ForceQuery { force }) = (route(path)?, query(wanted)?);
    let selected = select(&*control, &selector, Some(disk.clone())).await?;
    // A path that cannot be removed does not keep the others. The first such error is the answer.
    let mut removed = Ok(());
    for path in &refs(&selected) {
        removed = removed.and(control.remove_path(path, force).await);
    }
    removed?;
    let mut left = paths_of(&*control, Some(disk)).await?;
    left.retain(|path| selected.iter().any(|of| (of.index, &of.address) == (path.index, &path.address)));
    Ok(Json(left))
}

/// The paths of a disk or of all, with their shares of the I/Os.
pub(super) async fn paths_of<C: Control>(control: &C, disk: Option<String>) -> Result<Vec<Path>, ApiError> {
    let mut paths = control.paths().await?;
    if let Some(disk) = disk {
        paths.retain(|path| path.disk == disk);
        // A disk may have no paths left.
        if paths.is_empty() {
            of_disks_with_paths(control.disks(), Some(disk))?;
        }
    }
    let mut totals: HashMap<String, [u64; 3]> = HashMap::new();
    for path in &paths {
        let total = totals.entry(path.disk.clone()).or_default();
        *total = std::array::from_fn(|at| total[at] + counts(path)[at]);
    }
    for path in &mut paths {
        let (part, total) = (counts(path), totals.get(&path.disk).copied().unwrap_or_default());
        [path.io_share, path.io_share_1s, path.io_share_60s] = std::array::from_fn(|at| share(part[at], total[at]));
    }
    Ok(paths)
}

/// I/Os since the start, in the last second, and in the last minute.
fn counts(path: &Path) -> [u64; 3] {
    [path.ios(), path.ios_1s(), path.ios_60s()]
}

// Beyond 2^52 I/Os a share may be wrong in its sixteenth digit.
#[allow(clippy::cast_precision_loss)]
pub(super) fn share(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

/// The injections in force.
#[utoipa::path(get, path = "/v1/injections", params(DiskQuery), responses((status = 200, body = Vec<InjectedPath>)))]
async fn injections<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<InjectedPath>> {
    let disk = owner(&*control, query(disk)?.disk);
    let paths = paths_of(&*control, disk).await?;
    Ok(Json(paths.into_iter().flat_map(injected).collect()))
}

fn injected(path: Path) -> impl Iterator<Item = InjectedPath> {
    let Path { disk, index, address, injections, .. } = path;
    let one = move |injection| InjectedPath { disk: disk.clone(), index, address: address.clone(), injection };
    injections.into_iter().map(one)
}

/// The selected paths. An error if a selector other than `all` selects none.
async fn select<C: Control>(control: &C, selector: &PathSelector, disk: Option<String>) -> Result<Vec<Path>, ApiError> {
    let mut paths = paths_of(control, disk).await?;
    paths.retain(|path| selector.matches(path));
    if paths.is_empty() && *selector != PathSelector::All {
        return Err(ApiError::new(
            ErrorCode::UnknownPath,
            format!("no path is `{selector}`; `mpathctl path list` shows the paths"),
        ));
    }
    Ok(paths)
}

/// The selected paths for a change. `all` leaves out paths that are being removed. Selected by name, such paths are refused later.
async fn changeable<C: Control>(
    control: &C,
    selector: &PathSelector,
    disk: Option<String>,
) -> Result<Vec<Path>, ApiError> {
    let mut paths = select(control, selector, disk).await?;
    paths.retain(|path| *selector != PathSelector::All || path.state != PathState::Removing);
    Ok(paths)
}

fn refs(paths: &[Path]) -> Vec<PathRef> {
    paths.iter().map(|path| PathRef { disk: path.disk.clone(), index: path.index }).collect()
}

/// Sets an injection. Answers with the paths changed.
#[utoipa::path(put, path = "/v1/injections", request_body = SetInjection, responses((status = 200, body = Vec<InjectedPath>)))]
async fn set_injection<C: Control>(
    State(control): State<Arc<C>>,
    JsonBody(wanted): JsonBody<SetInjection>,
) -> Answer<Vec<InjectedPath>> {
    let mut paths = changeable(&*control, &wanted.path, wanted.disk).await?;
    let time = wanted.for_ms.map(InjectedMilliseconds::duration);
    control.set_injection(&refs(&paths), wanted.injection, time).await?;
    let (injection, ends_in_ms) = (wanted.injection, wanted.for_ms.map(Into::into));
    for path in &mut paths {
        path.injections = vec![InjectionInForce { injection, ends_in_ms, changed: None }];
    }
    Ok(Json(paths.into_iter().flat_map(injected).collect()))
}

/// Clears injections. Answers with those that were cleared.
#[utoipa::path(delete, path = "/v1/injections", params(PathQuery), responses((status = 200, body = Vec<InjectedPath>)))]
async fn clear_injections<C: Control>(
    State(control): State<Arc<C>>,
    wanted: Result<Query<PathQuery>, QueryRejection>,
) -> Answer<Vec<InjectedPath>> {
    let wanted = query(wanted)?;
    let selector = wanted.path.unwrap_or(PathSelector::All);
    let paths = changeable(&*control, &selector, wanted.disk).await?;
    control.clear_injections(&refs(&paths)).await?;
    Ok(Json(paths.into_iter().flat_map(injected).collect()))
}
