//! Test helpers: a link between the daemon and one listener of the target. It can hold data and deliver them late, as
//! buffers of networks and kernels do.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::own_address;

pub(crate) struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    held: bool,
    held_bytes: usize,
    /// The ends of connections do not reach the target any more.
    cut: bool,
    /// The data that the host has sent, by connection.
    sent: Vec<Vec<u8>>,
    host_side: Vec<TcpStream>,
}

impl Link {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(own_address()).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let for_connections = Arc::clone(&shared);
        thread::spawn(move || {
            for host in listener.incoming().map_while(Result::ok) {
                for_connections.connect(host, target);
            }
        });
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nothing reaches the target.
    pub(crate) fn hold(&self) {
        self.shared.state.lock().unwrap().held = true;
    }

    /// The number of bytes sent by the host that the target has not received.
    pub(crate) fn held_bytes(&self) -> usize {
        self.shared.state.lock().unwrap().held_bytes
    }

    /// The host sees its connections end. The target does not, now or later.
    pub(crate) fn cut(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.cut = true;
        for host in state.host_side.drain(..) {
            // Ignore a connection that has ended already.
            let _ = host.shutdown(Shutdown::Both);
        }
    }

    /// Delivers the held data to the target, even of connections that the host has closed.
    pub(crate) fn deliver(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.held = false;
        self.shared.changed.notify_all();
    }

    /// The data that the host has sent so far, by connection.
    pub(crate) fn sent(&self) -> Vec<Vec<u8>> {
        self.shared.state.lock().unwrap().sent.clone()
    }
}

impl Shared {
    fn connect(self: &Arc<Self>, host: TcpStream, target: SocketAddr) {
        let Ok(target) = TcpStream::connect(target) else { return };
        let mut state = self.state.lock().unwrap();
        let connection = state.sent.len();
        state.sent.push(Vec::new());
        state.host_side.push(host.try_clone().unwrap());
        let (from_host, to_target) = (host.try_clone().unwrap(), target.try_clone().unwrap());
        let shared = Arc::clone(self);
        thread::spawn(move || shared.to_target(connection, from_host, to_target));
        thread::spawn(move || to_host(target, host));
    }

    fn to_target(&self, connection: usize, mut host: TcpStream, mut target: TcpStream) {
        let mut buffer = vec![0; 1 << 20];
        loop {
            // However the host ends the connection, the target learns of it last.
            let bytes = host.read(&mut buffer).unwrap_or(0);
            let mut state = self.state.lock().unwrap();
            state.sent[connection].extend_from_slice(&buffer[..bytes]);
            if state.held {
                state.held_bytes += bytes;
            }
            while state.held {
                state = self.changed.wait(state).unwrap();
            }
            let unheard = bytes == 0 && state.cut;
            drop(state);
            if unheard {
                return;
            }
            if bytes == 0 || target.write_all(&buffer[..bytes]).is_err() {
                let _ = target.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

fn to_host(mut target: TcpStream, mut host: TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(bytes @ 1..) = target.read(&mut buffer) {
        // The host may have gone, which the target does not see.
        let _ = host.write_all(&buffer[..bytes]);
    }
    let _ = host.shutdown(Shutdown::Both);
}
