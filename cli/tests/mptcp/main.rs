//! `mpathctl mptcp` in network namespaces of the tests' own.

// Clippy lets only `#[test]` functions unwrap, not what they share.
#![allow(missing_docs, clippy::unwrap_used)]

mod check;
mod follow;
mod namespace;
