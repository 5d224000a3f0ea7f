//! The routes of schedulers, weights and limits.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use mpath_core::{SchedulerChange, SchedulerKind, SchedulerSpec};

use super::Control;
use super::disks::{of_disks, of_disks_with_paths};
use super::error::ApiError;
use super::routes::{Answer, DiskQuery, JsonBody, query};
use crate::types::{
    DiskLimits, DiskScheduler, DiskWeight, ErrorCode, Parameter, Scheduler, SchedulerDetail, SetLimits, SetScheduler,
    SetWeight,
};

pub(super) fn routes<C: Control>() -> Router<Arc<C>> {
    Router::new()
        .route("/v1/schedulers", get(schedulers::<C>))
        .route("/v1/scheduler/detail", get(scheduler_detail::<C>))
        .route("/v1/scheduler", get(scheduler::<C>).put(set_scheduler::<C>))
        .route("/v1/limits", get(limits::<C>).put(set_limits::<C>))
        .route("/v1/weights", get(weights::<C>).put(set_weight::<C>))
}

fn names(details: Vec<SchedulerDetail>) -> Vec<String> {
    details.into_iter().map(|detail| detail.disk).collect()
}

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

async fn scheduler<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<DiskScheduler>> {
    schedulers_of(&*control, query(disk)?.disk).await
}

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

async fn limits<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<DiskLimits>> {
    limits_of(&*control, query(disk)?.disk).await
}

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

async fn weights<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<DiskWeight>> {
    weights_of(&*control, query(disk)?.disk).await
}

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
