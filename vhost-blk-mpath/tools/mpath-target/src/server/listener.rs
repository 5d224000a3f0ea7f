//! One port: it accepts connections and starts a thread for each.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mpath_config::address::Transport;
use rustix::event::PollFlags;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::StartError;
use super::connection::Connection;
use super::settings::NamespaceOverrides;
use super::shared::{Port, PortSecurity, Shared};
use super::waker::{Waker, poll};
use crate::setting::Queues;

/// The most connections that wait to be accepted: more than hosts start at once.
const BACKLOG: i32 = 1024;
/// The pause after an accept that failed for lack of a resource.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// One port, and its listening socket while it listens.
pub(super) struct Listener {
    pub(super) addr: SocketAddr,
    pub(super) transport: Transport,
    /// The address in the discovery log.
    pub(super) advertised: SocketAddr,
    pub(super) port: Arc<Port>,
    listening: Mutex<Option<ListeningSocket>>,
    overrides: Mutex<NamespaceOverrides>,
}

impl Listener {
    /// A port that does not listen. `index` is unique among the ports of the same [`Shared`].
    pub(super) fn new(
        (addr, transport): (SocketAddr, Transport),
        advertised: SocketAddr,
        id: u16,
        index: usize,
        security: PortSecurity,
    ) -> Self {
        let port = Arc::new(Port::new(id, index, security));
        Self { addr, transport, advertised, port, listening: Mutex::default(), overrides: Mutex::default() }
    }

    fn listening(&self) -> MutexGuard<'_, Option<ListeningSocket>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn overrides(&self) -> MutexGuard<'_, NamespaceOverrides> {
        self.overrides.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listening().is_some()
    }

    /// Starts to accept connections from `socket`.
    pub(super) fn listen(&self, shared: &Arc<Shared>, socket: TcpListener) -> io::Result<()> {
        *self.listening() = Some(ListeningSocket::start(shared, &self.port, socket)?);
        Ok(())
    }

    pub(super) fn resume(&self, shared: &Arc<Shared>) -> Result<(), StartError> {
        let mut listening = self.listening();
        if listening.is_none() {
            let (socket, _) = bind(self.addr, self.transport)?;
            *listening = Some(ListeningSocket::start(shared, &self.port, socket)?);
        }
        Ok(())
    }

    /// Stops listening. On return, the system refuses new connections. Existing connections stay.
    pub(super) fn stop_listening(&self) {
        if let Some(listening) = self.listening().take() {
            listening.stop();
        }
    }

    /// Stops listening and ends all connections.
    pub(super) fn stop(&self, shared: &Shared) {
        self.stop_listening();
        shared.registry.end(self.port.listener, Queues::All);
    }
}

/// A listening socket and its thread.
struct ListeningSocket {
    waker: Arc<Waker>,
    thread: JoinHandle<()>,
}

impl ListeningSocket {
    fn start(shared: &Arc<Shared>, port: &Arc<Port>, socket: TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let waker = Arc::new(Waker::new()?);
        let acceptor = Acceptor { shared: Arc::clone(shared), port: Arc::clone(port), waker: Arc::clone(&waker) };
        let name = format!("port-{}", port.id);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            acceptor.run(&socket);
            // A child process that is being started may still have the socket open. Then closing it alone would not end the
            // listening.
            let _ = SockRef::from(&socket).shutdown(Shutdown::Both);
        })?;
        Ok(Self { waker, thread })
    }

    /// Closes the socket. On return, the system refuses new connections.
    fn stop(self) {
        self.waker.stop();
        // If the thread has panicked, the socket is closed too.
        let _ = self.thread.join();
    }
}

struct Acceptor {
    shared: Arc<Shared>,
    port: Arc<Port>,
    waker: Arc<Waker>,
}

impl Acceptor {
    fn run(&self, socket: &TcpListener) {
        while !self.waker.is_stopped() {
            match socket.accept() {
                Ok((stream, _)) => self.serve(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if poll(socket, PollFlags::IN, &self.waker, None).is_err() {
                        return;
                    }
                }
                Err(error) => self.pause(socket, &error),
            }
        }
    }

