//! Decides: a change of settings applies to these disks (`having`).
//!
//! The routes that add and remove disks, and the selection of disks by a request.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path as RoutePath, Query, State};
use axum::http::{Method, Uri};
use mpath_api::types::{Disk, ErrorCode, RemovedDisk, SchedulerDetail};
use mpath_config::{DiskConfig, DiskName, LiveSetting, similar_name};

use super::document::{Routes, routes};
use super::error::{ApiError, ControlError};
use super::request::{Answer, DisksQuery, ForceQuery, JsonBody, query, route};
use super::{Control, DiskRef};

pub(super) fn routes<C: Control>() -> Routes<Arc<C>> {
    routes!(C:
        disks [BadRequest, UnknownDisk, SharesPaths],
        disk [BadRequest, UnknownDisk],
        add_disk [BadRequest, DiskExists, TooManyDisks, DiskNotStarted, DiskLeaving],
        remove_disk [BadRequest, UnknownDisk, DiskConnected, DiskLeaving, SharesPaths],
    )
}

/// An error names this many disks.
const NAMED_MAX: usize = 4;

/// Whether a request adds or removes disks, reloads the configuration or begins an upgrade, which takes longer than others.
pub(super) fn takes_long(method: &Method, uri: &Uri) -> bool {
    let parts: Vec<_> = uri.path().split('/').collect();
    matches!(
        (method, &parts[..]),
        (&Method::POST, ["", "v1", "disks" | "upgrade"] | ["", "v1", "config", "reload"])
            | (&Method::DELETE, ["", "v1", "disks", _])
    )
}

/// The disks.
#[utoipa::path(get, path = "/v1/disks", params(DisksQuery), responses((status = 200, body = Vec<Disk>)))]
async fn disks<C: Control>(
    State(control): State<Arc<C>>,
    wanted: Result<Query<DisksQuery>, QueryRejection>,
) -> Answer<Vec<Disk>> {
    let DisksQuery { disk, setting } = query(wanted)?;
    let disk = if setting.is_some_and(LiveSetting::is_of_paths) { owner(&*control, disk) } else { disk };
    Ok(Json(having(setting.as_slice(), control.status().await?.disks, disk)?))
}

/// One disk.
#[utoipa::path(get, path = "/v1/disks/{disk}", params(("disk" = DiskName, Path, description = "The disk's name.")), responses((status = 200, body = Disk)))]
async fn disk<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<RoutePath<String>, PathRejection>,
) -> Answer<Disk> {
    Ok(Json(disk_of(&*control, route(disk)?).await?))
}

/// The disk with this name.
pub(super) async fn disk_of<C: Control>(control: &C, name: String) -> Result<Disk, ControlError> {
    let mut found = of_disks(control.status().await?.disks, Some(name))?;
    Ok(found.pop().expect("a disk of that name was found"))
}

/// Adds a disk, and those in its `share-paths-with`. Answers with these disks once they are served, which may take a minute.
///
/// The body is one entry of `disks:` of the configuration file. Socket paths are absolute.
#[utoipa::path(post, path = "/v1/disks", request_body = DiskConfig, responses((status = 200, body = Vec<Disk>)))]
async fn add_disk<C: Control>(
    State(control): State<Arc<C>>,
    JsonBody(wanted): JsonBody<DiskConfig>,
) -> Answer<Vec<Disk>> {
    let name = wanted.name.to_string();
    control.add_disk(wanted).await?;
    let mut disks = control.status().await?.disks;
    disks.retain(|disk| disk.name == name || disk.shares_paths_of.as_ref() == Some(&name));
    Ok(Json(disks))
}

/// Removes a disk and those that share its paths. Answers once they are gone, which may take a minute.
///
/// With `force` even if front-ends are connected.
#[utoipa::path(delete, path = "/v1/disks/{disk}", params(("disk" = DiskName, Path, description = "The disk's name."), ForceQuery), responses((status = 200, body = Vec<RemovedDisk>)))]
async fn remove_disk<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<RoutePath<String>, PathRejection>,
    wanted: Result<Query<ForceQuery>, QueryRejection>,
) -> Answer<Vec<RemovedDisk>> {
    let (disk, ForceQuery { force }) = (route(disk)?, query(wanted)?);
    of_disks(control.disks(), Some(disk.clone()))?;
    Ok(Json(control.remove_disk(&disk, force).await?))
}

