//! Decides: the body of an API request is valid (`JsonBody`).
//!
//! The parts of a request, and the errors about them.

use std::str::FromStr;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, Path as RoutePath, Query, Request};
use mpath_api::types::{ErrorCode, PathSelector};
use mpath_config::{DiskName, LiveSetting, name_meant_key};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use utoipa::IntoParams;

use super::error::ApiError;

pub(super) type Answer<T> = Result<Json<T>, ApiError>;

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
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DiskQuery {
    /// The disk. If left out: every disk.
    #[param(value_type = Option<DiskName>, nullable = false)]
    pub(super) disk: Option<String>,
}

/// `?from-s=SECONDS&until-s=SECONDS`
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// Seconds since 1970-01-01T00:00:00Z. If left out: the beginning.
    #[param(nullable = false)]
    pub(super) from_s: Option<u32>,
    /// Seconds since 1970-01-01T00:00:00Z. If left out: now.
    #[param(nullable = false)]
    pub(super) until_s: Option<u32>,
}

/// `?disk=NAME&setting=SETTING`
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DisksQuery {
    /// The disk. If left out: every disk.
    #[param(value_type = Option<DiskName>, nullable = false)]
    pub(super) disk: Option<String>,
    /// Only disks that have this setting of their own. A disk that shares paths has only `limits` and `weight`.
    #[param(inline, nullable = false)]
    pub(super) setting: Option<LiveSetting>,
}

/// `?after=SEQ`
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    #[serde(default, deserialize_with = "number")]
    /// The number of the last event that is known. 0: all events.
    pub(super) after: u64,
}

/// `?force=true`
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ForceQuery {
    #[serde(default, deserialize_with = "true_or_false")]
    /// Whether to carry the request out although it is refused otherwise.
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
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PathQuery {
    /// The paths. If left out: all.
    #[param(nullable = false)]
    pub(super) path: Option<PathSelector>,
    /// The disk. If left out: every disk.
    #[param(value_type = Option<DiskName>, nullable = false)]
    pub(super) disk: Option<String>,
}

pub(super) fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, ApiError> {
    let Query(query) = query.map_err(|rejection| plain("query", &rejection.body_text()))?;
    Ok(query)
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
