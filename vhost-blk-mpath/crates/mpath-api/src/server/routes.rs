//! The routes of the API, and the checks before the daemon is asked.

use std::collections::HashMap;
use std::future::ready;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, Path as RoutePath, Query, Request, State};
use axum::http::{HeaderValue, Method, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Json, Router};
use mpath_core::{PolicyChange, PolicyKind, PolicySpec};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use tokio::time::timeout;

use super::caller::caller;
use super::connections::Busy;
use super::disks::{of_disks, of_disks_with_paths};
use super::error::{ApiError, ControlError};
use super::metrics::metrics;
use super::{Control, EVENTS_WAIT_MAX_MS, Limits, PRODUCT, PathRef, configuration, disks, insight, scheduling};

use crate::config::Time;
use crate::text::name_meant_key;
use crate::types::{
    AddPath, ClearedFences, DiskFences, DiskHedge, DiskPolicy, ErrorCode, Events, InjectedMilliseconds, InjectedPath,
    InjectionInForce, OpStats, Parameter, Path, PathSelector, PathState, PathView, Policy, PolicyDetail, PolicyInForce,
    SetHedge, SetInjection, SetPolicy, Status, SteerPaths, Upgrade,
};

pub(super) type Answer<T> = Result<Json<T>, ApiError>;

pub(super) fn router<C: Control>(control: Arc<C>) -> Router {
    Router::new()
        .route("/v1/status", get(status::<C>))
        .route("/v1/paths", get(paths::<C>).put(steer::<C>))
        .merge(disks::routes())
        .route("/v1/fences", get(fences::<C>))
        .route("/v1/fences/{disk}", delete(clear_fences::<C>))
        .route("/v1/disks/{disk}/paths", post(add_path::<C>))
        .route("/v1/disks/{disk}/paths/{path}", delete(remove_path::<C>))
        .route("/v1/upgrade", post(upgrade::<C>))
        .route("/v1/events", get(events::<C>))
        .route("/v1/policies", get(policies::<C>))
        .route("/v1/policy/detail", get(policy_detail::<C>))
        .route("/v1/policy", get(policy::<C>).put(set_policy::<C>))
        .route("/v1/hedge", get(hedge::<C>).put(set_hedge::<C>))
        .merge(configuration::routes())
        .merge(insight::routes())
        .merge(scheduling::routes())
        .route("/v1/injections", get(injections::<C>).put(set_injection::<C>).delete(clear_injections::<C>))
        .route("/metrics", get(metrics::<C>))
        .with_state(control)
}

/// Adds limits, errors for unknown routes and methods, and the daemon's version. A client of another version can then name both
/// versions, even if the answer makes no sense to it.
pub(super) fn bounded(routes: Router, limits: Limits, version: Option<&str>) -> Router {
    let version = version.and_then(|version| HeaderValue::from_str(&format!("{PRODUCT}/{version}")).ok());
    routes
        .fallback(unknown_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(limits, bound_request))
        .layer(from_fn(log_request))
        .layer(map_response(move |mut response: Response| {
            response.headers_mut().extend(version.clone().map(|version| (header::SERVER, version)));
            ready(response)
        }))
}

