//! Test helpers: a host over real sockets, from the project's own controller and queue, driven by blocking calls.
#![allow(dead_code, unused_imports, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test may fail anywhere")]

pub(crate) mod raw;

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use mpath_target::{ListenerConfig, NamespaceConfig, TargetConfig, TargetServer};
use nvme_tcp::host::{
    Completion, ControllerConfig, ControllerError, ControllerEvent, ControllerInfo, HostController, HostIdentity,
    HostQueue, IoCommand, Namespace, PayloadSink, PayloadSource, QueueConfig, STAGING_MIN, Tag, TxPart,
};
use nvme_tcp::wire::{AnaState, Digests, Nqn, Status};
pub(crate) use patience::{PATIENCE, eventually, own_address};

pub(crate) const NQN: &str = "nqn.2024-01.com.example:disk1";
/// How long a blocking read waits before deadlines are checked.
const SLICE: Duration = Duration::from_millis(5);

/// A target with `ports` ports and these namespaces.
pub(crate) fn target(ports: usize, namespaces: &[NamespaceConfig]) -> TargetServer {
    TargetServer::start(target_config(ports, namespaces)).unwrap()
}

pub(crate) fn target_config(ports: usize, namespaces: &[NamespaceConfig]) -> TargetConfig {
    let mut config = TargetConfig::new(NQN);
    config.listeners = vec![ListenerConfig::new(own_address()); ports];
    config.namespaces = namespaces.to_vec();
    config
}

pub(crate) fn host_config() -> ControllerConfig {
    ControllerConfig {
        host: HostIdentity { hostnqn: Nqn::new("nqn.2024-01.com.example:host1").unwrap(), hostid: [7; 16] },
        subnqn: Nqn::new(NQN).unwrap(),
        nsids: Vec::new(),
        keep_alive_tmo: Duration::from_secs(5).into(),
        digests: Digests::default(),
        io_queues: 4,
        queue_entries: 64,
        max_transfer_bytes: None,
        command_timeout: PATIENCE.into(),
        authentication: None,
        is_encrypted: false,
    }
}

fn socket(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(SLICE)).unwrap();
    stream
}

/// Why a connection of the host has ended.
#[derive(Debug)]
pub(crate) enum Gone {
    /// The target has closed the connection.
    Eof,
    Failed(ErrorKind),
    Controller(ControllerError),
}

/// Reads bytes from the socket; `None` if none arrive for a while.
fn read_some(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<Option<usize>, Gone> {
    match stream.read(buffer) {
        Ok(0) => Err(Gone::Eof),
        Ok(bytes) => Ok(Some(bytes)),
        // SIGCONT after a stop interrupts reads that have a timeout.
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(Gone::Failed(error.kind())),
    }
}

/// The admin queue of an association.
pub(crate) struct Admin {
    pub(crate) controller: HostController,
    pub(crate) stream: TcpStream,
    /// Whether keep-alives are sent.
    pub(crate) alive: bool,
}

impl Admin {
    pub(crate) fn connect(addr: SocketAddr, config: ControllerConfig) -> Result<(Self, Box<ControllerInfo>), Gone> {
        let controller = HostController::new(config, monotonic::Instant::now()).unwrap();
        let mut admin = Self { controller, stream: socket(addr), alive: true };
        match admin.event()? {
            ControllerEvent::Live(info) => Ok((admin, info)),
            event => panic!("{event:?}"),
        }
    }

    /// The next event.
    pub(crate) fn event(&mut self) -> Result<ControllerEvent, Gone> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(event) = self.controller.poll_event() {
                return Ok(event);
            }
            self.turn()?;
            assert!(Instant::now() < deadline, "no event");
        }
    }

    pub(crate) fn turn(&mut self) -> Result<(), Gone> {
        let now = monotonic::Instant::now();
        if self.alive && self.controller.next_timeout().is_some_and(|due| due <= now) {
            self.controller.handle_timeout(now).map_err(Gone::Controller)?;
        }
        let mut out = Vec::new();
        self.controller.fill_tx(&mut out);
        self.stream.write_all(&out).map_err(|error| Gone::Failed(error.kind()))?;
        let mut buffer = [0; 16384];
        if let Some(bytes) = read_some(&mut self.stream, &mut buffer)? {
            self.controller.receive(monotonic::Instant::now(), &buffer[..bytes]).map_err(Gone::Controller)?;
        }
        Ok(())
    }
}

/// Payloads by tag.
#[derive(Default)]
pub(crate) struct Payloads(pub(crate) HashMap<Tag, Vec<u8>>);

impl PayloadSource for Payloads {
    fn gather(&self, tag: Tag, offset: u32, dst: &mut [u8]) {
        dst.copy_from_slice(&self.0[&tag][offset as usize..][..dst.len()]);
    }
}

impl PayloadSink for Payloads {
    fn scatter(&mut self, tag: Tag, offset: u32, src: &[u8]) {
        self.0.get_mut(&tag).unwrap()[offset as usize..][..src.len()].copy_from_slice(src);
    }
}

