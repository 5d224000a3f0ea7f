//! Schemas for the OpenAPI document, of types whose serde code is hand-written.

use serde_json::Value;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{Object, Schema, SchemaType};

/// Gives a type, perhaps with constants as parameters, a named schema as JSON.
#[macro_export]
macro_rules! json_schema {
    ([$($parameters:tt)*] $type:ty, $name:expr, $json:expr) => {
        impl<$($parameters)*> utoipa::PartialSchema for $type {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $crate::api::schema_of($json)
            }
        }
        impl<$($parameters)*> utoipa::ToSchema for $type {
            fn name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
        }
    };
    ($type:ty, $name:expr, $json:expr) => {
        $crate::json_schema!([] $type, $name, $json);
    };
}

/// The schema that this JSON object is. The library writes keys that it does not know as they are.
#[must_use]
pub fn schema_of(json: Value) -> RefOr<Schema> {
    let Value::Object(keys) = json else { panic!("{json} is no schema") };
    let mut schema = Object::with_type(SchemaType::AnyValue);
    schema.extensions = Some(keys.into_iter().collect());
    RefOr::T(Schema::Object(schema))
}
