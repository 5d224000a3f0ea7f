//! The core's types in configuration and API, for the feature `api`.

mod kinds;
mod schema;

pub use kinds::{ParamText, ParamsSchema};
pub use schema::schema_of;
