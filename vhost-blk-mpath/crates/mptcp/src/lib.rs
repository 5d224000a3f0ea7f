//! The kernel's information about MPTCP connections and their subflows.
//!
//! This crate asks over netlink (`NETLINK_SOCK_DIAG`), as `ss -Mni` and `ss -tnei` do. One answer lists the MPTCP sockets of the
//! network namespace. Another answer lists its TCP sockets, among them the subflows. A subflow bears the inode of the socket it
//! belongs to, which every kernel shows to every user. The token of a subflow is not needed; before Linux 6.15 the kernel shows
//! it only to `CAP_NET_ADMIN`.
//!
//! A connection that fell back to TCP is among the MPTCP sockets with [`Connection::fallback`], if it is ours that asked for
//! MPTCP. A socket accepted from a peer that did not ask is plain TCP, and is not found.
//!
//! [`LinkMonitor`] waits for what the kernel tells of network links (`NETLINK_ROUTE`): a carrier that is lost or back.
//!
//! The kernel does not tell here which subflows its scheduler holds for stale, nor of connections in other network namespaces.

#![forbid(unsafe_code)]

mod assemble;
mod connection;
mod dump;
mod info;
mod linger;
mod link;
mod monitor;
mod netlink;
mod record;
mod socket;

pub use assemble::connections;
pub use connection::{Connection, MptcpOptions, State, Subflow, Totals};
pub use dump::DiagError;
pub use linger::lingers_for;
pub use link::LinkEvent;
pub use monitor::{LinkMonitor, Woken};
pub use netlink::Malformed;
pub use socket::{Unsupported, cookie_of, supported};
