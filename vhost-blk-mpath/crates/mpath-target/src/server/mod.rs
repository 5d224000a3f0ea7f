//! The server: threads and sockets around the subsystem.

mod connection;
mod delay;
mod execute;
mod listener;
mod registry;
mod shared;
mod wake;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nvme_tcp::target::{Namespace, QueueLimits, Subsystem, SubsystemConfig};
use nvme_tcp::wire::{AnaState, Nqn};

use crate::config::{Backing, ConfigError, ListenerConfig, MAX_DELAY, NamespaceConfig, TargetConfig};
use crate::identity;
use crate::storage::{FileError, FileStore, MemoryStore, Store};
use listener::Listening;
use shared::{Port, Shared};

/// Entries of a queue: more than any host keeps in flight on one connection.
const MAX_ENTRIES: u16 = 128;
/// I/O queues of a controller.
const MAX_IO_QUEUES: u16 = 128;

/// Why a target does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A namespace's file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// An address cannot be listened on.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// A thread or a descriptor cannot be had.
    #[error("cannot start serving: {0}")]
    System(#[from] io::Error),
}

/// A running target. Dropping it ends it.
pub struct TargetServer {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
}

struct Listener {
    addr: SocketAddr,
    port: Arc<Port>,
    listening: Mutex<Option<Listening>>,
}

impl TargetServer {
    /// Opens the namespaces and starts listening on every address; nothing is left behind by a failure, but files
    /// may have been created.
    pub fn start(config: TargetConfig) -> Result<Self, StartError> {
        config.validate()?;
        let TargetConfig { nqn, listeners, namespaces, block_size, max_connections } = config;
        let mut sockets = Vec::new();
        for &ListenerConfig { addr, .. } in &listeners {
            let bound = listener::bind(addr).map_err(|source| StartError::Listen { addr, source })?;
            sockets.push(bound);
        }
        let opened = namespaces.into_iter().map(|namespace| open(&nqn, block_size, namespace));
        let (namespaces, stores) = opened.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let serial = identity::serial(&nqn);
        let subsystem = Subsystem::new(SubsystemConfig {
            nqn: Nqn::new(nqn.as_str()).map_err(|_| ConfigError::Nqn(nqn))?,
            serial,
            namespaces,
            ports: listeners.iter().map(|listener| listener.ana).collect(),
            limits: QueueLimits::default(),
            max_entries: MAX_ENTRIES,
            max_io_queues: MAX_IO_QUEUES,
        });
        let shared = Arc::new(Shared::new(subsystem, stores, max_connections));
        let mut server = Self { shared, listeners: Vec::new() };
        for (index, (socket, addr)) in sockets.into_iter().enumerate() {
            // There are at most `MAX_LISTENERS`.
            let port = Port::new(index as u16 + 1, index, listeners[index].delay);
            let port = Arc::new(port);
            let listening = Mutex::new(Some(Listening::start(&server.shared, &port, socket)?));
            server.listeners.push(Listener { addr, port, listening });
        }
        Ok(server)
    }

    /// The addresses listened on, with the real port where 0 was asked for; in the order of the configuration.
    #[must_use]
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|listener| listener.addr).collect()
    }

    /// Delays every I/O command that arrives through this listener from now on. `listener` is its index in the
    /// configuration, here and below; `delay` is cut to [`MAX_DELAY`].
    pub fn set_delay(&self, listener: usize, delay: Duration) {
        self.listeners[listener].port.set_delay(delay.min(MAX_DELAY));
    }

    /// Changes how a listener reaches the namespaces, and tells its hosts. On return no command is executed
    /// under the old state.
    pub fn set_ana(&self, listener: usize, state: AnaState) {
        let port = self.listeners[listener].port.id;
        self.shared.control().set_ana(port, state);
    }

    /// Connections that a listener has at the moment.
    #[must_use]
    pub fn connections(&self, listener: usize) -> usize {
        self.shared.registry.connections(listener)
    }

    /// Stops listening and drops the listener's connections without a word, as a failing link would. On return
    /// they are gone and nothing that came through them is executed any more.
    pub fn stop_listener(&self, listener: usize) {
        if let Some(listening) = self.listening(listener).take() {
            listening.stop();
        }
        self.shared.registry.end_all(listener);
    }

    /// Listens on the same address again.
    pub fn resume_listener(&self, listener: usize) -> Result<(), StartError> {
        let Listener { addr, port, .. } = &self.listeners[listener];
        let mut listening = self.listening(listener);
        if listening.is_none() {
            let (socket, _) = listener::bind(*addr).map_err(|source| StartError::Listen { addr: *addr, source })?;
            *listening = Some(Listening::start(&self.shared, port, socket)?);
        }
        Ok(())
    }

    /// Ends everything; on return all sockets are closed.
    pub fn shutdown(self) {
        drop(self);
    }

    fn listening(&self, listener: usize) -> MutexGuard<'_, Option<Listening>> {
        self.listeners[listener].listening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TargetServer {
    fn drop(&mut self) {
        (0..self.listeners.len()).for_each(|listener| self.stop_listener(listener));
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
