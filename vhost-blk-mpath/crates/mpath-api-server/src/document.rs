//! Decides: a route is served, and is in the OpenAPI document (`routes`).
//!
//! The routes together with their OpenAPI document, so that no route is missing from it.

use std::collections::BTreeMap;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use mpath_api::types::{ErrorBody, ErrorCode, ErrorInfo};
use mpath_core::api::schema_of;
use serde_json::json;
use utoipa::__dev::SchemaReferences;
use utoipa::PartialSchema;
use utoipa::openapi::content::Content;
use utoipa::openapi::path::{HttpMethod, Operation, Paths};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Components, Info, OpenApi, Ref, RefOr, Response};

/// The errors that any request may get.
const COMMON_ERRORS: [ErrorCode; 3] = [ErrorCode::RequestTimeout, ErrorCode::BodyTooLarge, ErrorCode::Unavailable];

/// Routes, and their part of the document.
pub(super) struct Routes<S> {
    router: Router<S>,
    paths: Paths,
    schemas: Vec<(String, RefOr<Schema>)>,
    /// Error answers by name. Operations with the same errors share one.
    errors: BTreeMap<String, RefOr<Response>>,
}

/// The routes of handlers with `#[utoipa::path]`, each with its kinds of errors besides [`COMMON_ERRORS`].
macro_rules! routes {
    ($control:ident: $($handler:ident [$($error:ident),*],)*) => {
        pastey::paste! {
            $crate::document::Routes::new()
                $(.on::<[<__path_ $handler>], _, _>($handler::<$control>, &[$(mpath_api::types::ErrorCode::$error),*]))*
        }
    };
}

pub(super) use routes;

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    pub(super) fn new() -> Self {
        let mut schemas = vec![
            (<ErrorBody as utoipa::ToSchema>::name().into(), ErrorBody::schema()),
            (<ErrorInfo as utoipa::ToSchema>::name().into(), ErrorInfo::schema()),
        ];
        <ErrorInfo as utoipa::ToSchema>::schemas(&mut schemas);
        Self { router: Router::new(), paths: Paths::new(), schemas, errors: BTreeMap::new() }
    }

    /// Adds a route that `D` describes.
    // By value, because axum takes handlers by value.
    #[allow(clippy::needless_pass_by_value)]
    pub(super) fn on<D, H, T>(mut self, handler: H, errors: &[ErrorCode]) -> Self
    where
        D: utoipa::Path + SchemaReferences,
        H: Handler<T, S>,
        T: 'static,
    {
        let (path, mut operation) = (D::path(), D::operation());
        for answer in operation.responses.responses.values_mut() {
            if let RefOr::T(answer) = answer {
                answer.description = "Success.".into();
            }
        }
        let read_only = D::methods().iter().any(|method| *method != HttpMethod::Get).then_some(ErrorCode::ReadOnly);
        self.add_errors(&mut operation, errors.iter().copied().chain(read_only));
        for method in D::methods() {
            self.router = self.router.route(&path, on(filter(&method), handler.clone()));
            self.paths.add_path_operation(&path, vec![method], operation.clone());
        }
        D::schemas(&mut self.schemas);
        self
    }

    /// Describes the answers with these errors and [`COMMON_ERRORS`], by status.
    fn add_errors(&mut self, operation: &mut Operation, errors: impl Iterator<Item = ErrorCode>) {
        let mut by_status: BTreeMap<u16, BTreeMap<String, ErrorCode>> = BTreeMap::new();
        for error in errors.chain(COMMON_ERRORS) {
            let code = json!(error).as_str().unwrap_or_default().to_owned();
            by_status.entry(error.status()).or_default().insert(code, error);
        }
        for (status, errors) in by_status {
            let codes: Vec<_> = errors.keys().collect();
            let words: Vec<_> = errors.iter().map(|(code, error)| format!("`{code}`: {}.", error.meaning())).collect();
            let mut answer = Response::new(words.join(" "));
            let body = json!({
                "allOf": [
                    {"$ref": "#/components/schemas/ErrorBody"},
                    {"properties": {"error": {"properties": {"code": {"enum": codes}}}}},
                ],
            });
            answer.content.insert("application/json".into(), RefOr::T(Content::new(Some(schema_of(body)))));
            let name = codes.iter().map(|code| code.as_str()).collect::<Vec<_>>().join(".");
            operation.responses.responses.insert(status.to_string(), RefOr::Ref(Ref::from_response_name(&name)));
            self.errors.insert(name, RefOr::T(answer));
        }
    }

    pub(super) fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.paths.merge(other.paths);
        self.schemas.extend(other.schemas);
        self.errors.extend(other.errors);
        self
    }

    pub(super) fn router(self) -> Router<S> {
        self.router
    }

    /// The document as text, with its keys in alphabetical order.
    pub(super) fn document(self) -> String {
        let mut info = Info::new("vhost-blk-mpath", "1");
        info.description = Some(
            "The control API of vhost-blk-mpath: HTTP/1.1 on a Unix socket, with JSON. Answers may have more keys in later versions.".into(),
        );
        let mut document = OpenApi::new(info, self.paths);
        let mut components = Components::new();
        components.schemas = self.schemas.into_iter().collect::<BTreeMap<_, _>>();
        components.responses = self.errors;
        document.components = Some(components);
        // A `Value` sorts keys. The library keeps some of them in no order.
        let document = serde_json::to_value(document).expect("the document is JSON");
        format!("{document:#}\n")
    }
}

fn filter(method: &HttpMethod) -> MethodFilter {
    match method {
        HttpMethod::Get => MethodFilter::GET,
        HttpMethod::Put => MethodFilter::PUT,
        HttpMethod::Post => MethodFilter::POST,
        HttpMethod::Delete => MethodFilter::DELETE,
        HttpMethod::Head => MethodFilter::HEAD,
        HttpMethod::Patch => MethodFilter::PATCH,
        HttpMethod::Options => MethodFilter::OPTIONS,
        HttpMethod::Trace => MethodFilter::TRACE,
    }
}
