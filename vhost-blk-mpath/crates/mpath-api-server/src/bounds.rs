//! Decides: a change is refused on the read-only socket (`refuse_changes`).
//!
//! The bounds of every request, and the errors for unknown routes and methods.

use std::future::ready;
use std::time::Instant;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use mpath_api::PRODUCT;
use mpath_api::types::ErrorCode;
use tokio::time::timeout;

use super::caller::{caller, look_up};
use super::connections::Busy;
use super::error::{ApiError, ControlError};
use super::events::Places;
use super::{Limits, disks};

/// Adds limits, errors for unknown routes and methods, and the daemon's version. A client of another version can then name both
/// versions, even if the answer makes no sense to it.
pub(super) fn bounded(routes: Router, limits: Limits, version: Option<&str>, is_read_only: bool) -> Router {
    let version = version.and_then(|version| HeaderValue::from_str(&format!("{PRODUCT}/{version}")).ok());
    routes
        .fallback(unknown_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn(look_up))
        .layer(from_fn_with_state(is_read_only, refuse_changes))
        .layer(from_fn_with_state(limits, bound_request))
        .layer(Extension(Places::new(limits.followers, limits.stall)))
        .layer(from_fn(log_request))
        .layer(map_response(move |mut response: Response| {
            response.headers_mut().extend(version.clone().map(|version| (header::SERVER, version)));
            ready(response)
        }))
}

/// Refuses every request that may change something on a socket that only reads.
async fn refuse_changes(State(is_read_only): State<bool>, request: Request, next: Next) -> Response {
    if is_read_only && !request.method().is_safe() {
        let message = "this socket only reads; send changes to the socket `api` of the daemon's configuration";
        return ApiError::new(ErrorCode::ReadOnly, message).into_response();
    }
    next.run(request).await
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
