//! Both sides of a TLS session whose bytes are cut, changed, left out and repeated on their way.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use nvme_tls::psk::{Candidate, ConfiguredPsk, RetainedHash, candidates};
use nvme_tls::{KeyLookup, Session};

#[derive(Arbitrary, Debug)]
struct Case {
    sha384: bool,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// Moves up to this many bytes, and changes one of them by XOR with the second number.
    Move {
        to_host: bool,
        bytes: u16,
        flip: u8,
        at: u16,
    },
    /// The bytes are lost.
    Lose {
        to_host: bool,
        bytes: u8,
    },
    Insert {
        to_host: bool,
        bytes: Vec<u8>,
    },
    Write {
        by_host: bool,
        bytes: u16,
    },
    Close {
        by_host: bool,
    },
}

struct Keys(Vec<Candidate>);

impl KeyLookup for Keys {
    fn find(&self, identity: &str) -> Option<Candidate> {
        self.0.iter().find(|candidate| candidate.identity() == identity).cloned()
    }
}

struct Side {
    session: Session,
    established: bool,
    ended: bool,
    /// Bytes written, and bytes that the other side has read.
    written: usize,
    read: usize,
}

impl Side {
    fn new(session: Session) -> Self {
        Self { session, established: false, ended: false, written: 0, read: 0 }
    }

    fn receive(&mut self, bytes: &[u8]) {
        if self.ended {
            return;
        }
        self.session.receive(bytes);
        self.go_on();
    }

    fn go_on(&mut self) {
        match self.session.handshake() {
            Ok(established) => self.established = established,
            Err(_) => self.ended = true,
        }
        let mut plain = [0; 1000];
        while self.established && !self.ended {
            match self.session.read(&mut plain) {
                Ok(0) => break,
                Ok(bytes) => {
                    // Whatever happens to records, what is read was written, in order.
                    for (place, byte) in plain[..bytes].iter().enumerate() {
                        assert_eq!(*byte, (self.read + place) as u8);
                    }
                    self.read += bytes;
                }
                Err(_) => self.ended = true,
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let pending = self.session.pending();
        let bytes = pending.len().min(bytes);
        pending.drain(..bytes).collect()
    }
}

fuzz_target!(|case: Case| {
    let (hash, bytes) = if case.sha384 { (RetainedHash::Sha384, 48) } else { (RetainedHash::Sha256, 32) };
    let psk = ConfiguredPsk::new(hash, &vec![7; bytes]).expect("a key");
    let nqn = |name: &str| name.parse().expect("an NQN");
    let known = candidates(&psk, &nqn("nqn.host"), &nqn("nqn.disk")).expect("candidates");
    let mut host = Side::new(Session::host(known[0].clone()).expect("a session"));
    let mut controller = Side::new(Session::controller(Arc::new(Keys(known))).expect("a session"));
    host.go_on();
    for step in &case.steps {
        match step {
            Step::Move { to_host, bytes, flip, at } => {
                let (from, to) = if *to_host { (&mut controller, &mut host) } else { (&mut host, &mut controller) };
                let mut moved = from.take((*bytes).into());
                if let Some(byte) = moved.get_mut(usize::from(*at)) {
                    *byte ^= flip;
                }
                to.receive(&moved);
            }
            Step::Lose { to_host, bytes } => {
                let from = if *to_host { &mut controller } else { &mut host };
                from.take((*bytes).into());
            }
            Step::Insert { to_host, bytes } => {
                let to = if *to_host { &mut host } else { &mut controller };
                to.receive(bytes);
            }
            Step::Write { by_host, bytes } => {
                let from = if *by_host { &mut host } else { &mut controller };
                if from.established && !from.ended {
                    let first = from.written;
                    let text: Vec<u8> = (first..first + usize::from(*bytes)).map(|place| place as u8).collect();
                    from.ended |= from.session.write(&text).is_err();
                    from.written += text.len();
                }
            }
            Step::Close { by_host } => {
                let from = if *by_host { &mut host } else { &mut controller };
                from.session.close();
                from.ended = true;
            }
        }
    }
    assert!(host.read <= controller.written && controller.read <= host.written);
});
