//! The target, in this process, on an address of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering};

use mpath_target::{ListenerConfig, NamespaceConfig, TargetConfig, TargetServer};
use socket2::{Domain, Socket, Type};

pub(crate) const NQN: &str = "nqn.2014-08.org.example:daemon-tests";
const NAMESPACE_BYTES: u64 = 64 << 20;

/// A loopback address that nothing else in this process uses, so that a port that is free for a moment stays free.
pub(crate) fn own_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(last < u8::MAX, "out of addresses");
    (Ipv4Addr::new(127, high, low, last), 0).into()
}

/// An address where connecting is refused, for as long as the socket is kept: it is bound and does not listen.
pub(crate) fn refusing_address() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&own_address().into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

pub(crate) struct Target(TargetServer);

impl Target {
    /// One namespace of 64 MiB behind so many listeners.
    pub(crate) fn start(listeners: usize) -> Self {
        Self::with(listeners, |_| {})
    }

    pub(crate) fn with(listeners: usize, change: impl FnOnce(&mut TargetConfig)) -> Self {
        let mut config = TargetConfig::new(NQN);
        let address = own_address();
        config.listeners = vec![ListenerConfig::new(address); listeners];
        config.namespaces = vec![NamespaceConfig::memory(NAMESPACE_BYTES)];
        change(&mut config);
        Self(TargetServer::start(config).unwrap())
    }
}

impl Deref for Target {
    type Target = TargetServer;
    fn deref(&self) -> &TargetServer {
        &self.0
    }
}
