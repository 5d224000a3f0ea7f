//! Tests of the core as its users see it: one small test per rule, random events, and policies in virtual time.

mod draining;
mod explanation;
mod group;
mod hedging;
mod injection;
mod random_events;
mod removal;
mod slow;
mod suspicion;
mod virtual_time;
