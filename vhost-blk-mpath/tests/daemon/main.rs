//! Integration tests of the daemon over real sockets. The target runs in this process, and front-ends have no guest.

#![allow(clippy::unwrap_used)] // a panic is the right end here

mod ana;
mod bad_input;
mod crash;
mod cross_reset;
mod ctrl_loss;
mod daemon_replacement;
mod dhchap;
mod discovery;
mod disk_isolation;
mod disks;
mod drain_fence;
mod explanations;
mod failover;
mod fault_table;
mod fence;
mod front_ends;
mod grey_paths;
#[allow(dead_code)] // the rest of it is for the crate that it is from
#[path = "../../crates/vhost-user-blk/tests/sockets/guest/mod.rs"]
mod guest;
mod health;
mod hedge;
mod history;
mod hostile_guest;
mod inherited_fence;
mod injection;
mod latencies;
mod live_disks;
mod log;
mod lost_commands;
mod membership;
mod memory;
mod metrics;
mod metrics_address;
mod open_files;
mod path_actions;
mod policies;
mod policy_changes;
mod polling;
mod reload;
mod removal_in_doubt;
mod resize;
mod sandbox;
mod scheduler;
mod sharing;
mod shown_disk;
mod shutdown;
mod slow;
mod socket_access;
mod socket_activation;
mod stalled_host;
mod start;
mod statuses;
mod support;
mod tls;
mod transport;
mod upgrade;
mod usdt;
mod vendor_window;
mod wrong_namespace_or_digest;
