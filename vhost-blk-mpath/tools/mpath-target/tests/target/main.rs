//! Integration tests of the target over real sockets, with the project's own host.

#![allow(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod answers;
#[path = "../common/mod.rs"]
mod common;
mod concat;
mod discovery;
mod faults;
mod hold;
mod io;
mod namespaces;
mod paths;
mod program;
