//! Answers of a controller on an I/O queue. Payloads are read and written only within their requests.
#![no_main]

use fuzz::controller::{Controller, Step, queue_config};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use monotonic::Instant;
use nvme_tcp::host::{HostQueue, IoCommand, PayloadSink, PayloadSource, STAGING_MIN, Tag, TxPart};
use nvme_tcp::wire::Digests;

#[derive(Arbitrary, Debug)]
struct Case {
    header_digest: bool,
    data_digest: bool,
    turns: Vec<Turn>,
}

#[derive(Arbitrary, Debug)]
enum Turn {
    Submit { is_write: bool, slba: u16, blocks: u8 },
    Controller(Step),
}

/// Requests of up to 256 blocks.
const PAYLOAD_BYTES_MAX: usize = 256 * 512;

/// The lengths of payloads, by tag. `None`: no request is in flight.
#[derive(Default)]
struct Payloads(Vec<Option<usize>>);

impl Payloads {
    fn check(&self, tag: Tag, offset: u32, bytes: usize) {
        let length = self.0[tag.0 as usize].expect("only payloads of requests in flight are touched");
        assert!(offset as usize + bytes <= length, "beyond the payload");
    }
}

impl PayloadSource for Payloads {
    fn gather(&self, tag: Tag, offset: u32, dst: &mut [u8]) {
        self.check(tag, offset, dst.len());
        dst.fill(7);
    }
}

impl PayloadSink for Payloads {
    fn scatter(&mut self, tag: Tag, offset: u32, src: &[u8]) {
        self.check(tag, offset, src.len());
    }
}

fuzz_target!(|case: Case| {
    let digests = Digests { header: case.header_digest, data: case.data_digest };
    let Ok(mut queue) = HostQueue::new(queue_config(digests)) else { return };
    let (mut controller, mut payloads) = (Controller::default(), Payloads::default());
    let (mut staging, mut plan) = (Vec::with_capacity(STAGING_MIN * 2), Vec::new());
    let now = Instant::now();
    for turn in &case.turns {
        match turn {
            Turn::Submit { is_write, slba, blocks } => {
                let (slba, blocks) = (u64::from(*slba), u32::from(*blocks).max(1));
                let command = match is_write {
                    true => IoCommand::Write { slba, blocks, fua: false },
                    false => IoCommand::Read { slba, blocks },
                };
                let tag = Tag(payloads.0.len() as u32);
                if queue.submit(tag, 0, command).is_ok() {
                    assert!(blocks as usize * 512 <= PAYLOAD_BYTES_MAX);
                    payloads.0.push(Some(blocks as usize * 512));
                }
            }
            Turn::Controller(step) => {
                let (bytes, _) = controller.bytes(step);
                if queue.receive(&bytes, &mut payloads).is_err() {
                    let _ = queue.term_req();
                    return queue.into_lost().for_each(drop);
                }
                let _ = queue.direct();
            }
        }
        staging.clear();
        plan.clear();
        queue.fill_tx(now, &mut staging, &payloads, &mut plan, 64 << 10);
        for part in &plan {
            match *part {
                TxPart::Staged { start, len } => controller.take(&staging[start..start + len]),
                TxPart::Payload { tag, offset, len } => {
                    payloads.check(tag, offset, len as usize);
                    controller.take(&vec![7; len as usize]);
                }
            }
        }
        while let Some(completion) = queue.poll_completion() {
            let ended = payloads.0[completion.tag.0 as usize].take();
            assert!(ended.is_some(), "a request ends once");
        }
    }
});
