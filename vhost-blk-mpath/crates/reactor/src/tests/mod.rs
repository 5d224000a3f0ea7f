//! I/O threads with real sockets, against controllers without a target behind them.

mod deferred_answers;
mod faulted_memory;
mod half_close;
mod hedges;
mod lost_commands;
mod path_events;
mod shutdown;
mod silent_paths;
