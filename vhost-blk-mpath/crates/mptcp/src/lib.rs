//! The kernel's information about TCP and MPTCP connections and their subflows.
//!
//! [`mptcp_connections`] asks over netlink (`NETLINK_SOCK_DIAG`), as `ss -Mni` and `ss -tnei` do. One dump lists the MPTCP sockets of the
//! network namespace, another one its TCP sockets, among them the subflows. A subflow has the inode of its MPTCP socket, which
//! every kernel shows to every user. Before Linux 6.15 the kernel shows the token of a subflow only to `CAP_NET_ADMIN`.
//!
//! A connection that this host requested as MPTCP, and that fell back to TCP, is an MPTCP socket with [`Mptcp::fallback`]. A socket
//! accepted from a peer that did not request MPTCP is a TCP socket, which [`tcp_connections`] finds.
//!
//! [`LinkMonitor`] receives the kernel's messages about network links (`NETLINK_ROUTE`), such as a lost carrier.
//!
//! This crate does not show which subflows the kernel's scheduler considers stale, and shows no other network namespace.

#![forbid(unsafe_code)]

mod assemble;
mod connection;
mod dump;
mod info;
mod linger;
mod link;
mod message;
mod monitor;
mod record;
mod socket;

pub use assemble::{mptcp_connections, tcp_connections};
pub use connection::{Connection, Mptcp, MptcpOptions, State, Subflow, Totals};
pub use dump::DiagError;
pub use linger::lingers_for;
pub use link::LinkEvent;
pub use monitor::{LinkMonitor, Woken};
pub use socket::{Unsupported, cookie_of, supported};
