//! The project's own host with this target, without sockets: random fragmentation, limits and orders, and two namespaces.

use std::collections::BTreeMap;

use monotonic::{Duration, Instant};
use nvme_tcp::host::{
    ControllerConfig, ControllerEvent, HostController, HostIdentity, HostQueue, IoCommand, PayloadSink, PayloadSource,
    STAGING_MIN, Tag, TxPart,
};
use nvme_tcp::wire::{Digests, Nqn, Status};
use proptest::prelude::*;

use super::{nqn, subsystem};
use crate::{AdminReply, IoScope, IoTask, QueueIdentity, QueueLimits, Subsystem, TargetCommand, TargetQueue, check_io};

/// The NSIDs of the two namespaces, in another order than their positions.
const NSIDS: [u32; 2] = [2, 1];
/// The block sizes in bytes, by position.
const BLOCK_BYTES: [usize; 2] = [4096, 512];
/// The blocks that each request has for itself.
const REGION_BLOCKS: u64 = 64;

/// Pseudo-random choices from a seed (xorshift64).
#[derive(Debug, Clone)]
pub(super) struct Choices(pub(super) u64);

impl Choices {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % bound
    }

    /// A length from 1 to `len`. Short lengths are more likely.
    fn cut(&mut self, len: usize) -> usize {
        let most = if self.below(3) == 0 { len } else { len.min(100) };
        1 + self.below(most)
    }
}

#[derive(Default)]
struct Payloads(BTreeMap<Tag, Vec<u8>>);

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

/// The target's side of one connection, with its storage.
struct Target<'a> {
    queue: TargetQueue,
    subsystem: &'a mut Subsystem,
    /// By namespace.
    stores: &'a mut [Vec<u8>; 2],
    held: Vec<TargetCommand>,
}

impl Target<'_> {
    /// Takes commands in order, and completes them in random order.
    fn turn(&mut self, now: Instant, choices: &mut Choices) {
        self.held.extend(std::iter::from_fn(|| self.queue.poll_command()));
        while !self.held.is_empty() && choices.below(4) != 0 {
            let command = self.held.swap_remove(choices.below(self.held.len()));
            self.execute(now, command);
        }
    }

    fn execute(&mut self, now: Instant, command: TargetCommand) {
        match self.queue.identity() {
            None => {
                let identity = self.subsystem.connect(now, 1, &command).unwrap();
                let authentication = self.subsystem.authentication(identity);
                self.queue.accept(command.token, identity, authentication);
            }
            Some(QueueIdentity { cntlid, qid: 0, .. }) => match self.subsystem.admin(now, cntlid, command) {
                AdminReply::Done { token, status, result } => self.queue.complete(token, status, result),
                AdminReply::Data { token, data } => {
                    self.queue.complete_with_data(token, data.len() as u32, |part, out| {
                        out.extend_from_slice(&data[part]);
                        Ok(())
                    });
                }
                AdminReply::Shutdown { token } => self.queue.complete(token, Status::SUCCESS, 0),
                AdminReply::Deferred | AdminReply::ResetController { .. } => {}
            },
            Some(QueueIdentity { cntlid, .. }) => self.execute_io(cntlid, command),
        }
    }

    fn execute_io(&mut self, cntlid: u16, command: TargetCommand) {
        let view = self.subsystem.io_view(cntlid).unwrap();
        let checked = check_io(&command, &self.subsystem.config().namespaces, &view);
        let (IoScope::One(namespace), task) = checked.unwrap() else { panic!("each command names its namespace") };
        let store = &mut self.stores[namespace];
        let ranges = match task {
            IoTask::Read(range) => {
                let content = &store[range.offset as usize..];
                return self.queue.complete_with_data(command.token, range.bytes as u32, |part, out| {
                    out.extend_from_slice(&content[part]);
                    Ok(())
                });
            }
            IoTask::Write { range, .. } => {
                store[range.offset as usize..][..range.bytes as usize].copy_from_slice(&command.payload);
                self.queue.reuse(command.payload);
                vec![]
            }
            IoTask::Flush => vec![],
            IoTask::WriteZeroes { range, .. } => vec![range],
            IoTask::Deallocate(ranges) => ranges,
        };
        for range in ranges {
            store[range.offset as usize..][..range.bytes as usize].fill(0);
        }
        self.queue.complete(command.token, Status::SUCCESS, 0);
    }

    /// Moves some bytes from the host to the target, and some in the other direction.
    fn exchange(&mut self, wire: &mut Vec<u8>, choices: &mut Choices) -> Vec<u8> {
        if !wire.is_empty() {
            let rest = wire.split_off(choices.cut(wire.len()));
            self.queue.receive(wire).unwrap();
            *wire = rest;
        }
        let pending = self.queue.pending();
        let answer = if pending.is_empty() { vec![] } else { pending[..choices.cut(pending.len())].to_vec() };
        self.queue.sent(answer.len());
        answer
    }
}

