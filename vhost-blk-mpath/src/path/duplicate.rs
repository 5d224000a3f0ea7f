//! One port of the target under two addresses, such as a name and the IP address it stands for.
//!
//! Two such paths are no redundancy: they are lost together. It is no error either, since what a name stands for may change,
//! and so it is one line in the log whenever the second of them becomes live.

use std::net::{IpAddr, SocketAddr};

use mpath_api::PathAddress;
use mpath_api::types::PathState;
use mpath_core::PathId;
use mpath_host::CONNECT_MAX;
use tokio::time::timeout;

use crate::subsystem::Subsystem;
use crate::transport::socket_addresses;

/// Compares a path that has become live with the disk's other live ones. Names are looked up, but nobody waits for that.
///
/// To be called within the daemon's runtime.
pub(crate) fn check(subsystem: &Subsystem, path: PathId) {
    let (address, others) = {
        let state = subsystem.state();
        let Some(status) = state.path(path) else { return };
        // From another end of this host it is another way.
        let as_close = |other: &PathAddress| other.local() == status.address.local();
        let others = state.paths().filter(|other| other.id != path && other.state == PathState::Live);
        let others = others.filter(|other| as_close(&other.address));
        (status.address.clone(), others.map(|other| (other.id, other.address.clone())).collect::<Vec<_>>())
    };
    let disk = subsystem.config.name.clone();
    tokio::spawn(async move {
        let ours = resolve(&address).await;
        for (PathId(other), there) in others {
            if let Some(shared) = resolve(&there).await.into_iter().find(|at| ours.contains(at)) {
                tracing::warn!(
                    %disk,
                    path = path.0,
                    %address,
                    "{address} and path {other}, {there}, both stand for {shared}: they are no redundancy if they lead to the \
                     same port; remove one with `mpathctl path remove`"
                );
            }
        }
    });
}

/// In one form each, however they are written. None if the look-up fails: the connection that is there needs it no more.
async fn resolve(address: &PathAddress) -> Vec<SocketAddr> {
    let found = timeout(CONNECT_MAX, socket_addresses(address)).await;
    found.ok().and_then(Result::ok).unwrap_or_default().into_iter().map(canonical).collect()
}

/// `::ffff:127.0.0.1` is 127.0.0.1. A scope is left: the same link-local address on two links is two ports.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_one_form() {
        let canonical = |text: &str| canonical(text.parse().unwrap()).to_string();
        assert_eq!(canonical("[::ffff:127.0.0.1]:4420"), "127.0.0.1:4420");
        assert_eq!(canonical("127.0.0.1:4420"), "127.0.0.1:4420");
        assert_eq!(canonical("[fe80::1%3]:4420"), "[fe80::1%3]:4420");
    }
}
