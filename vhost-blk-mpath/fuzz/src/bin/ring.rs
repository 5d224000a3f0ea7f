//! Arbitrary rings, chains and requests of a guest, through the real set-up of a queue.
#![no_main]

use fuzz::request::GET_VRING_BASE;
use fuzz::{FrontEnd, GUEST_START, MEMORY_BYTES, Turns};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    features: u64,
    size_log2: u8,
    base: u16,
    /// How far the available index is ahead of the start position.
    ahead: u16,
    heads: Vec<u8>,
    descriptors: Vec<Descriptor>,
    requests: Vec<Header>,
    bytes: Vec<u8>,
}

#[derive(Arbitrary, Debug)]
struct Descriptor {
    address: Address,
    bytes: Length,
    flags: u16,
    next: u16,
}

#[derive(Arbitrary, Debug)]
enum Address {
    /// An offset in the part of memory that has requests and indirect tables.
    Data(u16),
    Inside(u16),
    Any(u64),
}

#[derive(Arbitrary, Debug)]
enum Length {
    Header,
    Status,
    Small(u16),
    Any(u32),
}

#[derive(Arbitrary, Debug)]
struct Header {
    at: u16,
    kind: u8,
    sector: u16,
    range: Option<(u32, u32)>,
}

const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const DATA: u64 = 0x4000;
const QUEUE_SIZE_LOG2_MAX: u8 = 8;

fn descriptor(of: &Descriptor) -> Vec<u8> {
    let address = match of.address {
        Address::Data(at) => GUEST_START + DATA + u64::from(at) % (MEMORY_BYTES - DATA),
        Address::Inside(at) => GUEST_START + u64::from(at),
        Address::Any(address) => address,
    };
    let bytes = match of.bytes {
        Length::Header => 16,
        Length::Status => 1,
        Length::Small(bytes) => bytes.into(),
        Length::Any(bytes) => bytes,
    };
    [&address.to_le_bytes()[..], &bytes.to_le_bytes(), &of.flags.to_le_bytes(), &of.next.to_le_bytes()].concat()
}

fuzz_target!(|case: Case| {
    let mut front_end = FrontEnd::new();
    let size = 1_u16 << (case.size_log2 % (QUEUE_SIZE_LOG2_MAX + 1));
    front_end.put(DATA, &case.bytes);
    for Header { at, kind, sector, range } in &case.requests {
        let mut header = [u64::from(*kind), u64::from(*sector)].map(u64::to_le_bytes).concat();
        if let Some((sectors, flags)) = range {
            header.extend(
                [u64::from(*sector), u64::from(*sectors) | u64::from(*flags) << 32].map(u64::to_le_bytes).concat(),
            );
        }
        front_end.put(DATA + u64::from(*at), &header);
    }
    for (slot, of) in (0..).zip(&case.descriptors) {
        // Descriptors beyond the ring go to an indirect table.
        let at = if slot < u64::from(size) { slot * 16 } else { DATA + (slot - u64::from(size)) * 16 };
        front_end.put(at, &descriptor(of));
    }
    let ahead = case.ahead % (size + 2);
    let mut available = [0, case.base.wrapping_add(ahead)].map(u16::to_le_bytes).concat();
    available.extend(case.heads.iter().flat_map(|head| u16::from(*head).to_le_bytes()));
    front_end.put(AVAILABLE, &available);
    front_end.begin(case.features);
    front_end.start_queue(0, size.into(), case.base.into(), [0, USED, AVAILABLE]);
    front_end.say(GET_VRING_BASE, &[0], &[]);
    front_end.end(&Turns::default());
});