fn host_config(digests: Digests, entries: u16) -> ControllerConfig {
    let hostnqn = Nqn::new("nqn.2024-01.com.example:host1").unwrap();
    ControllerConfig {
        host: HostIdentity { hostnqn, hostid: [7; 16] },
        subnqn: nqn(),
        nsids: NSIDS.to_vec(),
        keep_alive_tmo: Duration::from_secs(10),
        digests,
        io_queues: 1,
        queue_entries: entries,
        max_transfer_bytes: None,
        command_timeout: Duration::from_secs(10),
        authentication: None,
        is_encrypted: false,
    }
}

/// Exchanges bytes until the association is live. The clock stands still.
fn go_live(host: &mut HostController, target: &mut Target<'_>, now: Instant, choices: &mut Choices) {
    let mut wire = Vec::new();
    for _ in 0..1_000_000 {
        host.fill_tx(&mut wire);
        let answer = target.exchange(&mut wire, choices);
        host.receive(now, &answer).unwrap();
        target.turn(now, choices);
        if let Some(ControllerEvent::Live(_)) = host.poll_event() {
            return;
        }
    }
    panic!("the controller does not become live");
}

/// Runs all requests until they complete. With `direct`, read payloads are received directly.
fn run(
    host: &mut HostQueue,
    target: &mut Target<'_>,
    payloads: &mut Payloads,
    requests: Vec<(Tag, u16, IoCommand)>,
    direct: bool,
    choices: &mut Choices,
) {
    let now = Instant::now();
    let (mut to_do, mut in_flight) = (requests.into_iter().peekable(), Vec::new());
    let (mut to_target, mut to_host) = (Vec::new(), Vec::new());
    for _ in 0..10_000_000 {
        while host.is_ready()
            && let Some((tag, namespace, command)) = to_do.next_if(|_| in_flight.len() < host.capacity())
        {
            host.submit(tag, namespace, command).unwrap();
            in_flight.push(tag);
        }
        let (mut staging, mut plan) = (Vec::with_capacity(STAGING_MIN + choices.below(9000)), Vec::new());
        host.fill_tx(Instant::now(), &mut staging, payloads, &mut plan, u32::MAX);
        for part in plan {
            match part {
                TxPart::Staged { start, len } => {
                    to_target.extend_from_slice(&staging[start..][..len]);
                }
                TxPart::Payload { tag, offset, len } => {
                    to_target.extend_from_slice(&payloads.0[&tag][offset as usize..][..len as usize]);
                }
            }
        }
        to_host.extend(target.exchange(&mut to_target, choices));
        target.turn(now, choices);
        if let Some(part) = host.direct().filter(|_| direct && !to_host.is_empty()) {
            let rest = to_host.split_off(to_host.len().min(part.len as usize));
            payloads.scatter(part.tag, part.offset, &to_host);
            host.received_direct(to_host.len() as u32).unwrap();
            to_host = rest;
        } else if !to_host.is_empty() {
            let rest = to_host.split_off(choices.cut(to_host.len()));
            host.receive(&to_host, payloads).unwrap();
            to_host = rest;
        }
        while let Some(completion) = host.poll_completion() {
            assert_eq!(completion.result, Ok(()));
            let index = in_flight.iter().position(|&tag| tag == completion.tag);
            in_flight.swap_remove(index.expect("each request completes once"));
        }
        if host.is_ready() && to_do.peek().is_none() && in_flight.is_empty() {
            return;
        }
    }
    panic!("requests never complete: {in_flight:?}");
}

/// The expected data of the namespace at this position.
fn model_of(models: &mut [Vec<u8>; 2], position: u16) -> &mut Vec<u8> {
    &mut models[NSIDS[usize::from(position)] as usize - 1]
}

