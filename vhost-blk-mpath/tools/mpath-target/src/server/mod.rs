//! The server: the threads and sockets of a target.

mod association;
mod connection;
mod connection_registry;
mod delay_queue;
mod discovery;
mod execute;
mod faults;
mod held_commands;
mod listener;
mod orphaned_commands;
mod rate_limiter;
mod settings;
mod shared;
mod status;
mod stream;
mod waker;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mpath_config::address::Transport;
use nvme_tcp::wire::{AnaState, Nqn};
use nvme_tcp_target::{Namespace, QueueLimits, Subsystem, SubsystemConfig};

use crate::config::{Backing, ConfigError, ListenerConfig, NamespaceConfig, TargetConfig};
use crate::identity;
use crate::setting::{Setting, SettingError};
use crate::storage::{FileError, FileStore, MemoryStore, Store};
use crate::tls_key::SubsystemKey;
use discovery::Discovery;
use listener::Listener;
use shared::{PortSecurity, Shared};
pub use status::{AnaGroupStatus, DiscoveryStatus, ListenerStatus};

/// The most entries of a queue: more than any host keeps in flight on one connection.
const MAX_ENTRIES: u16 = 128;
/// The most I/O queues of a controller.
const MAX_IO_QUEUES: u16 = 128;

/// Why a target or a listener does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot listen on {addr}{}: {source}", for_transport(*transport))]
    Listen { addr: SocketAddr, transport: Transport, source: io::Error },
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("cannot start serving: {0}")]
    System(#[from] io::Error),
}

fn for_transport(transport: Transport) -> &'static str {
    if transport == Transport::Mptcp { " for MPTCP" } else { "" }
}

/// A running target. It ends when it is dropped.
pub struct TargetServer {
    shared: Arc<Shared>,
    nqn: Nqn,
    block_size: u32,
    listeners: Vec<Listener>,
    discovery: Option<Discovery>,
}

impl TargetServer {
    /// Opens the namespaces and starts to listen on all addresses. A failure releases everything, but new files stay.
    pub fn start(config: TargetConfig) -> Result<Self, StartError> {
        config.validate()?;
        let TargetConfig {
            nqn,
            listeners,
            namespaces,
            block_size,
            anatt_seconds,
            max_connections,
            discovery,
            referrals,
            tls_key,
            discovery_tls_key,
            authentication,
        } = config;
        let nqn = Nqn::new(nqn.as_str()).map_err(|_| ConfigError::Nqn(nqn))?;
        let bind_listener = |listener: &ListenerConfig| listener::bind(listener.addr, listener.transport);
        let sockets = listeners.iter().map(bind_listener).collect::<Result<Vec<_>, _>>()?;
        let discovery = discovery.map(|addr| listener::bind(addr, Transport::Tcp)).transpose()?;
        let opened = namespaces.into_iter().map(|namespace| open_namespace(nqn.as_str(), block_size, namespace));
        let (namespaces, stores) = opened.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let seed = identity::new_uuid().as_u64_pair().1;
        let concatenates = authentication.as_ref().is_some_and(|side| side.concatenation.is_requested());
        let subsystem = Subsystem::new(SubsystemConfig {
            nqn: nqn.clone(),
            serial: identity::serial_number(nqn.as_str()),
            namespaces,
            ports: vec![AnaState::Optimized; listeners.len()],
            limits: QueueLimits::default(),
            max_entries: MAX_ENTRIES,
            keeps_flow_control: false,
            max_io_queues: MAX_IO_QUEUES,
            anatt_seconds,
            seed,
            authentication,
        });
        let security = match tls_key {
            Some(psk) => PortSecurity::Tls(Arc::new(SubsystemKey { psk, nqn: nqn.clone() })),
            None if concatenates => PortSecurity::Concatenation(Arc::default()),
            None => PortSecurity::ClearText,
        };
        let shared = Arc::new(Shared::new(subsystem, stores, max_connections));
        let mut server = Self { shared, nqn: nqn.clone(), block_size, listeners: Vec::new(), discovery: None };
        for (index, ((socket, addr), config)) in sockets.into_iter().zip(&listeners).enumerate() {
            let at = (addr, config.transport);
            let security = if config.is_clear_text { PortSecurity::ClearText } else { security.clone() };
            // The index fits: there are at most `MAX_LISTENERS`.
            let listener = Listener::new(at, config.advertise.unwrap_or(addr), index as u16 + 1, index, security);
            let mut is_listening = true;
            for setting in &config.settings {
                match setting {
                    Setting::Listen(on) => is_listening = *on,
                    setting => listener.apply(&server.shared, setting)?,
                }
            }
            if is_listening {
                listener.listen(&server.shared, socket)?;
            }
            server.listeners.push(listener);
        }
        if let Some((socket, addr)) = discovery {
            let security = match discovery_tls_key {
                Some(psk) => PortSecurity::Tls(Arc::new(SubsystemKey { psk, nqn: Nqn::discovery() })),
                None => PortSecurity::ClearText,
            };
            server.discovery = Some(Discovery::new(addr, nqn, referrals, !seed, security));
            // The log is complete before the first host can connect.
            server.update_discovery_log();
            if let Some(discovery) = &server.discovery {
                discovery.listener.listen(&discovery.shared, socket)?;
            }
        }
        Ok(server)
    }

