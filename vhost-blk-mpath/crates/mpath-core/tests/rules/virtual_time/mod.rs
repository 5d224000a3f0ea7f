//! Policies against modelled paths in virtual time: seconds of I/O in milliseconds, with the same result on every
//! run.

mod latency_rr;
mod rules;
mod sim;
mod switching;