/// Logs each request and its answer.
async fn log_request(request: Request, next: Next) -> Response {
    let (begun, method, route) = (Instant::now(), request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let (uid, elapsed_us) = (caller().map(|caller| caller.uid), begun.elapsed().as_micros() as u64);
    tracing::debug!(%method, route, status, elapsed_us, uid, "API request");
    response
}

/// Reads the whole body within its limits, then limits the time for the answer.
async fn bound_request(
    State(limits): State<Limits>,
    Extension(busy): Extension<Busy>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let too_large = || {
        let message = format!("the body of a request is at most {} bytes; send less", limits.body_bytes);
        ApiError::new(ErrorCode::BodyTooLarge, message).into_response()
    };
    let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    if announced.and_then(|v| v.parse::<usize>().ok()).is_some_and(|n| n > limits.body_bytes) {
        return too_large();
    }
    let body = match timeout(limits.body, to_bytes(body, limits.body_bytes)).await {
        Ok(Ok(body)) => body,
        // Too long, or the client has closed the connection and gets no answer.
        Ok(Err(_)) => return too_large(),
        Err(_) => {
            let message = "the body of the request did not arrive in time";
            return ApiError::new(ErrorCode::RequestTimeout, message).into_response();
        }
    };
    busy.set();
    let (time, error) = if disks::takes_long(&parts.method, &parts.uri) {
        (limits.disks, ControlError::StillRunning)
    } else {
        (limits.control, ControlError::Unresponsive)
    };
    let request = Request::from_parts(parts, Body::from(body));
    timeout(time, next.run(request)).await.unwrap_or_else(|_| ApiError::from(error).into_response())
}

async fn unknown_route(uri: Uri) -> ApiError {
    ApiError::new(ErrorCode::UnknownRoute, format!("unknown route {}", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(ErrorCode::MethodNotAllowed, message)
}

/// A JSON body. The content type is ignored: `curl -d` sends another one.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let body = Bytes::from_request(request, &())
            .await
            .map_err(|rejection| ApiError::new(ErrorCode::BadRequest, rejection.body_text()))?;
        let mut json = serde_json::Deserializer::from_slice(&body);
        // serde_json's own errors do not name the key.
        let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| error.to_string());
        let parsed = parsed.and_then(|parsed| json.end().map(|()| parsed).map_err(|error| error.to_string()));
        let refused = |error: String| format!("body: {}", name_meant_key(&error));
        Ok(Self(parsed.map_err(|error| ApiError::new(ErrorCode::BadRequest, refused(error)))?))
    }
}

/// `?disk=NAME`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DiskQuery {
    pub(super) disk: Option<String>,
}

/// `?after=SEQ&wait=TIME`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    #[serde(default, deserialize_with = "number")]
    after: u64,
    wait: Option<Time<0, EVENTS_WAIT_MAX_MS>>,
}

/// `?force=true`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForceQuery {
    #[serde(default, deserialize_with = "true_or_false")]
    pub(super) force: bool,
}

fn number<'de, D: Deserializer<'de>>(value: D) -> Result<u64, D::Error> {
    parsed(value, "the number of an event, or 0 for all")
}

pub(super) fn true_or_false<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    parsed(value, "true or false")
}

/// Parses a value of a query. The error has the value and what is expected.
fn parsed<'de, D: Deserializer<'de>, T: FromStr>(value: D, expected: &str) -> Result<T, D::Error> {
    let text = String::deserialize(value)?;
    text.parse().map_err(|_| D::Error::custom(format_args!("`{text}` is not {expected}")))
}

/// `?path=SELECTOR&disk=NAME`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathQuery {
    path: Option<PathSelector>,
    disk: Option<String>,
}

pub(super) fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, ApiError> {
    let Query(query) = query.map_err(|rejection| plain("query", &rejection.body_text()))?;
    Ok(query)
}

async fn status<C: Control>(State(control): State<Arc<C>>) -> Answer<Status> {
    Ok(Json(control.status().await?))
}

async fn paths<C: Control>(
    State(control): State<Arc<C>>,
    wanted: Result<Query<PathQuery>, QueryRejection>,
) -> Answer<Vec<Path>> {
    let wanted = query(wanted)?;
    Ok(Json(select(&*control, &wanted.path.unwrap_or(PathSelector::All), wanted.disk).await?))
}

async fn steer<C: Control>(State(control): State<Arc<C>>, JsonBody(wanted): JsonBody<SteerPaths>) -> Answer<Vec<Path>> {
    let paths = changeable(&*control, &wanted.path, wanted.disk.clone()).await?;
    control.steer(&refs(&paths), wanted.action, wanted.force).await?;
    Ok(Json(select(&*control, &wanted.path, wanted.disk).await?))
}

pub(super) fn route<T>(path: Result<RoutePath<T>, PathRejection>) -> Result<T, ApiError> {
    let RoutePath(path) = path.map_err(|rejection| plain("route", &rejection.body_text()))?;
    Ok(path)
}