/// An I/O queue.
pub(crate) struct Queue {
    pub(crate) host: HostQueue,
    pub(crate) stream: TcpStream,
    pub(crate) payloads: Payloads,
    /// The position of the namespace for commands.
    pub(crate) namespace: u16,
    next_tag: u32,
    block_bytes: u32,
}

impl Queue {
    pub(crate) fn connect(addr: SocketAddr, config: QueueConfig) -> Self {
        let block_bytes = config.namespaces.iter().flatten().next().unwrap().block_bytes;
        let (host, payloads) = (HostQueue::new(config).unwrap(), Payloads::default());
        let mut queue = Self { host, stream: socket(addr), payloads, namespace: 0, next_tag: 0, block_bytes };
        let deadline = Instant::now() + PATIENCE;
        while !queue.host.is_ready() {
            queue.turn().unwrap();
            assert!(Instant::now() < deadline, "no connection");
        }
        queue
    }

    /// Submits a command. `payload` is the data to write, or the buffer to read into.
    pub(crate) fn submit(&mut self, command: IoCommand, payload: Vec<u8>) -> Tag {
        let tag = Tag(self.next_tag);
        self.next_tag += 1;
        self.payloads.0.insert(tag, payload);
        self.host.submit(tag, self.namespace, command).unwrap();
        tag
    }

    /// Sends all bytes that are ready.
    pub(crate) fn flush(&mut self) -> Result<(), Gone> {
        loop {
            let (mut staging, mut plan) = (Vec::with_capacity(STAGING_MIN.max(1 << 16)), Vec::new());
            self.host.fill_tx(monotonic::Instant::now(), &mut staging, &self.payloads, &mut plan, u32::MAX);
            if plan.is_empty() {
                return Ok(());
            }
            for part in plan {
                let bytes = match part {
                    TxPart::Staged { start, len } => &staging[start..][..len],
                    TxPart::Payload { tag, offset, len } => &self.payloads.0[&tag][offset as usize..][..len as usize],
                };
                self.stream.write_all(bytes).map_err(|error| Gone::Failed(error.kind()))?;
            }
        }
    }

    pub(crate) fn turn(&mut self) -> Result<(), Gone> {
        self.flush()?;
        let mut buffer = vec![0; 1 << 17];
        if let Some(bytes) = read_some(&mut self.stream, &mut buffer)? {
            self.host.receive(&buffer[..bytes], &mut self.payloads).unwrap();
        }
        Ok(())
    }

    /// The next completion.
    pub(crate) fn completion(&mut self) -> Result<Completion, Gone> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(completion) = self.host.poll_completion() {
                return Ok(completion);
            }
            self.turn()?;
            assert!(Instant::now() < deadline, "no completion");
        }
    }

    /// Runs one command. Returns the data that it read.
    pub(crate) fn run(&mut self, command: IoCommand, payload: Vec<u8>) -> Result<Vec<u8>, Status> {
        let tag = self.submit(command, payload);
        let completion = self.completion().unwrap();
        assert_eq!(completion.tag, tag);
        let payload = self.payloads.0.remove(&tag).unwrap();
        completion.result.map(|()| payload)
    }

    pub(crate) fn read(&mut self, slba: u64, blocks: u32) -> Result<Vec<u8>, Status> {
        // Not zeroes, so that a read without data is noticed.
        self.run(IoCommand::Read { slba, blocks }, vec![0xee; (blocks * self.block_bytes) as usize])
    }

    pub(crate) fn write(&mut self, slba: u64, data: &[u8], fua: bool) -> Result<(), Status> {
        let blocks = data.len() as u32 / self.block_bytes;
        self.run(IoCommand::Write { slba, blocks, fua }, data.to_vec()).map(drop)
    }
}

/// Applies settings in text form to the listener at `index`.
pub(crate) fn set(server: &TargetServer, index: usize, settings: &[&str]) {
    let settings: Vec<_> = settings.iter().map(|text| text.parse().unwrap()).collect();
    server.apply(index, &settings).unwrap();
}

/// The only namespace of an association.
pub(crate) fn only(info: &ControllerInfo) -> Namespace {
    let [namespace] = &info.namespaces[..] else { panic!("{info:?}") };
    namespace.clone().unwrap()
}

/// The event of the only namespace.
pub(crate) fn ana_changed(state: AnaState) -> ControllerEvent {
    ControllerEvent::AnaChanged { namespace: 0, state }
}

/// An association with one I/O queue.
pub(crate) fn connect(addr: SocketAddr, config: ControllerConfig) -> (Admin, Queue, Box<ControllerInfo>) {
    let (admin, info) = Admin::connect(addr, config).unwrap();
    let queue = Queue::connect(addr, admin.controller.queue_config(1).unwrap());
    (admin, queue, info)
}

/// Bytes that differ from block to block and from seed to seed.
pub(crate) fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i / 512) as u8 ^ (i as u8).rotate_left(3) ^ seed).collect()
}
