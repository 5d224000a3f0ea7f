//! Data verification. Every block names its place and the write that it came from. A model in memory knows which writes a read
//! may legally see. Every read is compared with both.

mod block;
mod model;
mod reader;
mod workload;

#[cfg(test)]
mod tests;

pub use reader::{Counts, Limits, Miscompare, Shared};
pub use workload::{ReadBack, Verifier};
