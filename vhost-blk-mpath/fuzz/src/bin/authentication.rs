//! Messages of in-band authentication, to the host and to the controller, mostly changed ones of the other side.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use nvme_auth::{
    AuthConfig, Concatenation, ControllerAuthentication, DhGroup, Hash, HostAuthentication, Message, RANDOM_BYTES,
    Secret, Step,
};

#[derive(Arbitrary, Debug)]
struct Case {
    random: u8,
    bidirectional: bool,
    group: bool,
    changes: Vec<Change>,
}

#[derive(Arbitrary, Debug)]
enum Change {
    /// The message arrives as it is, apart from these bytes.
    Flip(Vec<(u8, u8)>),
    Replace(Vec<u8>),
    Cut(u8),
}

impl Change {
    fn apply(&self, message: &mut Vec<u8>) {
        match self {
            Self::Flip(flips) => {
                for (at, flip) in flips {
                    if let Some(byte) = message.get_mut(usize::from(*at)) {
                        *byte ^= flip;
                    }
                }
            }
            Self::Replace(bytes) => message.clone_from(bytes),
            Self::Cut(bytes) => message.truncate((*bytes).into()),
        }
    }
}

fuzz_target!(|case: Case| {
    // Group null generates no key. The corpus has no field of its own for this.
    let generates = case.group && case.random & 1 == 1;
    let secret = |byte| Secret::new(Some(Hash::Sha256), &[byte; 32]).expect("a secret");
    let config = AuthConfig {
        hostnqn: "nqn.host".into(),
        subnqn: "nqn.disk".into(),
        host_secret: secret(1),
        controller_secret: case.bidirectional.then(|| secret(2)),
        hashes: vec![Hash::Sha256, Hash::Sha384],
        groups: vec![if case.group { DhGroup::Ffdhe2048 } else { DhGroup::Null }],
        concatenation: if generates { Concatenation::NewTlsPsk } else { Concatenation::None },
    };
    let mut host = HostAuthentication::new(config.clone()).expect("a configuration");
    let mut controller = ControllerAuthentication::new(config).expect("a configuration");
    let fill = |add: u8| move |bytes: &mut [u8; RANDOM_BYTES]| bytes.fill(case.random.wrapping_add(add));
    let mut message = host.start(7, fill(1));
    let mut to_controller = true;
    let (mut of_host, mut of_controller) = (None, None);
    for change in &case.changes {
        change.apply(&mut message);
        if let Ok(parsed) = Message::parse(&message) {
            let _ = Message::parse(&parsed.emit()).expect("what is emitted can be parsed");
        }
        let step = if to_controller {
            controller.receive(&message, fill(2)).map_err(|failure| failure.message)
        } else {
            host.receive(&message).map_err(|failure| failure.message)
        };
        message = match step {
            Ok(Step::Continue { message }) => message,
            Ok(Step::Authenticated { message, session }) => {
                let psk = session.generated_psk().expect("OpenSSL computes it");
                assert_eq!(psk.is_some(), generates);
                if to_controller {
                    of_controller = psk
                } else {
                    of_host = psk
                }
                message.unwrap_or_default()
            }
            Err(message) => message.unwrap_or_default(),
        };
        to_controller = !to_controller;
    }
    // Whatever was changed on the way: two sides that have proven themselves have the same key.
    if let (true, Some(of_host), Some(of_controller)) = (case.bidirectional, of_host, of_controller) {
        assert_eq!(of_host.as_bytes(), of_controller.as_bytes());
    }
});
