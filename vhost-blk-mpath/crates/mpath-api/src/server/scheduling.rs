//! The routes of schedulers, weights and limits.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use mpath_core::{SchedulerChange, SchedulerKind, SchedulerSpec};

use super::Control;
use super::disks::{of_disks, of_disks_with_paths};
use super::document::{Routes, routes};
use super::error::ApiError;
use super::request::{Answer, DiskQuery, JsonBody, query};
use crate::types::{
    DiskLimits, DiskScheduler, DiskWeight, ErrorCode, Parameter, Scheduler, SchedulerDetail, SetLimits, SetScheduler,
    SetWeight,
};

pub(super) fn routes<C: Control>() -> Routes<Arc<C>> {
    routes!(C:
        schedulers [],
        scheduler_detail [BadRequest, UnknownDisk],
        scheduler [BadRequest, UnknownDisk, SharesPaths],
        set_scheduler [BadRequest, UnknownDisk, SharesPaths],
        limits [BadRequest, UnknownDisk],
        set_limits [BadRequest, UnknownDisk],
        weights [BadRequest, UnknownDisk],
        set_weight [BadRequest, UnknownDisk],
    )
}

fn names(details: Vec<SchedulerDetail>) -> Vec<String> {
    details.into_iter().map(|detail| detail.disk).collect()
}

/// Every scheduler that this daemon has, with its parameters.
#[utoipa::path(get, path = "/v1/schedulers", responses((status = 200, body = Vec<Scheduler>)))]
async fn schedulers<C: Control>(State(control): State<Arc<C>>) -> Answer<Vec<Scheduler>> {
    let details = of_disks_with_paths(control.scheduling().await?, None)?;
    let describe = |kind: SchedulerKind| Scheduler {
        name: kind,
        description: kind.description().into(),
        params: Parameter::all(SchedulerSpec::from(kind).params()),
        active_on: details.iter().filter(|d| d.scheduler.kind() == kind).map(|d| d.disk.clone()).collect(),
    };
    Ok(Json(SchedulerKind::ALL.into_iter().map(describe).collect()))
}

/// The schedulers in force with parameters, virtqueues and limits.
#[utoipa::path(get, path = "/v1/scheduler/detail", params(DiskQuery), responses((status = 200, body = Vec<SchedulerDetail>)))]
async fn scheduler_detail<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<SchedulerDetail>> {
    let disk = query(disk)?.disk;
    Ok(Json(of_disks(control.scheduling().await?, disk)?))
}

async fn schedulers_of<C: Control>(control: &C, disk: Option<String>) -> Answer<Vec<DiskScheduler>> {
    let of = |SchedulerDetail { disk, scheduler, .. }| DiskScheduler { disk, scheduler };
    Ok(Json(of_disks_with_paths(control.scheduling().await?, disk)?.into_iter().map(of).collect()))
}

/// The schedulers in force.
#[utoipa::path(get, path = "/v1/scheduler", params(DiskQuery), responses((status = 200, body = Vec<DiskScheduler>)))]
async fn scheduler<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<DiskScheduler>> {
    schedulers_of(&*control, query(disk)?.disk).await
}

/// Sets the scheduler. Answers with the disks changed.
#[utoipa::path(put, path = "/v1/scheduler", request_body = SetScheduler, responses((status = 200, body = Vec<DiskScheduler>)))]
async fn set_scheduler<C: Control>(
    State(control): State<Arc<C>>,
    JsonBody(wanted): JsonBody<SetScheduler>,
) -> Answer<Vec<DiskScheduler>> {
    let params = wanted.params.iter().map(|(name, value)| (&**name, &**value));
    let change = SchedulerChange::new(wanted.scheduler, params)
        .map_err(|error| ApiError::new(ErrorCode::BadRequest, error.to_string()))?;
    let disks = names(of_disks_with_paths(control.scheduling().await?, wanted.disk.clone())?);
    control.set_scheduler(&disks, &change).await?;
    schedulers_of(&*control, wanted.disk).await
}

async fn limits_of<C: Control>(control: &C, disk: Option<String>) -> Answer<Vec<DiskLimits>> {
    let of = |SchedulerDetail { disk, limits, .. }| DiskLimits { disk, status: limits };
    Ok(Json(of_disks(control.scheduling().await?, disk)?.into_iter().map(of).collect()))
}

/// The limits, and how much of them is left.
#[utoipa::path(get, path = "/v1/limits", params(DiskQuery), responses((status = 200, body = Vec<DiskLimits>)))]
async fn limits<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<DiskLimits>> {
    limits_of(&*control, query(disk)?.disk).await
}

/// Sets limits. Answers with the disks changed.
#[utoipa::path(put, path = "/v1/limits", request_body = SetLimits, responses((status = 200, body = Vec<DiskLimits>)))]
async fn set_limits<C: Control>(
    State(control): State<Arc<C>>,
    JsonBody(wanted): JsonBody<SetLimits>,
) -> Answer<Vec<DiskLimits>> {
    if (wanted.iops, wanted.bandwidth, wanted.burst) == (None, None, None) {
        let message = "nothing to set; give iops, bandwidth or burst";
        return Err(ApiError::new(ErrorCode::BadRequest, message));
    }
    let disks = names(of_disks(control.scheduling().await?, wanted.disk.clone())?);
    control.set_limits(&disks, &wanted).await?;
    limits_of(&*control, wanted.disk).await
}

async fn weights_of<C: Control>(control: &C, disk: Option<String>) -> Answer<Vec<DiskWeight>> {
    Ok(Json(of_disks(control.status().await?.disks, disk)?.into_iter().map(DiskWeight::from).collect()))
}

/// The weights.
#[utoipa::path(get, path = "/v1/weights", params(DiskQuery), responses((status = 200, body = Vec<DiskWeight>)))]
async fn weights<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<DiskWeight>> {
    weights_of(&*control, query(disk)?.disk).await
}

/// Sets the weight of a disk. Answers with the disk.
#[utoipa::path(put, path = "/v1/weights", request_body = SetWeight, responses((status = 200, body = Vec<DiskWeight>)))]
async fn set_weight<C: Control>(
    State(control): State<Arc<C>>,
    JsonBody(wanted): JsonBody<SetWeight>,
) -> Answer<Vec<DiskWeight>> {
    let mut disks = of_disks(control.status().await?.disks, wanted.disk)?;
    let Some(disk) = disks.pop().filter(|_| disks.is_empty()) else {
        let message = "there are several disks, and a weight is the share of one among them; name the disk in `disk`";
        return Err(ApiError::new(ErrorCode::BadRequest, message));
    };
    control.set_weight(&disk.name, wanted.weight).await?;
    weights_of(&*control, Some(disk.name)).await
}
