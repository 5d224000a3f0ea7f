//! A link between the daemon and one listener of the target that can hold what is on its way, and deliver it late: what
//! buffers of networks and of kernels do.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::target::own_address;

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
    /// Ends of connections do not reach the target any more.
    cut: bool,
    /// What the host has sent, connection by connection.
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

    /// Bytes that the host has sent and the target has not got.
    pub(crate) fn held_bytes(&self) -> usize {
        self.shared.state.lock().unwrap().held_bytes
    }

    /// The host sees its connections end. The target does not, now or later.
    pub(crate) fn cut(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.cut = true;
        for host in state.host_side.drain(..) {
            // One that has ended already is cut.
            let _ = host.shutdown(Shutdown::Both);
        }
    }

    /// The target gets what was held, even of connections that the host has given up.
    pub(crate) fn deliver(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.held = false;
        self.shared.changed.notify_all();
    }

    /// What the host has sent so far, connection by connection.
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
            // However the host ends it, the target learns of it last.
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
        // A host that has gone misses it, of which the target hears nothing.
        let _ = host.write_all(&buffer[..bytes]);
    }
    let _ = host.shutdown(Shutdown::Both);
}
