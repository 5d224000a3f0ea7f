//! Disks that come and go. And which disks a request means: those it names or all, and whether they have to have paths of
//! their own.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path as RoutePath, Query, State};
use axum::http::{Method, Uri};
use axum::routing::{delete, get};
use axum::{Json, Router};

use super::Control;
use super::error::ControlError;
use super::routes::{Answer, DiskQuery, ForceQuery, JsonBody, query, route};
use crate::config::DiskConfig;
use crate::types::{Disk, RemovedDisk, SchedulerDetail};

pub(super) fn routes<C: Control>() -> Router<Arc<C>> {
    Router::new()
        .route("/v1/disks", get(disks::<C>).post(add_disk::<C>))
        .route("/v1/disks/{disk}", delete(remove_disk::<C>))
}

/// Whether a request is for disks to come or go, which takes longer than others.
pub(super) fn come_or_go(method: &Method, uri: &Uri) -> bool {
    let parts: Vec<_> = uri.path().split('/').collect();
    matches!((method, &parts[..]), (&Method::POST, ["", "v1", "disks"]) | (&Method::DELETE, ["", "v1", "disks", _]))
}

async fn disks<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<Disk>> {
    let disk = query(disk)?.disk;
    Ok(Json(meant(control.status().await?.disks, disk)?))
}

/// Answers with the disk, and those that share its paths.
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

/// Answers with the disks that are gone: it is done when they are.
async fn remove_disk<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<RoutePath<String>, PathRejection>,
    wanted: Result<Query<ForceQuery>, QueryRejection>,
) -> Answer<Vec<RemovedDisk>> {
    let (disk, ForceQuery { force }) = (route(disk)?, query(wanted)?);
    meant(control.status().await?.disks, Some(disk.clone()))?;
    Ok(Json(control.remove_disk(&disk, force).await?))
}

/// Something said of a disk.
pub(super) trait OfDisk {
    /// The disk's name.
    fn disk(&self) -> &str;
    /// The disk whose paths it uses, unless it has paths of its own.
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

impl OfDisk for SchedulerDetail {
    fn disk(&self) -> &str {
        &self.disk
    }

    fn shares_paths_of(&self) -> Option<&str> {
        self.shares_paths_of.as_deref()
    }
}

/// Of the disk named, or of all.
pub(super) fn meant<T: OfDisk>(mut all: Vec<T>, disk: Option<String>) -> Result<Vec<T>, ControlError> {
    if let Some(disk) = disk {
        all.retain(|of| of.disk() == disk);
        if all.is_empty() {
            return Err(ControlError::UnknownDisk { disk });
        }
    }
    Ok(all)
}

/// The same for what belongs to paths: a disk that uses those of another one cannot be named, and is left out of all.
pub(super) fn with_paths<T: OfDisk>(all: Vec<T>, disk: Option<String>) -> Result<Vec<T>, ControlError> {
    let named = disk.is_some();
    let mut meant = meant(all, disk)?;
    if let Some(sharer) = meant.first().filter(|_| named)
        && let Some(owner) = sharer.shares_paths_of()
    {
        return Err(ControlError::SharesPaths { disk: sharer.disk().into(), owner: owner.into() });
    }
    meant.retain(|of| of.shares_paths_of().is_none());
    Ok(meant)
}
