//! The paths of a subsystem: how they come, live, are lost and go.

mod duplicate;
mod events;
pub(crate) mod fence;
mod membership;
pub(crate) mod steering;
mod task;
