//! The paths of a subsystem: tasks, fences, adding and removing, the operator's actions.

pub(crate) mod actions;
mod draining_socket;
mod duplicate;
mod events;
pub(crate) mod fence;
mod membership;
mod surroundings;
mod task;
