//! Mostly invalid messages of a front-end, through the real message loop.
#![no_main]

use fuzz::{FrontEnd, GUEST_START, MEMORY_BYTES, Turns, USER_START};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    /// Features to negotiate before the messages, because most messages need that. `None`: nothing is negotiated.
    features: Option<u64>,
    started: Vec<(u8, u8, u16)>,
    memory: Vec<(u16, [u8; 16])>,
    messages: Vec<Message>,
}

#[derive(Arbitrary, Debug)]
struct Message {
    request: Request,
    need_reply: bool,
    body: Body,
    /// The descriptors to pass. `true`: one of the memory. `false`: one of an eventfd.
    descriptors: Vec<bool>,
}

#[derive(Arbitrary, Debug)]
enum Request {
    Known(u8),
    Any { request: u32, flags: u32, size: u32 },
}

#[derive(Arbitrary, Debug)]
enum Body {
    Bytes(Vec<u8>),
    Words(Vec<u64>),
    /// The index of a ring, and a number.
    State(u8, u32),
    /// Addresses of a ring, as offsets in memory.
    Addresses {
        index: u8,
        flags: u8,
        parts: [u16; 3],
        log: u64,
    },
    Region {
        guest: u16,
        bytes: u32,
        user: u16,
        offset: u16,
    },
    Config {
        offset: u8,
        bytes: Vec<u8>,
    },
}

/// The largest known request. The smallest is 1.
const KNOWN: u8 = 44;
const VERSION: u32 = 1;
const NEED_REPLY: u32 = 1 << 3;
const DESCRIPTORS_MAX: usize = 8;

impl Body {
    fn bytes(self) -> Vec<u8> {
        let of = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Words(words) => of(&words),
            Self::State(index, num) => of(&[u64::from(index) | u64::from(num) << 32]),
            Self::Addresses { index, flags, parts, log } => {
                let [descriptors, used, available] = parts.map(|offset| USER_START + u64::from(offset));
                of(&[u64::from(index) | u64::from(flags) << 32, descriptors, used, available, log])
            }
            Self::Region { guest, bytes, user, offset } => {
                let (guest, user) = (GUEST_START + u64::from(guest), USER_START + u64::from(user));
                of(&[1, guest, u64::from(bytes) % (2 * MEMORY_BYTES), user, offset.into()])
            }
            Self::Config { offset, bytes } => {
                let header = [u32::from(offset), bytes.len() as u32, 0].map(u32::to_ne_bytes).concat();
                [header, bytes].concat()
            }
        }
    }
}

fuzz_target!(|case: Case| {
    let mut front_end = FrontEnd::new();
    for (at, bytes) in case.memory {
        front_end.put(at.into(), &bytes);
    }
    if let Some(features) = case.features {
        front_end.begin(features);
        for (queue, size, base) in case.started {
            let at = u64::from(queue % 4) * 0x4000;
            front_end.start_queue(queue.into(), 1 << (size % 9), base.into(), [at, at + 0x2000, at + 0x1000]);
        }
    }
    for Message { request, need_reply, body, descriptors } in case.messages {
        let body = body.bytes();
        let descriptors: Vec<_> =
            descriptors.into_iter().take(DESCRIPTORS_MAX).map(|memory| front_end.descriptor(memory)).collect();
        match request {
            Request::Known(request) => {
                let flags = VERSION | if need_reply { NEED_REPLY } else { 0 };
                front_end.send(u32::from(request % KNOWN) + 1, flags, &body, &descriptors);
            }
            Request::Any { request, flags, size } => {
                let header = [request, flags, size].map(u32::to_ne_bytes).concat();
                front_end.send_raw(&header, &body, &descriptors);
            }
        }
    }
    front_end.end(&Turns::default());
});
