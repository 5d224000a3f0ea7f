//! The real `mpathctl` against the real server over a real Unix socket.

// Clippy lets only `#[test]` functions unwrap, not what they share.
#![allow(missing_docs, clippy::unwrap_used)]

mod config;
mod daemon;
mod diagnostics;
mod disks;
mod docs;
mod events;
mod fake;
mod history;
mod paths;
mod screen;
mod settings;
mod terminal;
mod top;
mod usage;
