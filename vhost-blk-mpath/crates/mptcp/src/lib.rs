//! What the kernel tells of MPTCP connections and their subflows.
//!
//! Asked over netlink (`NETLINK_SOCK_DIAG`), as `ss -Mni` and `ss -tnei` do: one answer lists the MPTCP sockets of the network
//! namespace, another its TCP sockets, among them the subflows. A subflow bears the inode of the socket it belongs to, which
//! every kernel shows to everybody; its token (shown before Linux 6.15 only to `CAP_NET_ADMIN`) is not needed.
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
