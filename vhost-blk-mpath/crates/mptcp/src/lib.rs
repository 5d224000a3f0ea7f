//! The kernel's information about MPTCP connections and their subflows.
//!
//! [`connections`] asks over netlink (`NETLINK_SOCK_DIAG`), as `ss -Mni` and `ss -tnei` do. One dump lists the MPTCP sockets of the
//! network namespace, another one its TCP sockets, among them the subflows. A subflow has the inode of its MPTCP socket, which
//! every kernel shows to every user. Before Linux 6.15 the kernel shows the token of a subflow only to `CAP_NET_ADMIN`.
//!
//! A connection that this host requested as MPTCP, and that fell back to TCP, is an MPTCP socket with [`Connection::fallback`]. A
//! socket accepted from a peer that did not request MPTCP is plain TCP, and is not found.
//!
//! [`LinkMonitor`] receives the kernel's messages about network links (`NETLINK_ROUTE`), such as a lost carrier.
//!
//! Neither shows which subflows the kernel's scheduler considers stale, nor other network namespaces.

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

pub use assemble::connections;
pub use connection::{Connection, MptcpOptions, State, Subflow, Totals};
pub use dump::DiagError;
pub use linger::lingers_for;
pub use link::LinkEvent;
pub use monitor::{LinkMonitor, Woken};
pub use socket::{Unsupported, cookie_of, supported};
