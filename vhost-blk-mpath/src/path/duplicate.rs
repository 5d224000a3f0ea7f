//! Detects two paths to one port of the target, for example by name and by IP address.
//!
//! Such paths are lost together and give no redundancy. This is a warning and not an error, because a name may resolve
//! to another address later. The warning is logged whenever the second path becomes live.

use std::net::{IpAddr, SocketAddr};

use mpath_api::types::PathState;
use mpath_config::PathAddress;
use mpath_core::PathId;
use mpath_lifecycle::CONNECT_MAX;
use tokio::time::timeout;

use crate::subsystem::Subsystem;
use crate::transport::socket_addresses;

/// Compares a path that has become live with the other live paths. Names are looked up in the background.
///
/// Call this within the daemon's runtime.
pub(crate) fn check(subsystem: &Subsystem, path: PathId) {
    let (address, others) = {
        let state = subsystem.state();
        let Some(status) = state.path(path) else { return };
        // A path from another local end is another path, and is not compared.
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
                    path = %address,
                    "{address} and path {other}, {there}, both resolve to {shared}: two paths to the same port give no redundancy; if that is \
                     the case, remove one with `mpathctl path remove`"
                );
            }
        }
    });
}

/// The socket addresses in canonical form; empty if the look-up fails. A live connection does not need it.
async fn resolve(address: &PathAddress) -> Vec<SocketAddr> {
    let found = timeout(CONNECT_MAX.into(), socket_addresses(address)).await;
    found.ok().and_then(Result::ok).unwrap_or_default().into_iter().map(canonical).collect()
}

/// Converts `::ffff:127.0.0.1` to 127.0.0.1. IPv6 scopes are kept: one link-local address on two links is two ports.
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