    pub fn nqn(&self) -> &str {
        self.nqn.as_str()
    }

    /// The addresses of the listeners, in the order of the configuration. Port 0 is replaced by the real port.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|listener| listener.addr).collect()
    }

    /// The address of the discovery service, if there is one.
    pub fn discovery_addr(&self) -> Option<SocketAddr> {
        self.discovery.as_ref().map(|discovery| discovery.listener.addr)
    }

    /// How a listener secures its connections: `tls`, `concat`, or `None` for clear text. `listener` is the index in the
    /// configuration.
    pub fn security(&self, listener: usize) -> Option<&'static str> {
        self.listeners[listener].port.security.word()
    }

    /// How the discovery service secures its connections.
    pub fn discovery_security(&self) -> Option<&'static str> {
        self.discovery.as_ref()?.listener.port.security.word()
    }

    /// Brings the discovery log up to date.
    fn update_discovery_log(&self) {
        if let Some(discovery) = &self.discovery {
            let listening = self.listeners.iter().filter(|listener| listener.is_listening());
            discovery.update_log(listening, self.listeners.len() as u16 + 1);
        }
    }

    /// Delays each I/O command that arrives at this listener from now on, by at most [`MAX_DELAY`](crate::MAX_DELAY). Here and
    /// below, `listener` is the index in the configuration.
    pub fn set_delay(&self, listener: usize, delay: Duration) {
        self.listeners[listener].port.faults.set_delay(delay.into());
    }

    /// Sets the ANA state of all namespaces on a listener, and notifies its hosts. After the return, no command is executed under
    /// the old state.
    pub fn set_ana(&self, listener: usize, state: AnaState) {
        let port = self.listeners[listener].port.id;
        self.shared.control().set_ana(port, None, state);
    }

    /// The current number of connections of a listener.
    pub fn connections(&self, listener: usize) -> usize {
        self.shared.registry.connections(listener)
    }

    /// Stops listening, and resets all connections of the listener, as a failing link would. After the return, no command from
    /// these connections is executed, except held commands.
    pub fn stop_listener(&self, listener: usize) {
        self.listeners[listener].stop(&self.shared);
        self.update_discovery_log();
    }

    /// Listens on the same address again.
    pub fn resume_listener(&self, listener: usize) -> Result<(), StartError> {
        self.listeners[listener].resume(&self.shared)?;
        self.update_discovery_log();
        Ok(())
    }

    /// Ends the target. On return all sockets are closed. Held commands are discarded.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for TargetServer {
    fn drop(&mut self) {
        self.listeners.iter().for_each(|listener| listener.stop(&self.shared));
        if let Some(discovery) = &self.discovery {
            discovery.listener.stop(&discovery.shared);
        }
        self.shared.orphans.close();
    }
}

/// Opens the store of a namespace.
fn open_namespace(
    nqn: &str,
    block_size: u32,
    config: NamespaceConfig,
) -> Result<(Namespace, Box<dyn Store>), FileError> {
    let NamespaceConfig { backing, bytes, uuid } = config;
    let (own_uuid, store): (_, Box<dyn Store>) = match backing {
        Backing::Memory => (identity::new_uuid(), Box::new(MemoryStore::new(bytes))),
        Backing::File(path) => {
            let store = FileStore::open(&path, bytes)?;
            (identity::file_uuid(nqn, store.identity()), Box::new(store))
        }
    };
    let uuid = uuid.unwrap_or(own_uuid).into_bytes();
    let block_shift = block_size.ilog2() as u8;
    let blocks = bytes >> block_shift;
    Ok((Namespace { blocks, block_shift, uuid, nguid: uuid }, store))
}
