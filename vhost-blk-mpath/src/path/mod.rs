//! The paths of a subsystem: tasks, fences, adding and removing, the operator's actions.

pub(crate) mod actions;
mod duplicate;
mod events;
pub(crate) mod fence;
mod half_closed_socket;
mod membership;
mod surroundings;
mod task;
