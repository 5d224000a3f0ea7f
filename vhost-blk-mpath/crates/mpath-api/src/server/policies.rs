//! The routes of policies and of hedging.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use mpath_core::{PolicyChange, PolicyKind, PolicySpec};

use super::Control;
use super::disks::of_disks_with_paths;
use super::document::{Routes, routes};
use super::error::ApiError;
use super::paths::{paths_of, share};
use super::request::{Answer, DiskQuery, JsonBody, query};
use crate::types::{
    DiskHedge, DiskPolicy, ErrorCode, OpStats, Parameter, Path, PathView, Policy, PolicyDetail, PolicyInForce,
    SetHedge, SetPolicy,
};

pub(super) fn routes<C: Control>() -> Routes<Arc<C>> {
    routes!(C:
        policies [],
        policy [BadRequest, UnknownDisk, SharesPaths],
        policy_detail [BadRequest, UnknownDisk, SharesPaths],
        set_policy [BadRequest, UnknownDisk, SharesPaths],
        hedge [BadRequest, UnknownDisk, SharesPaths],
        set_hedge [BadRequest, UnknownDisk, SharesPaths],
    )
}

/// Every policy that this daemon has, with its parameters.
#[utoipa::path(get, path = "/v1/policies", responses((status = 200, body = Vec<Policy>)))]
async fn policies<C: Control>(State(control): State<Arc<C>>) -> Answer<Vec<Policy>> {
    let disks = of_disks_with_paths(control.status().await?.disks, None)?;
    let describe = |kind: PolicyKind| Policy {
        name: kind,
        aliases: kind.aliases().iter().map(ToString::to_string).collect(),
        description: kind.description().into(),
        params: Parameter::all(PolicySpec::from(kind).params()),
        active_on: disks.iter().filter(|d| d.policy.uses(kind)).map(|d| d.name.clone()).collect(),
    };
    Ok(Json(PolicyKind::ALL.into_iter().map(describe).collect()))
}

/// The policies in force.
#[utoipa::path(get, path = "/v1/policy", params(DiskQuery), responses((status = 200, body = Vec<DiskPolicy>)))]
async fn policy<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<DiskPolicy>> {
    Ok(Json(policies_of(&*control, query(disk)?.disk).await?))
}

/// The policy of a disk or of all.
async fn policies_of<C: Control>(control: &C, disk: Option<String>) -> Result<Vec<DiskPolicy>, ApiError> {
    let disks = of_disks_with_paths(control.status().await?.disks, disk)?;
    Ok(disks.into_iter().map(|disk| DiskPolicy { disk: disk.name, policy: disk.policy }).collect())
}

/// The policies in force with parameters and estimates of paths.
#[utoipa::path(get, path = "/v1/policy/detail", params(DiskQuery), responses((status = 200, body = Vec<PolicyDetail>)))]
async fn policy_detail<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<PolicyDetail>> {
    let disk = query(disk)?.disk;
    let paths = paths_of(&*control, disk.clone()).await?;
    let detail = |DiskPolicy { disk, policy }| PolicyDetail {
        policies: PolicyInForce::of(&policy),
        paths: views(&paths.iter().filter(|path| path.disk == disk).collect::<Vec<_>>()),
        disk,
    };
    Ok(Json(policies_of(&*control, disk).await?.into_iter().map(detail).collect()))
}

/// The paths of one disk as its policies see them.
fn views(paths: &[&Path]) -> Vec<PathView> {
    let mut views = Vec::new();
    for class in 0..3 {
        let total = |count: fn(&OpStats) -> u64| paths.iter().map(|path| count(path.classes()[class].1)).sum();
        let (total_1s, total_60s) = (total(|stats| stats.ios_1s), total(|stats| stats.ios_60s));
        for path in paths {
            let (name, stats) = path.classes()[class];
            views.push(PathView {
                class: name.into(),
                index: path.index,
                address: path.address.clone(),
                state: path.state,
                share_1s: share(stats.ios_1s, total_1s),
                share_60s: share(stats.ios_60s, total_60s),
                estimate: stats.estimate,
            });
        }
    }
    views
}

/// Sets the policy. Answers with the disks changed.
#[utoipa::path(put, path = "/v1/policy", request_body = SetPolicy, responses((status = 200, body = Vec<DiskPolicy>)))]
async fn set_policy<C: Control>(
    State(control): State<Arc<C>>,
    JsonBody(wanted): JsonBody<SetPolicy>,
) -> Answer<Vec<DiskPolicy>> {
    let params = wanted.params.iter().map(|(name, value)| (&**name, &**value));
    let change = PolicyChange::new(wanted.policy, wanted.class, params)
        .map_err(|error| ApiError::new(ErrorCode::BadRequest, error.to_string()))?;
    let policies = policies_of(&*control, wanted.disk.clone()).await?;
    let disks: Vec<_> = policies.into_iter().map(|policy| policy.disk).collect();
    control.set_policy(&disks, &change).await?;
    Ok(Json(policies_of(&*control, wanted.disk).await?))
}

/// The hedging of slow reads, and its results.
#[utoipa::path(get, path = "/v1/hedge", params(DiskQuery), responses((status = 200, body = Vec<DiskHedge>)))]
async fn hedge<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<DiskHedge>> {
    Ok(Json(hedges_of(&*control, query(disk)?.disk).await?))
}

/// The hedging of a disk or of all.
async fn hedges_of<C: Control>(control: &C, disk: Option<String>) -> Result<Vec<DiskHedge>, ApiError> {
    let disks = of_disks_with_paths(control.status().await?.disks, disk)?;
    Ok(disks.into_iter().map(|disk| DiskHedge { disk: disk.name, status: disk.hedge }).collect())
}

/// Sets the hedging. Answers with the disks changed.
#[utoipa::path(put, path = "/v1/hedge", request_body = SetHedge, responses((status = 200, body = Vec<DiskHedge>)))]
async fn set_hedge<C: Control>(
    State(control): State<Arc<C>>,
    JsonBody(wanted): JsonBody<SetHedge>,
) -> Answer<Vec<DiskHedge>> {
    if (wanted.hedge, wanted.hedge_budget) == (None, None) {
        return Err(ApiError::new(ErrorCode::BadRequest, "nothing to set; give hedge or hedge-budget"));
    }
    let hedges = hedges_of(&*control, wanted.disk.clone()).await?;
    let disks: Vec<_> = hedges.into_iter().map(|hedge| hedge.disk).collect();
    control.set_hedge(&disks, wanted.hedge, wanted.hedge_budget).await?;
    Ok(Json(hedges_of(&*control, wanted.disk).await?))
}
