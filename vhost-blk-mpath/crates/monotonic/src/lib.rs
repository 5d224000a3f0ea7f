//! Times of the monotonic clock in one word of nanoseconds, with the names of `std::time`.
//!
//! std's types have two words, so each comparison and subtraction takes two steps. These types compare and subtract in one.
//! A duration is at most 584 years. Where std panics, results saturate: an instant or duration is never too large or negative.

mod duration;
mod instant;

pub use self::duration::Duration;
pub use self::instant::Instant;

#[cfg(test)]
mod tests;
