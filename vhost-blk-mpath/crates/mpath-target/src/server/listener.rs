//! One port: accepts connections and gives each its thread.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mpath_api::address::Transport;
use rustix::event::PollFlags;
use socket2::{Domain, Protocol, Socket, Type};

use super::StartError;
use super::connection::Connection;
use super::settings::ShownNamespaces;
use super::shared::{Port, Shared};
use super::wake::{Wake, poll};
use crate::setting::Queues;

/// Connections that wait to be accepted: more than hosts begin at once.
const BACKLOG: i32 = 1024;
/// Pause after an accept that failed for want of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// One port and its listening socket, if it listens.
pub(super) struct Listener {
    pub(super) addr: SocketAddr,
    pub(super) transport: Transport,
    /// Where the discovery service says it is.
    pub(super) advertised: SocketAddr,
    pub(super) port: Arc<Port>,
    listening: Mutex<Option<Listening>>,
    shown: Mutex<ShownNamespaces>,
}

impl Listener {
    /// A port that does not listen yet; `index` tells it from others of the same [`Shared`].
    pub(super) fn new(
        (addr, transport): (SocketAddr, Transport),
        advertised: SocketAddr,
        id: u16,
        index: usize,
    ) -> Self {
        let port = Arc::new(Port::new(id, index));
        Self { addr, transport, advertised, port, listening: Mutex::default(), shown: Mutex::default() }
    }

    fn listening(&self) -> MutexGuard<'_, Option<Listening>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shown(&self) -> MutexGuard<'_, ShownNamespaces> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listening().is_some()
    }

    /// Accepts connections from `socket` from now on.
    pub(super) fn listen(&self, shared: &Arc<Shared>, socket: TcpListener) -> io::Result<()> {
        *self.listening() = Some(Listening::start(shared, &self.port, socket)?);
        Ok(())
    }

    /// Listens on the same address again.
    pub(super) fn resume(&self, shared: &Arc<Shared>) -> Result<(), StartError> {
        let mut listening = self.listening();
        if listening.is_none() {
            let (socket, _) = bind(self.addr, self.transport)?;
            *listening = Some(Listening::start(shared, &self.port, socket)?);
        }
        Ok(())
    }

    /// On return, connecting is refused; the connections there are stay.
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
struct Listening {
    wake: Arc<Wake>,
    thread: JoinHandle<()>,
}

impl Listening {
    fn start(shared: &Arc<Shared>, port: &Arc<Port>, socket: TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let wake = Arc::new(Wake::new()?);
        let acceptor = Acceptor { shared: Arc::clone(shared), port: Arc::clone(port), wake: Arc::clone(&wake) };
        let name = format!("port-{}", port.id);
        let thread = std::thread::Builder::new().name(name).spawn(move || acceptor.run(&socket))?;
        Ok(Self { wake, thread })
    }

    /// Closes the socket: on return, connecting is refused.
    fn stop(self) {
        self.wake.stop();
        // A panic of that thread has closed the socket just as well.
        let _ = self.thread.join();
    }
}

struct Acceptor {
    shared: Arc<Shared>,
    port: Arc<Port>,
    wake: Arc<Wake>,
}

impl Acceptor {
    fn run(&self, socket: &TcpListener) {
        while !self.wake.is_stopped() {
            match socket.accept() {
                Ok((stream, _)) => self.serve(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if poll(socket, PollFlags::IN, &self.wake, None).is_err() {
                        return;
                    }
                }
                Err(error) => self.pause(socket, &error),
            }
        }
    }

    /// An accepted connection that died meanwhile is nothing; being out of descriptors or memory takes time to pass.
    fn pause(&self, socket: &TcpListener, error: &io::Error) {
        let passing = [io::ErrorKind::ConnectionAborted, io::ErrorKind::Interrupted];
        if !passing.contains(&error.kind()) {
            let _ = poll(socket, PollFlags::empty(), &self.wake, Some(ACCEPT_PAUSE));
        }
    }

    /// Starts a connection's thread. Whatever is missing for it, the host sees a closed connection.
    fn serve(&self, stream: TcpStream) {
        let Ok(wake) = Wake::new().map(Arc::new) else {
            return;
        };
        let registry = &self.shared.registry;
        let Some(registration) = registry.register(self.port.listener, &wake) else {
            return;
        };
        let (shared, port) = (Arc::clone(&self.shared), Arc::clone(&self.port));
        let Ok(connection) = Connection::new(shared, port, wake, registration, stream) else {
            return;
        };
        let name = format!("connection-{}", self.port.id);
        let _ = std::thread::Builder::new().name(name).spawn(move || connection.run());
    }
}

/// Binds a listening socket.
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

    use super::*;

    #[test]
    fn what_is_accepted_by_mptcp_begins_with_a_large_window() {
        // Past the capture: nobody reads the output of a test that passes.
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
