//! What the control thread tells I/O threads (crate `reactor`), and what it hears of them.

pub(crate) mod injection;
pub(crate) mod reports;