/// The error about a part of the URL, without the words of the library.
fn plain(part: &str, rejection: &str) -> ApiError {
    let library_words = ["Failed to deserialize query string: ", "Invalid URL: "];
    let reason = library_words.iter().find_map(|words| rejection.strip_prefix(words)).unwrap_or(rejection);
    let reason = match reason.split_once("unknown field ") {
        Some((_, unknown)) => format!("unknown parameter {}", unknown.replacen(", expected ", "; known: ", 1)),
        None => reason.to_owned(),
    };
    ApiError::new(ErrorCode::BadRequest, format!("{part}: {reason}"))
}

async fn add_path<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<RoutePath<String>, PathRejection>,
    JsonBody(wanted): JsonBody<AddPath>,
) -> Answer<Path> {
    let disk = route(disk)?;
    of_disks_with_paths(control.status().await?.disks, Some(disk.clone()))?;
    let added = control.add_path(&disk, wanted.address).await?;
    let paths = paths_of(&*control, Some(added.disk.clone())).await?;
    // Another client may have removed it meanwhile.
    let gone = || ControlError::UnknownPath { disk: added.disk.clone(), index: added.index };
    Ok(Json(paths.into_iter().find(|path| path.index == added.index).ok_or_else(gone)?))
}

/// Answers with the selected paths that are not gone yet.
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

async fn fences<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<DiskFences>> {
    let mut fences = control.fences().await?;
    if let Some(disk) = query(disk)?.disk {
        of_disks(control.status().await?.disks, Some(disk.clone()))?;
        fences.retain(|of| of.disk == disk);
    }
    Ok(Json(fences))
}

/// Answers when the new process is ready to take over.
async fn upgrade<C: Control>(
    State(control): State<Arc<C>>,
    wanted: Result<Query<ForceQuery>, QueryRejection>,
) -> Answer<Upgrade> {
    let ForceQuery { force } = query(wanted)?;
    Ok(Json(control.upgrade(force).await?))
}

async fn clear_fences<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<RoutePath<String>, PathRejection>,
    wanted: Result<Query<ForceQuery>, QueryRejection>,
) -> Answer<ClearedFences> {
    let (disk, ForceQuery { force }) = (route(disk)?, query(wanted)?);
    of_disks(control.status().await?.disks, Some(disk.clone()))?;
    Ok(Json(control.clear_fences(&disk, force).await?))
}

async fn events<C: Control>(
    State(control): State<Arc<C>>,
    wanted: Result<Query<EventsQuery>, QueryRejection>,
) -> Answer<Events> {
    let EventsQuery { after, wait } = query(wanted)?;
    let wait = wait.map_or(Duration::ZERO, Time::duration);
    Ok(Json(control.events(after, wait).await?))
}

/// The paths of a disk or of all, with their shares of the I/Os.
async fn paths_of<C: Control>(control: &C, disk: Option<String>) -> Result<Vec<Path>, ApiError> {
    let mut paths = control.paths().await?;
    if let Some(disk) = disk {
        paths.retain(|path| path.disk == disk);
        // A disk may have no paths left.
        if paths.is_empty() {
            of_disks_with_paths(control.status().await?.disks, Some(disk))?;
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
fn share(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

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

async fn injections<C: Control>(
    State(control): State<Arc<C>>,
    disk: Result<Query<DiskQuery>, QueryRejection>,
) -> Answer<Vec<InjectedPath>> {
    let paths = paths_of(&*control, query(disk)?.disk).await?;
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

async fn set_injection<C: Control>(
    State(control): State<Arc<C>>,
    JsonBody(wanted): JsonBody<SetInjection>,
) -> Answer<Vec<InjectedPath>> {
    let mut paths = changeable(&*control, &wanted.path, wanted.disk).await?;
    let time = wanted.for_ms.map(InjectedMilliseconds::duration);
    control.set_injection(&refs(&paths), wanted.injection, time).await?;
    let set = InjectionInForce { injection: wanted.injection, ends_in_ms: wanted.for_ms.map(Into::into) };
    for path in &mut paths {
        path.injections = vec![set];
    }
    Ok(Json(paths.into_iter().flat_map(injected).collect()))
}

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
