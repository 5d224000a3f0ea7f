//! The routes of policies.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use mpath_api::types::{Disk, OpStats, Parameter, Path, PathView, Policy, PolicyDetail, PolicyInForce};
use mpath_config::LiveSetting;
use mpath_core::{PolicyKind, PolicySpec};

use super::Control;
use super::disks::{of_disks_with_paths, owner};
use super::document::{Routes, routes};
use super::paths::{paths_of, share};
use super::request::{Answer, DiskQuery, query};

pub(super) fn routes<C: Control>() -> Routes<Arc<C>> {
    routes!(C:
        policies [],
        policy_detail [BadRequest, UnknownDisk, SharesPaths],
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

/// The policies in force with parameters and estimates of paths.
#[utoipa::path(get, path = "/v1/policy/detail", params(DiskQuery), responses((status = 200, body = Vec<PolicyDetail>)))]
async fn policy_detail<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<PolicyDetail>> {
    let disk = owner(&*control, query(disk)?.disk);
    let paths = paths_of(&*control, disk.clone()).await?;
    let detail = |disk: Disk| PolicyDetail {
        policies: PolicyInForce::of(&disk.policy),
        changed: disk.last_change(LiveSetting::Policy).cloned(),
        paths: views(&paths.iter().filter(|path| path.disk == disk.name).collect::<Vec<_>>()),
        disk: disk.name,
    };
    Ok(Json(of_disks_with_paths(control.status().await?.disks, disk)?.into_iter().map(detail).collect()))
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