    /// Pauses after an error, unless it concerns only one connection. A lack of descriptors or memory takes time to pass.
    fn pause(&self, socket: &TcpListener, error: &io::Error) {
        let harmless = [io::ErrorKind::ConnectionAborted, io::ErrorKind::Interrupted];
        if !harmless.contains(&error.kind()) {
            let _ = poll(socket, PollFlags::empty(), &self.waker, Some(ACCEPT_PAUSE.into()));
        }
    }

    /// Starts the thread of a connection. If that fails, the host sees a closed connection.
    fn serve(&self, stream: TcpStream) {
        let Ok(waker) = Waker::new().map(Arc::new) else {
            return;
        };
        let registry = &self.shared.registry;
        let Some(registration) = registry.register(self.port.listener, &waker) else {
            return;
        };
        let (shared, port) = (Arc::clone(&self.shared), Arc::clone(&self.port));
        let Ok(connection) = Connection::new(shared, port, waker, registration, stream) else {
            return;
        };
        let name = format!("connection-{}", self.port.id);
        let _ = std::thread::Builder::new().name(name).spawn(move || connection.run());
    }
}

/// Opens a listening socket. Returns it with its address.
pub(super) fn bind(addr: SocketAddr, transport: Transport) -> Result<(TcpListener, SocketAddr), StartError> {
    let protocol = match transport {
        Transport::Mptcp => Protocol::MPTCP,
        _ => Protocol::TCP,
    };
    let bind = || {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(protocol))?;
        socket.set_reuse_address(true)?;
        socket.bind(&addr.into())?;
        if transport == Transport::Mptcp {
            low_water::widen_first_window(&socket)?;
        }
        socket.listen(BACKLOG)?;
        let socket = TcpListener::from(socket);
        let addr = socket.local_addr()?;
        Ok((socket, addr))
    };
    bind().map_err(|source| StartError::Listen { addr, transport, source })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use nvme_tcp::wire::Nqn;

    use super::super::discovery::Discovery;
    use super::*;

    #[test]
    fn a_stopped_port_is_free_although_another_process_has_its_socket_open() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        for transport in [Transport::Tcp, Transport::Mptcp] {
            let Ok((socket, addr)) = bind(loopback, transport) else {
                assert_eq!(transport, Transport::Mptcp);
                return;
            };
            let also_open = socket.try_clone().unwrap();
            let service = Discovery::new(addr, Nqn::discovery(), Vec::new(), 1, PortSecurity::ClearText);
            service.listener.listen(&service.shared, socket).unwrap();
            service.listener.stop(&service.shared);
            bind(addr, transport).unwrap();
            drop(also_open);
        }
    }

    #[test]
    fn an_accepted_mptcp_connection_starts_with_a_large_window() {
        // eprintln! does not serve here, because its output is captured in tests that pass.
        let skipped = |why: &str| {
            #[allow(clippy::explicit_write)]
            writeln!(io::stderr(), "SKIPPED: a large first window: {why}").unwrap();
        };
        let connecting = match Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)) {
            Ok(socket) => socket,
            Err(error) => return skipped(&format!("no MPTCP socket: {error}")),
        };
        low_water::widen_first_window(&connecting).unwrap();
        if connecting.recv_buffer_size().unwrap() < low_water::FIRST_WINDOW_BYTES as usize {
            return skipped("this kernel gives none (before Linux 6.8, or a small third value of net.ipv4.tcp_rmem)");
        }
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let (listening, addr) = bind(loopback, Transport::Mptcp).unwrap();
        connecting.connect(&addr.into()).unwrap();
        let (accepted, _) = listening.accept().unwrap();
        let bytes = Socket::from(accepted).recv_buffer_size().unwrap();
        assert!(bytes >= low_water::FIRST_WINDOW_BYTES as usize, "{bytes} bytes");
    }
}
