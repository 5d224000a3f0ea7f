//! The routes of schedulers.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use mpath_api::types::{Parameter, Scheduler, SchedulerDetail};
use mpath_core::{SchedulerKind, SchedulerSpec};

use super::Control;
use super::disks::{of_disks, of_disks_with_paths};
use super::document::{Routes, routes};
use super::request::{Answer, DiskQuery, query};

pub(super) fn routes<C: Control>() -> Routes<Arc<C>> {
    routes!(C:
        schedulers [],
        scheduler_detail [BadRequest, UnknownDisk],
    )
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
