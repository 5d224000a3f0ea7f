//! PDUs of a host on the queues of a target, with the subsystem behind them.
#![no_main]

use fuzz::host::{Host, Step};
use fuzz::server::{BACKLOG_BYTES, Connection, Kind, Server, TRANSFER_BYTES_MAX};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use monotonic::Duration;
use nvme_tcp_target::TargetError;

/// Connections at a time, as of an admin queue and two I/O queues.
const CONNECTIONS: usize = 3;
/// The longest answer to one command, with headers and padding.
const ANSWER_BYTES_MAX: usize = TRANSFER_BYTES_MAX + 1024;
/// The R2Ts of one command: 4096 bytes each.
const R2T_BYTES_MAX: usize = TRANSFER_BYTES_MAX / 4096 * 28;
/// The most bytes of a PDU after its header: data of a fabrics or admin command, with digest.
const MISSING_BYTES_MAX: usize = 8192 + 4;
/// Entries of a queue: the most of an admin queue.
const ENTRIES_MAX: usize = 32;

#[derive(Arbitrary, Debug)]
struct Case {
    kind: Kind,
    cpda: u8,
    keeps_flow_control: bool,
    turns: Vec<Turn>,
}

#[derive(Arbitrary, Debug)]
enum Turn {
    /// The host sends. Some bytes are changed by XOR. The bytes arrive in parts of this length; 0 for one part.
    Send { connection: u8, step: Step, changes: Vec<(u16, u8)>, part: u8, is_delayed: bool },
    /// The host closes a connection and opens another.
    Close(u8),
    /// Time passes.
    Milliseconds(u16),
    /// The operator changes something.
    Change(u8),
}

/// Both sides of a connection.
struct Pair {
    host: Host,
    target: Connection,
}

impl Pair {
    fn new(server: &Server, cpda: u8) -> Self {
        Self { host: Host::new(server.nqn(), cpda), target: server.accept() }
    }

    /// Passes bytes to the target, and lets it execute commands. Returns whether the connection goes on. A host that stopped
    /// within a PDU reads nothing, because it does not know yet which command the answers belong to.
    fn send(&mut self, server: &mut Server, bytes: &[u8], part: usize, is_delayed: bool) -> bool {
        self.host.sent(bytes);
        for part in bytes.chunks(part) {
            let queue = &mut self.target.queue;
            let before = (queue.missing_bytes() as usize, queue.pending().len(), queue.has_ready(), queue.in_flight());
            let (missing, pending, has_ready, in_flight) = before;
            let result = queue.receive(part);
            let received = queue.pending().len() - pending;
            // Each PDU of at least 24 bytes leads to a response, and each capsule to R2Ts too. Two answers of the
            // authentication and a terminate request may follow.
            let most = 8 * part.len() + (in_flight + 1) * R2T_BYTES_MAX + 2 * ANSWER_BYTES_MAX;
            assert!(received <= most, "{received} bytes of answers");
            if part.len() < missing {
                assert!(
                    result.is_ok() && received == 0 && has_ready == queue.has_ready(),
                    "an answer before the last byte"
                );
            }
            if result.is_err() {
                assert_eq!(queue.receive(&[0]), Err(TargetError::Terminated));
                let last = queue.pending().to_vec();
                queue.sent(last.len());
                self.host.take_last(&last);
                return false;
            }
            assert!(queue.in_flight() <= ENTRIES_MAX && queue.missing_bytes() as usize <= MISSING_BYTES_MAX);
            if server.turn(&mut self.target, is_delayed).is_err() {
                return false;
            }
            let pending = self.target.queue.pending().len();
            assert!(pending <= BACKLOG_BYTES + most + ENTRIES_MAX * 28, "{pending} bytes of answers are pending");
            if pending >= BACKLOG_BYTES {
                if !self.host.sent_whole_pdus() {
                    return false;
                }
                self.read(usize::MAX);
            }
        }
        true
    }

    /// Lets the host read all answers, in parts.
    fn read(&mut self, part: usize) {
        let queue = &mut self.target.queue;
        while !queue.pending().is_empty() {
            let bytes = queue.pending().len().min(part);
            let answers = queue.pending()[..bytes].to_vec();
            queue.sent(bytes);
            self.host.take(&answers);
        }
    }
}

fuzz_target!(|case: Case| {
    let cpda = case.cpda % 32;
    let mut server = Server::new(case.kind, cpda, case.keeps_flow_control);
    let mut pairs: [_; CONNECTIONS] = std::array::from_fn(|_| Pair::new(&server, cpda));
    for turn in &case.turns {
        let mut ended = None;
        match turn {
            Turn::Send { connection, step, changes, part, is_delayed } => {
                let place = usize::from(*connection) % CONNECTIONS;
                let pair = &mut pairs[place];
                let mut bytes = pair.host.bytes(step, server.last);
                for (at, change) in changes {
                    if let Some(byte) = bytes.get_mut(usize::from(*at)) {
                        *byte ^= change;
                    }
                }
                let part = if *part == 0 { usize::MAX } else { (*part).into() };
                if !pair.send(&mut server, &bytes, part, *is_delayed) {
                    ended = Some(place);
                } else if pair.host.sent_whole_pdus() {
                    pair.read(part);
                    let in_flight = pair.target.queue.in_flight();
                    assert_eq!(pair.host.commands(), in_flight, "a command without an answer, or with two");
                    assert!(!pair.target.is_drained() || !pair.host.is_stuck(), "a command that nothing ends");
                }
            }
            Turn::Close(connection) => ended = Some(usize::from(*connection) % CONNECTIONS),
            Turn::Milliseconds(milliseconds) => server.wait(Duration::from_millis((*milliseconds).into())),
            Turn::Change(change) => server.change(*change),
        }
        if let Some(place) = ended {
            let pair = std::mem::replace(&mut pairs[place], Pair::new(&server, cpda));
            server.close(pair.target);
        }
    }
});
