//! The server: threads and sockets around the subsystem.

mod association;
mod connection;
mod delay;
mod discovery;
mod execute;
mod faults;
mod hold;
mod late;
mod listener;
mod pipe;
mod registry;
mod settings;
mod shared;
mod status;
mod wake;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mpath_api::address::Transport;
use nvme_tcp::target::{Namespace, QueueLimits, Subsystem, SubsystemConfig};
use nvme_tcp::wire::{AnaState, Nqn};

use crate::config::{Backing, ConfigError, ListenerConfig, NamespaceConfig, TargetConfig};
use crate::identity;
use crate::setting::{Setting, SettingError};
use crate::storage::{FileError, FileStore, MemoryStore, Store};
use discovery::Discovery;
use listener::Listener;
use shared::Shared;
pub use status::{AnaGroupStatus, DiscoveryStatus, ListenerStatus};

/// Entries of a queue: more than any host keeps in flight on one connection.
const MAX_ENTRIES: u16 = 128;
/// I/O queues of a controller.
const MAX_IO_QUEUES: u16 = 128;

/// Why a target does not start, or a listener of it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A namespace's file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// An address cannot be listened on.
    #[error("cannot listen on {addr}{}: {source}", for_transport(*transport))]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// For what.
        transport: Transport,
        /// What the operating system said.
        source: io::Error,
    },
    /// A setting does not fit the target.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A thread or a descriptor cannot be had.
    #[error("cannot start serving: {0}")]
    System(#[from] io::Error),
}

fn for_transport(transport: Transport) -> &'static str {
    if transport == Transport::Mptcp { " for MPTCP" } else { "" }
}

/// A running target. Dropping it ends it.
pub struct TargetServer {
    shared: Arc<Shared>,
    nqn: Nqn,
    block_size: u32,
    listeners: Vec<Listener>,
    discovery: Option<Discovery>,
}

impl TargetServer {
    /// Opens the namespaces and starts listening on every address; nothing is left behind by a failure, but files
    /// may have been created.
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
        } = config;
        let nqn = Nqn::new(nqn.as_str()).map_err(|_| ConfigError::Nqn(nqn))?;
        let bind_listener = |listener: &ListenerConfig| listener::bind(listener.addr, listener.transport);
        let sockets = listeners.iter().map(bind_listener).collect::<Result<Vec<_>, _>>()?;
        let discovery = discovery.map(|addr| listener::bind(addr, Transport::Tcp)).transpose()?;
        let opened = namespaces.into_iter().map(|namespace| open(nqn.as_str(), block_size, namespace));
        let (namespaces, stores) = opened.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let seed = identity::fresh().as_u64_pair().1;
        let subsystem = Subsystem::new(SubsystemConfig {
            nqn: nqn.clone(),
            serial: identity::serial(nqn.as_str()),
            namespaces,
            ports: vec![AnaState::Optimized; listeners.len()],
            limits: QueueLimits::default(),
            max_entries: MAX_ENTRIES,
            max_io_queues: MAX_IO_QUEUES,
            anatt_seconds,
            seed,
        });
        let shared = Arc::new(Shared::new(subsystem, stores, max_connections));
        let mut server = Self { shared, nqn: nqn.clone(), block_size, listeners: Vec::new(), discovery: None };
        for (index, ((socket, addr), config)) in sockets.into_iter().zip(&listeners).enumerate() {
            // There are at most `MAX_LISTENERS`.
            let at = (addr, config.transport);
            let listener = Listener::new(at, config.advertise.unwrap_or(addr), index as u16 + 1, index);
            let mut listens = true;
            for setting in &config.settings {
                match setting {
                    Setting::Listen(on) => listens = *on,
                    setting => listener.apply(&server.shared, setting)?,
                }
            }
            if listens {
                listener.listen(&server.shared, socket)?;
            }
            server.listeners.push(listener);
        }
        if let Some((socket, addr)) = discovery {
            server.discovery = Some(Discovery::new(addr, nqn, referrals, !seed));
            // It has its list before anybody can ask for it.
            server.list();
            if let Some(discovery) = &server.discovery {
                discovery.listener.listen(&discovery.shared, socket)?;
            }
        }
        Ok(server)
    }

    /// Name of the subsystem.
    #[must_use]
    pub fn nqn(&self) -> &str {
        self.nqn.as_str()
    }

    /// The addresses listened on, with the real port where 0 was asked for; in the order of the configuration.
    #[must_use]
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|listener| listener.addr).collect()
    }

    /// Where the discovery service listens, if there is one.
    #[must_use]
    pub fn discovery_addr(&self) -> Option<SocketAddr> {
        self.discovery.as_ref().map(|discovery| discovery.listener.addr)
    }

    /// Brings the discovery log up to date.
    fn list(&self) {
        if let Some(discovery) = &self.discovery {
            let listening = self.listeners.iter().filter(|listener| listener.is_listening());
            let ports: Vec<_> = listening.map(|listener| (listener.port.id, listener.advertised)).collect();
            discovery.list(&ports, self.listeners.len() as u16 + 1);
        }
    }

    /// Delays every I/O command that arrives through this listener from now on. `listener` is its index in the
    /// configuration, here and below; `delay` is cut to [`MAX_DELAY`](crate::MAX_DELAY).
    pub fn set_delay(&self, listener: usize, delay: Duration) {
        self.listeners[listener].port.faults.set_delay(delay);
    }

    /// Changes how a listener reaches the namespaces, and tells its hosts. On return no command is executed
    /// under the old state.
    pub fn set_ana(&self, listener: usize, state: AnaState) {
        let port = self.listeners[listener].port.id;
        self.shared.control().set_ana(port, None, state);
    }

    /// Connections that a listener has at the moment.
    #[must_use]
    pub fn connections(&self, listener: usize) -> usize {
        self.shared.registry.connections(listener)
    }

    /// Stops listening and drops the listener's connections without a word, as a failing link would. On return
    /// they are gone and nothing that came through them is executed any more, unless it is held.
    pub fn stop_listener(&self, listener: usize) {
        self.listeners[listener].stop(&self.shared);
        self.list();
    }

    /// Listens on the same address again.
    pub fn resume_listener(&self, listener: usize) -> Result<(), StartError> {
        self.listeners[listener].resume(&self.shared)?;
        self.list();
        Ok(())
    }

    /// Ends everything; on return all sockets are closed. Held commands are given up.
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
        self.shared.late.close();
    }
}

fn open(nqn: &str, block_size: u32, config: NamespaceConfig) -> Result<(Namespace, Box<dyn Store>), FileError> {
    let NamespaceConfig { backing, bytes, uuid } = config;
    let (own_uuid, store): (_, Box<dyn Store>) = match backing {
        Backing::Memory => (identity::fresh(), Box::new(MemoryStore::new(bytes))),
        Backing::File(path) => {
            let store = FileStore::open(&path, bytes)?;
            (identity::of_file(nqn, store.identity()), Box::new(store))
        }
    };
    let uuid = uuid.unwrap_or(own_uuid).into_bytes();
    let block_shift = block_size.ilog2() as u8;
    let blocks = bytes >> block_shift;
    Ok((Namespace { blocks, block_shift, uuid, nguid: uuid }, store))
}
