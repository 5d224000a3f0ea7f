//! The requests of an I/O thread; a request's tag is its place here. And what the core owes each of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpath_core::{DiskId, FlowId, GroupConfig, Io, IoError, Op, Outcome, Tag};
use nvme_tcp::host::{IoCommand, PayloadSink, PayloadSource};
use nvme_tcp::wire::Status;

use super::{Asked, DiskPlan};
use crate::check::{Kind, fill};

#[derive(Debug)]
struct Slot {
    asked: Asked,
    since: Instant,
    /// The guest's memory.
    buffer: Vec<u8>,
    /// How many sockets have it.
    on_sockets: u32,
    retries: u32,
    failovers: u32,
    /// A controller gave a final status.
    refused: bool,
    /// A controller said not to ask again (DNR).
    forbidden: bool,
    /// A controller asked not to be asked again before.
    not_before: Option<Instant>,
    /// An injection has altered answers meanwhile: what the group has heard of attempts may not be what happened to them.
    altered: bool,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// What hedges have read.
    hedges: BTreeMap<Tag, Vec<u8>>,
    /// An injection is in force that alters answers.
    altering: bool,
}

/// How long a flush waits for a path that is live and inaccessible.
const FLUSH_UNUSABLE_MAX: Duration = Duration::from_secs(30);

/// Guest memory that nothing was read into.
const UNTOUCHED: u8 = 0xee;

impl Requests {
    /// Takes a request in: what the group has to know of it.
    pub(super) fn insert(&mut self, now: Instant, asked: Asked, plan: &DiskPlan) -> Io {
        let bytes = asked.blocks * plan.block_bytes;
        let mut buffer = Vec::new();
        match asked.kind {
            Kind::Read => buffer.resize(bytes as usize, UNTOUCHED),
            Kind::Write { .. } => {
                buffer.resize(bytes as usize, 0);
                fill(asked.disk.0.into(), asked.id, asked.lba, plan.block_bytes as usize, &mut buffer);
            }
            _ => {}
        }
        let slot = Slot {
            asked,
            since: now,
            buffer,
            on_sockets: 0,
            retries: 0,
            failovers: 0,
            refused: false,
            forbidden: false,
            not_before: None,
            altered: self.altering,
        };
        let tag = if let Some(place) = self.free.pop() {
            self.slots[place as usize] = Some(slot);
            Tag(place)
        } else {
            self.slots.push(Some(slot));
            Tag(self.slots.len() as u32 - 1)
        };
        let (op, bytes, fua) = match asked.kind {
            Kind::Read => (Op::Read, bytes, false),
            Kind::Write { fua } => (Op::Write, bytes, fua),
            Kind::Flush => (Op::Flush, 0, false),
            Kind::Discard => (Op::Discard, 0, false),
            Kind::WriteZeroes { fua } => (Op::WriteZeroes, 0, fua),
        };
        Io { tag, op, bytes, disk: asked.disk, flow: FlowId(plan.first_flow.0 + asked.flow), fua }
    }

    pub(super) fn command(&self, tag: Tag) -> IoCommand {
        let Asked { kind, lba: slba, blocks, .. } = self.slot(tag).asked;
        match kind {
            Kind::Read => IoCommand::Read { slba, blocks },
            Kind::Write { fua } => IoCommand::Write { slba, blocks, fua },
            Kind::Flush => IoCommand::Flush,
            Kind::Discard => IoCommand::Deallocate { slba, blocks },
            Kind::WriteZeroes { fua } => IoCommand::WriteZeroes { slba, blocks, deallocate: false, fua },
        }
    }

    /// Bytes the request moves over a path.
    pub(super) fn bytes(&self, tag: Tag) -> u64 {
        self.slot(tag).buffer.len() as u64
    }

    pub(super) fn id(&self, tag: Tag) -> u64 {
        self.slot(tag).asked.id
    }

    pub(super) fn disk(&self, tag: Tag) -> DiskId {
        self.slot(tag).asked.disk
    }

    pub(super) fn kind(&self, tag: Tag) -> Kind {
        self.slot(tag).asked.kind
    }

    /// Whether the group may have heard of its attempts what did not happen to them.
    pub(super) fn is_altered(&self, tag: Tag) -> bool {
        self.slot(tag).altered
    }

    /// Whether nothing but a loss of writes explains an error of this flush.
    pub(super) fn tells_of_loss(&self, now: Instant, tag: Tag, config: &GroupConfig) -> bool {
        let slot = self.slot(tag);
        let trouble = slot.refused || slot.altered || slot.retries > 0 || slot.failovers > 0;
        !trouble && config.no_path_timeout.is_none() && now - slot.since < FLUSH_UNUSABLE_MAX
    }

    /// Whether an injection alters answers from now on.
    pub(super) fn set_altering(&mut self, altering: bool) {
        self.altering = altering;
        if altering {
            self.slots.iter_mut().flatten().for_each(|slot| slot.altered = true);
        }
    }

    /// A request is given to a socket.
    pub(super) fn issued(&mut self, tag: Tag) {
        self.slots[tag.0 as usize].as_mut().expect("a request in the table").on_sockets += 1;
    }

