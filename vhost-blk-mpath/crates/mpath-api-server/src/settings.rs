//! The route that changes settings while I/O runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use mpath_api::types::{Disk, ErrorCode, SetSettings};
use mpath_config::LiveSetting;

use super::Control;
use super::disks::{OfDisk, having, one_or_all};
use super::document::{Routes, routes};
use super::error::ApiError;
use super::request::{Answer, JsonBody};

pub(super) fn routes<C: Control>() -> Routes<Arc<C>> {
    routes!(C: set_settings [BadRequest, UnknownDisk, SharesPaths],)
}

/// Changes settings of all of these disks or of none. Answers with the disks.
#[utoipa::path(put, path = "/v1/settings", request_body = SetSettings, responses((status = 200, body = Vec<Disk>)))]
async fn set_settings<C: Control>(
    State(control): State<Arc<C>>,
    JsonBody(wanted): JsonBody<SetSettings>,
) -> Answer<Vec<Disk>> {
    let refused = |message: String| ApiError::new(ErrorCode::BadRequest, message);
    let change = wanted.change().map_err(|error| refused(error.to_string()))?;
    let settings: Vec<_> = wanted.settings().collect();
    if settings.is_empty() {
        return Err(refused(format!("nothing to set; give {}", LiveSetting::ALL.map(LiveSetting::name).join(", "))));
    }
    let disks: Vec<_> = having(&settings, control.disks(), wanted.disk.clone())?;
    let is_of_disks = settings.iter().any(|setting| !setting.is_of_paths());
    let changed = disks.iter().filter(|_| is_of_disks).map(OfDisk::disk);
    one_or_all(wanted.disk.as_deref(), wanted.all, changed)?;
    let names: Vec<_> = disks.into_iter().map(|of| of.disk).collect();
    control.set(&names, change).await?;
    Ok(Json(having(&settings, control.status().await?.disks, wanted.disk)?))
}
