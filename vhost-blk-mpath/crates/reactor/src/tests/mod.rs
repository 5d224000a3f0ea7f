//! I/O threads with real sockets, against controllers without a target behind them.

mod deferred_answers;
mod drain;
mod faulted_memory;
mod hedges;
mod lost_commands;
mod path_events;
mod shutdown;
mod silent_paths;