fn limits() -> impl Strategy<Value = QueueLimits> {
    let sizes = (1u32..4, 1u32..9, 1u32..9, 0u32..3, 0u8..32, 3u32..6);
    sizes.prop_map(|(h2c, r2t, c2h, capsule, cpda, mdts)| QueueLimits {
        in_capsule_bytes: [0, 4096, 8192][capsule as usize],
        max_transfer_bytes: 8192 << (mdts - 3),
        max_h2c_data_bytes: h2c * 4096,
        max_r2t_bytes: r2t * 1500,
        max_c2h_data_bytes: c2h * 1500,
        transfer_budget_bytes: 16384,
        cpda,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn written_data_are_read_with_any_fragmentation(
        limits in limits(),
        header: bool,
        data: bool,
        direct: bool,
        entries in 2u16..9,
        seed in 1u64..,
        requests in proptest::collection::vec((0u16..2, 0u8..5, 0u64..REGION_BLOCKS, 1u64..REGION_BLOCKS, 1u8..), 1..12),
    ) {
        let now = Instant::now();
        let mut choices = Choices(seed);
        let mut config = subsystem().config().clone();
        config.limits = limits;
        let mut stores = [0, 1].map(|namespace| vec![0xaa; config.namespaces[namespace].bytes() as usize]);
        let mut models = stores.clone();
        let mut subsystem = Subsystem::new(config);
        let host_config = host_config(Digests { header, data }, entries);
        let mut controller = HostController::new(host_config, now).unwrap();
        let queue_config = {
            let queue = TargetQueue::new(limits);
            let mut admin = Target { queue, subsystem: &mut subsystem, stores: &mut stores, held: vec![] };
            go_live(&mut controller, &mut admin, now, &mut choices);
            controller.queue_config(1).unwrap()
        };
        prop_assert_eq!(queue_config.max_transfer_bytes, limits.max_transfer_bytes);
        let mut host = HostQueue::new(queue_config).unwrap();
        let queue = TargetQueue::new(limits);
        let mut target = Target { queue, subsystem: &mut subsystem, stores: &mut stores, held: vec![] };
        let mut payloads = Payloads::default();

        // First all data are changed, each request in its own region.
        let mut changes = Vec::new();
        for (i, &(namespace, kind, start, blocks, fill)) in requests.iter().enumerate() {
            let blocks = blocks.min(REGION_BLOCKS - start);
            let slba = i as u64 * REGION_BLOCKS + start;
            let block_bytes = BLOCK_BYTES[usize::from(namespace)];
            let range = slba as usize * block_bytes..(slba + blocks) as usize * block_bytes;
            let model = model_of(&mut models, namespace);
            let (blocks, fua) = (blocks as u32, kind == 1);
            let tag = Tag(i as u32);
            let command = match kind {
                0 | 1 => {
                    let content: Vec<u8> = (0..range.len()).map(|at| (at / 3) as u8 ^ fill).collect();
                    model[range].copy_from_slice(&content);
                    payloads.0.insert(tag, content);
                    IoCommand::Write { slba, blocks, fua }
                }
                2 => IoCommand::Flush,
                3 => {
                    model[range].fill(0);
                    IoCommand::WriteZeroes { slba, blocks, deallocate: fua, fua }
                }
                _ => {
                    model[range].fill(0);
                    IoCommand::Deallocate { slba, blocks }
                }
            };
            changes.push((tag, namespace, command));
        }
        run(&mut host, &mut target, &mut payloads, changes, direct, &mut choices);
        prop_assert!(*target.stores == models);

        // Then all data are read.
        let mut reads = Vec::new();
        for (i, &(namespace, ..)) in requests.iter().enumerate() {
            let tag = Tag(1000 + i as u32);
            let (slba, blocks) = (i as u64 * REGION_BLOCKS, REGION_BLOCKS as u32);
            payloads.0.insert(tag, vec![0x55; REGION_BLOCKS as usize * BLOCK_BYTES[usize::from(namespace)]]);
            reads.push((tag, namespace, IoCommand::Read { slba, blocks }));
        }
        run(&mut host, &mut target, &mut payloads, reads, direct, &mut choices);
        for (i, &(namespace, ..)) in requests.iter().enumerate() {
            let region_bytes = REGION_BLOCKS as usize * BLOCK_BYTES[usize::from(namespace)];
            let region = &model_of(&mut models, namespace)[i * region_bytes..][..region_bytes];
            prop_assert!(payloads.0[&Tag(1000 + i as u32)] == region);
        }
        prop_assert_eq!(target.queue.in_flight(), 0);
    }
}
