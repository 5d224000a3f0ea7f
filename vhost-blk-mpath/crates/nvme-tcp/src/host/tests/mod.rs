//! Tests of the host, with scripted and random targets that are legal or violate the protocol.

mod admin;
mod admin_target;
mod ages;
mod ana_log;
mod association;
mod authentication;
mod connect;
mod cross_reset;
mod discovery;
mod handshake;
mod hostile;
mod max_transfer;
mod mini_target;
mod namespaces;
mod parts;
mod recall;
mod session;
mod term_req;
mod violations;
mod writes;

use monotonic::Instant;

use super::{
    CommandLimits, HostIdentity, NamespaceLimits, PayloadSink, PayloadSource, QueueConfig, STAGING_MIN, Tag, TxPart,
};
use crate::wire::{Digests, Nqn};

/// Pseudo-random choices from a seed (`SplitMix64`).
#[derive(Debug, Clone)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `end` − 1.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Payloads by tag.
#[derive(Debug, Default)]
struct Payloads(Vec<Vec<u8>>);

impl Payloads {
    fn of(&mut self, tag: Tag) -> &mut Vec<u8> {
        let index = tag.0 as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, Vec::new());
        }
        &mut self.0[index]
    }
}

impl PayloadSource for Payloads {
    fn gather(&self, tag: Tag, offset: u32, dst: &mut [u8]) {
        let start = offset as usize;
        dst.copy_from_slice(&self.0[tag.0 as usize][start..start + dst.len()]);
    }
}

impl PayloadSink for Payloads {
    fn scatter(&mut self, tag: Tag, offset: u32, src: &[u8]) {
        let start = offset as usize;
        self.0[tag.0 as usize][start..start + src.len()].copy_from_slice(src);
    }
}

fn host_identity() -> HostIdentity {
    HostIdentity { hostnqn: Nqn::new("nqn.2014-08.org.nvmexpress:uuid:host").unwrap(), hostid: [9; 16] }
}

fn subnqn() -> Nqn {
    Nqn::new("nqn.2024-01.io.test:subsystem").unwrap()
}

const NAMESPACE: NamespaceLimits =
    NamespaceLimits { nsid: 1, block_bytes: 512, namespace_blocks: 2048, noiob_blocks: 0 };

fn queue_config(digests: Digests) -> QueueConfig {
    QueueConfig {
        qid: 1,
        entries: 8,
        host: host_identity(),
        subnqn: subnqn(),
        cntlid: 5,
        digests,
        max_transfer_bytes: 128 * 1024,
        reports_max_transfer: true,
        command_limits: CommandLimits::NONE,
        in_capsule_bytes: 4096,
        namespaces: vec![Some(NAMESPACE)],
        authentication: None,
        is_encrypted: false,
    }
}

/// Payload that a call names.
const ENOUGH: u32 = 128 << 10;

/// All bytes that are ready to send, as one stream. `capacity` is that of the staging buffer.
fn transmit(now: Instant, queue: &mut super::HostQueue, payloads: &Payloads, capacity: usize) -> Vec<u8> {
    assert!(capacity >= STAGING_MIN);
    let mut stream = Vec::new();
    loop {
        let (mut staging, mut plan) = (Vec::with_capacity(capacity), Vec::new());
        let allocated = staging.capacity();
        let has_output = queue.has_output();
        queue.fill_tx(now, &mut staging, payloads, &mut plan, ENOUGH);
        assert!(has_output || plan.is_empty(), "the queue pair has said that there is nothing to send");
        assert_eq!(staging.capacity(), allocated, "the staging buffer does not grow");
        if plan.is_empty() {
            assert!(staging.is_empty());
            return stream;
        }
        for part in plan {
            match part {
                TxPart::Staged { start, len } => {
                    stream.extend_from_slice(&staging[start..start + len]);
                }
                TxPart::Payload { tag, offset, len } => {
                    let start = stream.len();
                    stream.resize(start + len as usize, 0);
                    payloads.gather(tag, offset, &mut stream[start..]);
                }
            }
        }
    }
}