    /// A read is given to a second socket, with memory of its own.
    pub(super) fn hedged(&mut self, tag: Tag) {
        let before = self.hedges.insert(tag, vec![UNTOUCHED; self.bytes(tag) as usize]);
        assert!(before.is_none(), "one hedge a read");
    }

    pub(super) fn drop_hedge(&mut self, tag: Tag) {
        assert!(self.hedges.remove(&tag).is_some(), "a hedge ends once");
    }

    /// Moves what a hedge has read to the guest.
    pub(super) fn adopt(&mut self, tag: Tag) -> Result<(), String> {
        let data = self.hedges.remove(&tag).expect("a hedge ends once");
        let slot = self.slots[tag.0 as usize].as_mut().expect("a hedge ends before its read");
        if slot.on_sockets > 0 {
            return Err(format!("#{} has the data of a hedge while a path may still write there", slot.asked.id));
        }
        slot.buffer = data;
        Ok(())
    }

    /// What a controller says of a request, or the first thing that one of its parts was told.
    pub(super) fn heard(&mut self, tag: Tag, result: Result<(), Status>) {
        // Probes and hedges stand in no table.
        if let Some(Some(slot)) = self.slots.get_mut(tag.0 as usize) {
            slot.forbidden |= result.is_err_and(Status::dnr);
        }
    }

    /// An attempt of a request ended so.
    pub(super) fn attempted(&mut self, now: Instant, tag: Tag, outcome: Outcome) {
        let slot = self.slots[tag.0 as usize].as_mut().expect("an attempt of a request in the table");
        slot.on_sockets -= 1;
        match outcome {
            // Taken back from a silent path: no failure of the request's.
            Outcome::Success | Outcome::Recalled { .. } => {}
            Outcome::Retry { after } => {
                slot.retries += 1;
                slot.not_before = Some(now + after);
            }
            Outcome::Failed(_) | Outcome::GivenUp => slot.refused = true,
            Outcome::PathError | Outcome::Lost { .. } => slot.failovers += 1,
        }
    }

    /// Whether the group may issue this again now.
    pub(super) fn check_issue(&self, now: Instant, tag: Tag, config: &GroupConfig) -> Result<(), String> {
        let slot = self.slot(tag);
        if slot.asked.kind == Kind::Flush || slot.altered {
            // Each path has its own count; and answers may have been replaced or lost on the way to the group.
            return Ok(());
        }
        if slot.retries > config.max_retries || slot.failovers > config.max_failovers {
            return Err(format!(
                "#{} issued after {} retries, {} failovers",
                slot.asked.id, slot.retries, slot.failovers
            ));
        }
        if slot.forbidden {
            return Err(format!("#{} issued again though its controller forbade it", slot.asked.id));
        }
        if slot.not_before.is_some_and(|at| now < at) {
            return Err(format!("#{} issued before the delay its controller asked for", slot.asked.id));
        }
        Ok(())
    }

    /// Takes a finished request out; an error must have a reason.
    pub(super) fn finish(
        &mut self,
        tag: Tag,
        result: Result<(), IoError>,
        config: &GroupConfig,
    ) -> Result<(Asked, Vec<u8>), String> {
        let slot = self.slots.get_mut(tag.0 as usize).and_then(Option::take);
        let Some(slot) = slot else { return Err(format!("{tag:?} finished, and is not in use")) };
        if self.hedges.contains_key(&tag) {
            return Err(format!("#{} ends before its hedge", slot.asked.id));
        }
        self.free.push(tag.0);
        let worn_out = slot.retries > config.max_retries || slot.failovers > config.max_failovers;
        let explained = slot.refused
            || slot.altered
            || worn_out
            || config.no_path_timeout.is_some()
            || slot.asked.kind == Kind::Flush;
        if result.is_err() && !explained {
            return Err(format!(
                "#{} failed without need, after {} retries and {} failovers",
                slot.asked.id, slot.retries, slot.failovers
            ));
        }
        Ok((slot.asked, slot.buffer))
    }

    pub(super) fn buffer_mut(&mut self, tag: Tag) -> &mut [u8] {
        &mut self.slots[tag.0 as usize].as_mut().expect("a request on a socket").buffer
    }

    fn slot(&self, tag: Tag) -> &Slot {
        self.slots[tag.0 as usize].as_ref().expect("a request in the table")
    }
}

impl PayloadSource for Requests {
    fn gather(&self, tag: nvme_tcp::host::Tag, offset: u32, dst: &mut [u8]) {
        dst.copy_from_slice(&self.slot(Tag(tag.0)).buffer[offset as usize..][..dst.len()]);
    }
}

impl PayloadSink for Requests {
    fn scatter(&mut self, tag: nvme_tcp::host::Tag, offset: u32, src: &[u8]) {
        let tag = Tag(tag.0);
        if tag == Tag::PROBE {
            return;
        }
        let buffer = match tag.hedged() {
            Some(read) => self.hedges.get_mut(&read).expect("a hedge on a socket has memory"),
            None => self.buffer_mut(tag),
        };
        buffer[offset as usize..][..src.len()].copy_from_slice(src);
    }
}
