//! TCP connections of the control thread: connecting, and moving bytes between a socket and the sans-IO host.

pub(crate) mod connections;

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use mpath_api::PathAddress;
use mpath_api::address::{Host, InterfaceName, LocalEnd, Transport};
use mpath_host::ControllerShutdown;
use nvme_tcp::host::ControllerError;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::task::yield_now;
use tokio::time::sleep_until;

/// Unsent bytes that the kernel accepts (`TCP_NOTSENT_LOWAT`). Nothing can overtake them, and the kernel's own limit
/// is megabytes: on a slow link a read would wait for all writes before it. Bytes sent and not acknowledged do not
/// count.
const UNSENT_BYTES: u32 = 128 * 1024;

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    #[error("{0}")]
    Connect(#[source] io::Error),
    #[error("cannot create an MPTCP socket: {0}; `mpathctl mptcp check` shows what this host lacks")]
    NoMptcp(#[source] io::Error),
    #[error("cannot connect from host-traddr {traddr}: {source}; `ip address` lists the addresses of this host")]
    HostTraddr { traddr: IpAddr, source: io::Error },
    #[error("cannot connect over host-iface {}: {source}; `ip link` lists the interfaces of this host", iface.as_str())]
    HostIface { iface: InterfaceName, source: io::Error },
    #[error("cannot connect from host-traddr {traddr} to {peer}: use IPv4 or IPv6 for both")]
    Family { traddr: IpAddr, peer: IpAddr },
    #[error("the host name has no address")]
    NoAddress,
    #[error("connection lost: {0}")]
    Socket(#[source] io::Error),
    #[error("connection closed by the controller")]
    Closed,
    #[error(transparent)]
    Controller(#[from] ControllerError),
}

/// Connects a socket for one queue pair. The caller limits the time.
pub(crate) async fn connect(address: &PathAddress) -> Result<TcpStream, TransportError> {
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
        Host::Name(name) => lookup_host((name.as_str(), address.port())).await?.collect(),
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

/// A connected socket with its send buffer. Dropping it resets the connection.
pub(crate) struct ControlSocket {
    /// `None` once the socket is given away.
    stream: Option<TcpStream>,
    out: Vec<u8>,
    buffer: Box<[u8]>,
}

impl ControlSocket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream: Some(stream), out: Vec::new(), buffer: vec![0; 16 * 1024].into_boxed_slice() }
    }

    fn stream(&self) -> &TcpStream {
        self.stream.as_ref().expect("it is given away as a whole")
    }

    /// The send buffer, to append to.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Sends what the socket accepts now, and returns received bytes, if there are any.
    pub(crate) fn exchange(&mut self) -> Result<Option<&[u8]>, TransportError> {
        let stream = self.stream.as_ref().expect("it is given away as a whole");
        while !self.out.is_empty() {
            match stream.try_write(&self.out) {
                Ok(sent) => drop(self.out.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(TransportError::Socket(error)),
            }
        }
        match stream.try_read(&mut self.buffer) {
            Ok(0) => Err(TransportError::Closed),
            Ok(bytes) => Ok(Some(&self.buffer[..bytes])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(TransportError::Socket(error)),
        }
    }

    /// Resolves when the socket is readable, or writable with bytes to be sent. Otherwise wakes the task when it is.
    pub(crate) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        let readable = self.stream().poll_read_ready(context);
        let writable = if self.out.is_empty() { Poll::Pending } else { self.stream().poll_write_ready(context) };
        // The next read or write finds any error.
        if readable.is_ready() || writable.is_ready() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Sends an `H2CTermReq`, as far as the socket accepts it at once. The connection is reset next, so the controller
    /// may not get to read it.
    pub(crate) fn tell(&self, pdu: &[u8]) {
        let _ = self.stream().try_write(pdu);
    }

    /// The socket in blocking mode, as `io_uring` needs it.
    pub(crate) fn into_blocking(mut self) -> io::Result<OwnedFd> {
        let stream = self.stream.take().expect("it is given away once").into_std()?;
        stream.set_nonblocking(false)?;
        Ok(stream.into())
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream().as_fd()
    }
}

impl Drop for ControlSocket {
    /// Resets the connection. A keep-alive still on its way must not arrive after the fence has begun.
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            reactor::reset(stream);
        }
    }
}

/// A controller that ends, with its admin connection.
pub(crate) struct AdminConnection {
    socket: ControlSocket,
    pub(crate) controller: ControllerShutdown,
}

impl AdminConnection {
    pub(crate) fn new(socket: ControlSocket, controller: ControllerShutdown) -> Self {
        Self { socket, controller }
    }

    /// Runs the controller to its end. Returns whether the end is confirmed. Cancel-safe.
    pub(crate) async fn confirmed(&mut self) -> Result<bool, TransportError> {
        loop {
            if let Some(confirmed) = self.controller.poll_confirmed() {
                return Ok(confirmed);
            }
            self.controller.fill_tx(self.socket.out());
            // Received bytes come before timeouts, which wait for them.
            if let Some(bytes) = self.socket.exchange()? {
                let received = self.controller.receive(Instant::now(), bytes);
                if let Err(error) = received {
                    self.controller.term_req().into_iter().for_each(|pdu| self.socket.tell(&pdu));
                    return Err(error.into());
                }
                // A controller that sends without pause must neither block other tasks nor delay its end.
                if self.controller.next_timeout() <= Instant::now() {
                    self.controller.handle_timeout(Instant::now())?;
                }
                yield_now().await;
                continue;
            }
            let deadline = self.controller.next_timeout();
            tokio::select! {
                () = poll_fn(|context| self.socket.poll_ready(context)) => {}
                () = sleep_until(deadline.into()) => {
                    self.controller.handle_timeout(Instant::now())?;
                }
            }
        }
    }
}

pub(crate) fn far_future() -> Instant {
    const FAR: Duration = Duration::from_secs(24 * 60 * 60);
    Instant::now() + FAR
}

#[cfg(test)]
mod tests {
    use mpath_host::CONNECT_MAX;
    use nvme_tcp::host::{ControllerConfig, HostController, HostIdentity};
    use nvme_tcp::wire::Digests;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// The bytes that a connection accepts while a peer with little memory does not read.
    async fn taken(lowat: Option<u32>) -> usize {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        listener.set_recv_buffer_size(64 * 1024).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(1).unwrap();
        let port = listener.local_addr().unwrap().as_socket().unwrap().port();
        let stream = connect(&format!("tcp://127.0.0.1:{port}").parse().unwrap()).await.unwrap();
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

    /// Over a real socket: the reset of the connection follows the PDU.
    #[tokio::test]
    async fn a_controller_that_breaks_the_protocol_gets_a_term_req() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        let config = ControllerConfig {
            host: HostIdentity { hostnqn: "nqn.2014-08.org.example:host".parse().unwrap(), hostid: [1; 16] },
            subnqn: "nqn.2014-08.org.example:disk".parse().unwrap(),
            nsids: Vec::new(),
            keep_alive_tmo: Duration::from_secs(5),
            digests: Digests::default(),
            io_queues: 1,
            queue_entries: 16,
            max_transfer_bytes: None,
            command_timeout: CONNECT_MAX,
        };
        let stream = connect(&address).await.unwrap();
        let now = Instant::now();
        let ending = ControllerShutdown::new(now, HostController::new(config, now).unwrap(), 1);
        let mut admin = AdminConnection::new(ControlSocket::new(stream), ending);
        let (mut peer, _) = listener.accept().await.unwrap();
        // An ICResp with a length of 24 bytes.
        let bogus = [1, 0, 24, 0, 24, 0, 0, 0];
        peer.write_all(&bogus).await.unwrap();
        let error = admin.confirmed().await.unwrap_err();
        assert!(matches!(error, TransportError::Controller(_)), "{error}");
        drop(admin);
        let mut sent = [0; 128 + 32];
        peer.read_exact(&mut sent).await.unwrap();
        let told = &sent[128..];
        assert_eq!((told[0], told[4], &told[8..14]), (2, 32, &[1, 0, 2, 0, 0, 0][..]));
        assert_eq!(told[24..], bogus);
    }
}
