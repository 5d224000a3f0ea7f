//! TCP and MPTCP connections: addresses, local ends and socket options.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mpath_config::PathAddress;
use mpath_config::address::{Host, LocalEnd, Transport};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

use super::error::TransportError;
use super::lookup::look_up;

/// Unsent bytes that the kernel accepts (`TCP_NOTSENT_LOWAT`). Nothing can overtake them, and the kernel's own limit
/// is megabytes: on a slow link a read would wait for all writes before it. Bytes sent and not acknowledged do not
/// count.
const UNSENT_BYTES: u32 = 128 * 1024;
/// Connects a TCP or MPTCP connection.
pub(super) async fn connect_stream(address: &PathAddress) -> Result<TcpStream, TransportError> {
    let mut refused = TransportError::NoAddress;
    for peer in socket_addresses(address).await.map_err(TransportError::Connect)? {
        match connect_to(peer, address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// The socket addresses of an address, in the order in which they are tried. A host name may have several or none.
pub(crate) async fn socket_addresses(address: &PathAddress) -> io::Result<Vec<SocketAddr>> {
    Ok(match address.host() {
        Host::V4(ip) => vec![(*ip, address.port()).into()],
        Host::V6(ip) => vec![(*ip, address.port()).into()],
        Host::Name(name) => look_up(name.as_str(), address.port()).await?,
    })
}

/// Connects to one socket address of `address`.
async fn connect_to(peer: SocketAddr, address: &PathAddress) -> Result<TcpStream, TransportError> {
    let socket = socket_for(peer, address.transport())?;
    bind(&socket, peer, address.local())?;
    prepare(&socket).map_err(TransportError::Connect)?;
    TcpSocket::from_std_stream(socket.into()).connect(peer).await.map_err(TransportError::Connect)
}

fn socket_for(peer: SocketAddr, transport: Transport) -> Result<Socket, TransportError> {
    let protocol = match transport {
        Transport::Mptcp => Protocol::MPTCP,
        _ => Protocol::TCP,
    };
    Socket::new(Domain::for_address(peer), Type::STREAM, Some(protocol)).map_err(|error| match transport {
        Transport::Mptcp => TransportError::NoMptcp(error),
        _ => TransportError::Connect(error),
    })
}

fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // A capsule is a request of its own: delaying it (Nagle) only costs latency.
    socket.set_tcp_nodelay(true)?;
    // MPTCP supports this since Linux 6.9. Failure costs only latency.
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES);
    // However the socket is closed, by a kill too, the kernel sends nothing more. The fence counts from then.
    socket.set_linger(Some(Duration::ZERO))
}

/// Binds the socket to the configured interface and local address.
fn bind(socket: &Socket, peer: SocketAddr, local: &LocalEnd) -> Result<(), TransportError> {
    if let Some(iface) = local.iface() {
        let bound = socket.bind_device(Some(iface.as_str().as_bytes()));
        bound.map_err(|source| TransportError::HostIface { iface: iface.clone(), source })?;
    }
    if let Some(&traddr) = local.traddr() {
        if traddr.is_ipv4() != peer.is_ipv4() {
            return Err(TransportError::Family { traddr, peer: peer.ip() });
        }
        let bound = socket.bind(&SocketAddr::new(traddr, 0).into());
        bound.map_err(|source| TransportError::HostTraddr { traddr, source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that a connection accepts while a peer with little memory does not read.
    async fn taken(lowat: Option<u32>) -> usize {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        listener.set_recv_buffer_size(64 * 1024).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(1).unwrap();
        let port = listener.local_addr().unwrap().as_socket().unwrap().port();
        let stream = connect_stream(&format!("tcp://127.0.0.1:{port}").parse().unwrap()).await.unwrap();
        if let Some(bytes) = lowat {
            socket2::SockRef::from(&stream).set_tcp_notsent_lowat(bytes).unwrap();
        }
        let (mut taken, piece) = (0, [0; 16 * 1024]);
        loop {
            match stream.try_write(&piece) {
                Ok(bytes) => taken += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return taken,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Unsent bytes stay in the daemon, where a read can overtake them.
    #[tokio::test]
    async fn the_kernel_does_not_take_what_it_cannot_send() {
        let (ours, without) = (taken(None).await, taken(Some(u32::MAX)).await);
        assert!(2 * ours < without, "{ours} bytes, without a limit {without}");
    }
}
