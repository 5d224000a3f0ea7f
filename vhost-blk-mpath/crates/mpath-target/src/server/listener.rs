//! One port: accepts connections and gives each its thread.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::PollFlags;

use super::connection::{Connection, poll};
use super::shared::{Port, Shared};
use super::wake::Wake;

/// Pause after an accept that failed for want of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket and its thread.
pub(super) struct Listening {
    wake: Arc<Wake>,
    thread: JoinHandle<()>,
}

impl Listening {
    pub(super) fn start(shared: &Arc<Shared>, port: &Arc<Port>, socket: TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let wake = Arc::new(Wake::new()?);
        let acceptor = Acceptor { shared: Arc::clone(shared), port: Arc::clone(port), wake: Arc::clone(&wake) };
        let name = format!("port-{}", port.id);
        let thread = std::thread::Builder::new().name(name).spawn(move || acceptor.run(&socket))?;
        Ok(Self { wake, thread })
    }

    /// Closes the socket: on return, connecting is refused.
    pub(super) fn stop(self) {
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
        let Ok(connection) = Connection::new(shared, port, wake, stream) else {
            return;
        };
        let name = format!("connection-{}", self.port.id);
        let _ = std::thread::Builder::new().name(name).spawn(move || {
            connection.run();
            drop(registration);
        });
    }
}

/// Binds a listening socket.
pub(super) fn bind(addr: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpListener::bind(addr)?;
    let addr = socket.local_addr()?;
    Ok((socket, addr))
}
