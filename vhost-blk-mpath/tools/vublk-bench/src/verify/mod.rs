//! Data verification: every block says where it belongs and which write it came from, a model in memory knows which
//! writes may legally be seen, and every read is held against both.

mod block;
mod model;
mod reader;
mod workload;

#[cfg(test)]
mod tests;

pub use reader::{Counts, Limits, Miscompare, Shared};
pub use workload::{ReadBack, Verifier};