/// A value that belongs to a disk.
pub(super) trait OfDisk {
    /// The disk's name.
    fn disk(&self) -> &str;
    /// The disk that has the paths. `None` if the disk has paths of its own.
    fn shares_paths_of(&self) -> Option<&str>;
}

impl OfDisk for Disk {
    fn disk(&self) -> &str {
        &self.name
    }

    fn shares_paths_of(&self) -> Option<&str> {
        self.shares_paths_of.as_deref()
    }
}

impl OfDisk for DiskRef {
    fn disk(&self) -> &str {
        &self.disk
    }

    fn shares_paths_of(&self) -> Option<&str> {
        self.shares_paths_of.as_deref()
    }
}

impl OfDisk for SchedulerDetail {
    fn disk(&self) -> &str {
        &self.disk
    }

    fn shares_paths_of(&self) -> Option<&str> {
        self.shares_paths_of.as_deref()
    }
}

/// The values of the named disk, or of all disks.
pub(super) fn of_disks<T: OfDisk>(mut all: Vec<T>, disk: Option<String>) -> Result<Vec<T>, ControlError> {
    if let Some(disk) = disk {
        if !all.iter().any(|of| of.disk() == disk) {
            let similar = similar_name(&disk, all.iter().map(OfDisk::disk));
            return Err(ControlError::UnknownDisk { disk, similar });
        }
        all.retain(|of| of.disk() == disk);
    }
    Ok(all)
}

/// The values of the named disk, or of all disks, for values that belong to paths. A disk that shares paths
/// is left out, and is an error if it is named.
pub(super) fn of_disks_with_paths<T: OfDisk>(all: Vec<T>, disk: Option<String>) -> Result<Vec<T>, ControlError> {
    let named = disk.is_some();
    let mut selected = of_disks(all, disk)?;
    if let Some(sharer) = selected.first().filter(|_| named)
        && let Some(owner) = sharer.shares_paths_of()
    {
        return Err(ControlError::SharesPaths { disk: sharer.disk().into(), owner: owner.into() });
    }
    selected.retain(|of| of.shares_paths_of().is_none());
    Ok(selected)
}

/// Makes sure that a change of several disks is meant. `changed` are the names of the disks that it would change, in order.
pub(super) fn one_or_all<'a>(
    named: Option<&str>,
    all: bool,
    changed: impl Iterator<Item = &'a str>,
) -> Result<(), ApiError> {
    let refused = |message: String| Err(ApiError::new(ErrorCode::BadRequest, message));
    let mut changed: Vec<_> = changed.collect();
    changed.dedup();
    match (named, all) {
        (Some(_), true) => refused("give `disk` or `all`, not both".into()),
        (None, false) if changed.len() > 1 => {
            let few = &changed[..changed.len().min(NAMED_MAX)];
            let more = if changed.len() > NAMED_MAX { ", …" } else { "" };
            refused(format!(
                "this changes {} disks ({}{more}); name one (`disk`; mpathctl: --disk NAME) or say that you mean all of them \
                 (`all`; mpathctl: --all)",
                changed.len(),
                few.join(", "),
            ))
        }
        _ => Ok(()),
    }
}

/// The disk that has the paths of the named disk. So a client can read what is known of the paths of a disk that shares them.
pub(super) fn owner<C: Control>(control: &C, named: Option<String>) -> Option<String> {
    let disks = control.disks();
    let owner = |named: &String| disks.iter().find(|of| of.disk == *named)?.shares_paths_of.clone();
    named.as_ref().and_then(owner).or(named)
}

/// The named disk, which must have all of these settings of its own, or every disk that has one of them.
pub(super) fn having<T: OfDisk>(
    settings: &[LiveSetting],
    all: Vec<T>,
    disk: Option<String>,
) -> Result<Vec<T>, ControlError> {
    let mut of_paths = settings.iter().map(|setting| setting.is_of_paths());
    let needs_paths = match disk {
        Some(_) => of_paths.any(|is| is),
        None => !settings.is_empty() && of_paths.all(|is| is),
    };
    if needs_paths { of_disks_with_paths(all, disk) } else { of_disks(all, disk) }
}
