//! Decides: these parts of a request are left between two attempts.
//! Decides: a failed request is noted with its status (`note_error`).
//!
//! The requests of this thread's virtqueues, from the available ring to the used ring. A request's tag is its index in
//! the table. Its guest memory stays mapped as long as it is in the table.

use std::collections::BTreeMap;

use mpath_core::{DiskId, Epoch, FailedRequest, FlowId, IoError, PathId, Tag};
use nvme_tcp::host::{Part, PayloadSink, PayloadSource};
use nvme_tcp::wire::Status;
use vhost_user_blk::{Op, Request};

use crate::translate::io_of;

#[derive(Default)]
enum Slot {
    #[default]
    Free,
    /// Most slots are active under load, so a box would only add an allocation to each request.
    Active(Active),
    /// Given up, and held by no socket. The tag is free again when the group has finished it.
    GivenUp { disk: DiskId, in_doubt: Option<AssociationId> },
}

impl Slot {
    /// The disk of a request that was given up and may still change data. No other place decides that.
    fn in_doubt(&self) -> Option<DiskId> {
        match self {
            Self::GivenUp { disk, in_doubt: Some(_), .. } => Some(*disk),
            Self::Active(active) if active.exception().detached && active.changes_data() => Some(active.disk),
            Self::Active(_) | Self::GivenUp { .. } | Self::Free => None,
        }
    }
}

/// The association under which a write may still be executed, until its fence is lifted.
type AssociationId = (PathId, Epoch);

struct Active {
    request: Request,
    disk: DiskId,
    flow: FlowId,
    /// The paths whose sockets hold the request, as a bit set. A flush may be on several.
    on_paths: u64,
    /// Few requests have one.
    exception: Option<Box<Exception>>,
}

/// The troubles of a request.
struct Exception {
    given_up: bool,
    /// Given up, and its virtqueue does not wait for the sockets that hold it.
    detached: bool,
    in_doubt: Option<AssociationId>,
    /// The last error that a path has answered.
    status: Option<(PathId, Status)>,
    /// The parts that the attempts so far have left to be done; all of it if there are none.
    rest: Vec<Part>,
    /// The last attempt has done a part.
    is_partly_done: bool,
}

impl Exception {
    const NONE: Self = Self {
        given_up: false,
        detached: false,
        in_doubt: None,
        status: None,
        rest: Vec::new(),
        is_partly_done: false,
    };
}

impl Active {
    fn changes_data(&self) -> bool {
        !matches!(self.request.op, Op::Read | Op::Flush)
    }

    fn exception(&self) -> &Exception {
        static NONE: Exception = Exception::NONE;
        self.exception.as_deref().unwrap_or(&NONE)
    }

    fn exception_mut(&mut self) -> &mut Exception {
        self.exception.get_or_insert_with(|| Box::new(Exception::NONE))
    }

    /// The slot of a request that was given up, once no socket holds it.
    fn given_up(&self) -> Slot {
        Slot::GivenUp { disk: self.disk, in_doubt: self.exception().in_doubt }
    }
}

/// The requests in the table, by tag. A virtqueue never has more chains outstanding than entries, so the table grows to
/// the sum of their sizes. Requests that were given up on a path come on top. They stay until the path has answered, or
/// its fence is lifted.
#[derive(Default)]
pub(crate) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The data of hedges, by the tags of their reads. The group bounds their number and size.
    hedges: BTreeMap<Tag, Vec<u8>>,
}

impl Requests {
    pub(crate) fn insert(&mut self, disk: DiskId, flow: FlowId, request: Request) -> Tag {
        let slot = Slot::Active(Active { request, disk, flow, on_paths: 0, exception: None });
        if let Some(place) = self.free.pop() {
            self.slots[place as usize] = slot;
            return Tag(place);
        }
        self.slots.push(slot);
        Tag(u32::try_from(self.slots.len() - 1).expect("bounded by the sizes of the virtqueues"))
    }

    /// The request, its disk and what is left to be done, for the socket of `path`. `None` if it was given up.
    pub(crate) fn issue(&mut self, tag: Tag, path: PathId) -> Option<(DiskId, &Request, &[Part])> {
        match &mut self.slots[tag.0 as usize] {
            Slot::Active(active) if !active.exception().given_up => {
                active.on_paths |= bit(path);
                Some((active.disk, &active.request, &active.exception().rest))
            }
            Slot::Active(_) | Slot::GivenUp { .. } => None,
            Slot::Free => unreachable!("a request in the group stands in the table"),
        }
    }

    /// The read and its disk, for a second socket with a buffer of its own. `None` if it was given up.
    pub(crate) fn hedge(&mut self, tag: Tag) -> Option<(DiskId, &Request)> {
        let buffer = vec![0; self.kept(tag)?.request.bytes as usize];
        let before = self.hedges.insert(tag, buffer);
        assert!(before.is_none(), "one hedge a read");
        self.kept(tag).map(|active| (active.disk, &active.request))
    }

    /// The request, unless it was given up.
    fn kept(&self, tag: Tag) -> Option<&Active> {
        match &self.slots[tag.0 as usize] {
            Slot::Active(active) => Some(active).filter(|active| !active.exception().given_up),
            Slot::GivenUp { .. } | Slot::Free => None,
        }
    }

    /// Notes the error that a path has answered, and the parts that it has left to be done; none if it has done nothing. Tags of
    /// hedges, probes and daemon flushes are beyond the table.
    #[cold]
    pub(crate) fn note_error(&mut self, tag: Tag, path: PathId, status: Status, rest: Vec<Part>) {
        if let Some(Slot::Active(active)) = self.slots.get_mut(tag.0 as usize) {
            let exception = active.exception_mut();
            exception.status = Some((path, status));
            if !rest.is_empty() {
                (exception.rest, exception.is_partly_done) = (rest, true);
            }
        }
    }

    /// Whether the attempt that has ended has done a part of the request.
    pub(crate) fn take_partly_done(&mut self, tag: Tag) -> bool {
        match &mut self.slots[tag.0 as usize] {
            Slot::Active(Active { exception: Some(exception), .. }) => std::mem::take(&mut exception.is_partly_done),
            Slot::Active(_) | Slot::GivenUp { .. } | Slot::Free => false,
        }
    }

    /// Drops the buffer of a hedge. Its data are not needed any more.
    pub(crate) fn drop_hedge(&mut self, tag: Tag) {
        // The hedge of a read that was given up has no buffer.
        self.hedges.remove(&tag);
    }

    /// Copies the data of the hedge to the guest, unless the read was given up.
    pub(crate) fn adopt(&mut self, tag: Tag) {
        let data = self.hedges.remove(&tag).expect("a hedge that has succeeded has its data");
        if let Slot::Active(active) = &self.slots[tag.0 as usize] {
            assert_eq!(active.on_paths, 0, "the first path may still write to the memory of the guest");
            active.request.segments.copy_from(0, &data);
        }
    }

    /// Notes that the socket of `path` no longer holds the request. If it has succeeded and the group issues it once more, then
    /// all of it. If the request was given up and no other socket holds it, releases its guest memory. Then returns the
    /// request's virtqueue, if the virtqueue waits for this.
    pub(crate) fn answered(&mut self, tag: Tag, path: PathId, is_done: bool) -> Option<FlowId> {
        let slot = &mut self.slots[tag.0 as usize];
        let Slot::Active(active) = slot else { unreachable!("a request on a socket stands in the table") };
        active.on_paths &= !bit(path);
        let exception = active.exception.as_mut()?;
        if is_done {
            exception.rest.clear();
        }
        if !exception.given_up || active.on_paths != 0 {
            return None;
        }
        let released = (!exception.detached).then_some(active.flow);
        *slot = active.given_up();
        released
    }

    /// Marks a write whose association has ended: it may have been executed, or may still be.
    pub(crate) fn mark_in_doubt(&mut self, tag: Tag, path: PathId, epoch: Epoch) {
        let Slot::Active(active) = &mut self.slots[tag.0 as usize] else {
            unreachable!("a request on a socket stands in the table")
        };
        assert!(active.changes_data(), "a request that changes no data may be executed at any time");
        active.exception_mut().in_doubt = Some((path, epoch));
    }

    /// Ends the doubt about requests of this association, because its commands cannot be executed any more.
    pub(crate) fn fence_lifted(&mut self, path: PathId, epoch: Epoch) {
        for slot in &mut self.slots {
            let in_doubt = match slot {
                Slot::Active(Active { exception: Some(exception), .. }) => &mut exception.in_doubt,
                Slot::GivenUp { in_doubt, .. } => in_doubt,
                Slot::Active(_) | Slot::Free => continue,
            };
            in_doubt.take_if(|doubt| *doubt == (path, epoch));
        }
    }

    /// Whether a request that was given up may still change data.
    pub(crate) fn has_writes_in_doubt(&self) -> bool {
        self.slots.iter().any(|slot| slot.in_doubt().is_some())
    }

    /// Whether a request of the disk that was given up may still change data.
    pub(crate) fn has_writes_in_doubt_of(&self, disk: DiskId) -> bool {
        self.slots.iter().any(|slot| slot.in_doubt() == Some(disk))
    }

    /// Describes a request that is about to finish with this error. Also returns its disk. `None` if the request was
    /// given up.
    #[cold]
    pub(crate) fn failed(&self, tag: Tag, error: IoError) -> Option<(DiskId, FailedRequest)> {
        let active = self.kept(tag)?;
        let Active { request, disk, flow, .. } = active;
        let range = (request.op != Op::Flush).then_some((request.sector, request.bytes));
        let status = active.exception().status.map(|(path, status)| (path, status.0));
        Some((*disk, FailedRequest { op: io_of(request, *disk, *flow).op, error, range, status }))
    }

    /// Removes a finished request and returns it with its virtqueue. `None` if it was given up.
    pub(crate) fn finish(&mut self, tag: Tag) -> Option<(FlowId, Request)> {
        self.free.push(tag.0);
        match std::mem::take(&mut self.slots[tag.0 as usize]) {
            Slot::Active(active) => Some((active.flow, active.request)),
            Slot::GivenUp { .. } => None,
            Slot::Free => unreachable!("a request is finished once"),
        }
    }

    /// Whether no socket holds a request of the virtqueue, and none may still be executed.
    pub(crate) fn are_idle(&self, flow: FlowId) -> bool {
        let is_idle = |slot: &Slot| match slot {
            Slot::Active(active) => {
                active.flow != flow || (active.on_paths == 0 && active.exception().in_doubt.is_none())
            }
            Slot::GivenUp { .. } | Slot::Free => true,
        };
        self.slots.iter().all(is_idle)
    }

    /// Gives up every request of a virtqueue. A request that no socket holds releases its guest memory at once. The
    /// other requests release theirs when their sockets release them. Returns the number of requests that no socket
    /// held, and the paths that hold the others as a bit set.
    pub(crate) fn give_up(&mut self, flow: FlowId) -> (u32, u64) {
        let (mut released, mut paths) = (0, 0);
        for slot in &mut self.slots {
            match slot {
                Slot::Active(active) if active.exception().detached => {}
                Slot::Active(active) if active.flow == flow && active.on_paths == 0 => {
                    *slot = active.given_up();
                    released += 1;
                }
                Slot::Active(active) if active.flow == flow => {
                    active.exception_mut().given_up = true;
                    paths |= active.on_paths;
                }
                Slot::Active(_) | Slot::GivenUp { .. } | Slot::Free => {}
            }
        }
        (released, paths)
    }

    /// Gives up every request of a virtqueue whose guest memory has been replaced, so that the virtqueue need not wait
    /// for sockets.
    pub(crate) fn detach(&mut self, flow: FlowId) {
        self.give_up(flow);
        for slot in &mut self.slots {
            if let Slot::Active(active) = slot
                && active.flow == flow
            {
                active.exception_mut().detached = true;
            }
        }
    }

    /// The number of requests in the table.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn get(&self, tag: Tag) -> &Request {
        match &self.slots[tag.0 as usize] {
            Slot::Active(active) => &active.request,
            Slot::GivenUp { .. } | Slot::Free => unreachable!("a request on a socket stands in the table"),
        }
    }
}

fn bit(path: PathId) -> u64 {
    1 << path.0
}

impl PayloadSource for Requests {
    fn gather(&self, tag: nvme_tcp::host::Tag, offset: u32, dst: &mut [u8]) {
        self.get(Tag(tag.0)).segments.copy_to(offset, dst);
    }
}

impl PayloadSink for Requests {
    /// Discards the data of probes.
    fn scatter(&mut self, tag: nvme_tcp::host::Tag, offset: u32, src: &[u8]) {
        let tag = Tag(tag.0);
        if tag == Tag::PROBE {
            return;
        }
        let Some(read) = tag.hedged() else { return self.get(tag).segments.copy_from(offset, src) };
        let data = self.hedges.get_mut(&read).expect("a hedge on a socket has memory");
        data[offset as usize..][..src.len()].copy_from_slice(src);
    }
}

#[cfg(test)]
mod tests {
    use vhost_user_blk::{BlkStatus, Queue};

    use super::*;
    use crate::testing::{Guest, pop};

    const DISK: DiskId = DiskId(1);
    const FLOW: FlowId = FlowId(3);
    const A: PathId = PathId(0);
    const B: PathId = PathId(63);
    const EPOCH: Epoch = Epoch(7);

    fn guest() -> (Guest, Queue, Requests) {
        let guest = Guest::new();
        let queue = guest.queue();
        (guest, queue, Requests::default())
    }

    /// A write of the guest, in the table.
    fn write(guest: &mut Guest, queue: &mut Queue, requests: &mut Requests) -> Tag {
        guest.write(0, 4096);
        requests.insert(DISK, FLOW, pop(queue))
    }

    #[test]
    fn tags_are_dense_and_used_again() {
        let (mut guest, mut queue, mut requests) = guest();
        let tags = [0; 3].map(|_| write(&mut guest, &mut queue, &mut requests));
        assert_eq!(tags, [Tag(0), Tag(1), Tag(2)]);
        let (index, request) = requests.finish(Tag(1)).unwrap();
        assert_eq!(index, FLOW);
        queue.complete(request, BlkStatus::Ok);
        assert_eq!(write(&mut guest, &mut queue, &mut requests), Tag(1));
        assert_eq!(write(&mut guest, &mut queue, &mut requests), Tag(3));
    }

    #[test]
    fn a_request_on_no_socket_is_given_up_at_once() {
        let (mut guest, mut queue, mut requests) = guest();
        let tag = write(&mut guest, &mut queue, &mut requests);
        assert_eq!(requests.give_up(FlowId(4)), (0, 0));
        assert_eq!(requests.give_up(FLOW), (1, 0));
        assert_eq!(requests.give_up(FLOW), (0, 0));
        assert!(requests.issue(tag, A).is_none());
        assert!(requests.finish(tag).is_none());
        assert_eq!(write(&mut guest, &mut queue, &mut requests), tag);
    }

    #[test]
    fn a_request_on_sockets_is_given_up_with_the_last_of_them() {
        let (mut guest, mut queue, mut requests) = guest();
        guest.flush();
        let tag = requests.insert(DISK, FLOW, pop(&mut queue));
        assert!(requests.issue(tag, A).is_some() && requests.issue(tag, B).is_some());
        assert_eq!(requests.give_up(FLOW), (0, 1 | 1 << 63));
        assert!(requests.issue(tag, A).is_none(), "it goes nowhere any more");
        assert_eq!(requests.answered(tag, B, false), None);
        assert_eq!(requests.answered(tag, A, false), Some(FLOW));
        assert!(requests.finish(tag).is_none());
    }

    #[test]
    fn an_answer_keeps_a_request_that_was_not_given_up() {
        let (mut guest, mut queue, mut requests) = guest();
        let tag = write(&mut guest, &mut queue, &mut requests);
        requests.issue(tag, A).unwrap();
        assert_eq!(requests.answered(tag, A, true), None);
        assert!(requests.finish(tag).is_some());
    }

    #[test]
    fn a_write_given_up_is_in_doubt_until_its_own_fence_is_lifted() {
        // Given up before or after its connection is lost.
        for given_up_first in [true, false] {
            let (mut guest, mut queue, mut requests) = guest();
            let tag = write(&mut guest, &mut queue, &mut requests);
            requests.issue(tag, A).unwrap();
            if given_up_first {
                assert_eq!(requests.give_up(FLOW), (0, 1));
            }
            requests.mark_in_doubt(tag, A, EPOCH);
            let released = requests.answered(tag, A, false);
            if given_up_first {
                assert_eq!(released, Some(FLOW));
            } else {
                assert!(!requests.has_writes_in_doubt(), "its guest is still there, and waits for it");
                assert_eq!(requests.give_up(FLOW), (1, 0));
            }
            assert!(requests.has_writes_in_doubt());
            requests.fence_lifted(B, EPOCH);
            requests.fence_lifted(A, Epoch(EPOCH.0 - 1));
            assert!(requests.has_writes_in_doubt(), "other fences say nothing");
            requests.fence_lifted(A, EPOCH);
            assert!(!requests.has_writes_in_doubt());
        }
    }

    #[test]
    fn requests_that_change_nothing_are_not_in_doubt() {
        let (mut guest, mut queue, mut requests) = guest();
        guest.read(0, 4096);
        guest.flush();
        for _ in 0..2 {
            let tag = requests.insert(DISK, FLOW, pop(&mut queue));
            requests.issue(tag, A).unwrap();
        }
        requests.detach(FLOW);
        assert!(!requests.has_writes_in_doubt(), "their sockets still hold them");
    }

    #[test]
    fn payload_moves_between_guest_memory_and_the_wire() {
        let (mut guest, mut queue, mut requests) = guest();
        let tag = write(&mut guest, &mut queue, &mut requests);
        let wire_tag = nvme_tcp::host::Tag(tag.0);
        requests.scatter(wire_tag, 100, b"payload");
        requests.scatter(nvme_tcp::host::Tag(Tag::PROBE.0), 0, b"nobody's");
        assert_eq!(memory_of(&requests, tag), b"\0payload\0");
    }

    /// The guest's memory from byte 99 on.
    fn memory_of(requests: &Requests, tag: Tag) -> Vec<u8> {
        let mut bytes = vec![0; 9];
        requests.gather(nvme_tcp::host::Tag(tag.0), 99, &mut bytes);
        bytes
    }

    #[test]
    fn a_hedge_reads_into_memory_of_its_own_until_it_is_adopted() {
        let (mut guest, mut queue, mut requests) = guest();
        guest.read(0, 4096);
        let tag = requests.insert(DISK, FLOW, pop(&mut queue));
        requests.issue(tag, A).unwrap();
        for adopted in [false, true] {
            requests.hedge(tag).unwrap();
            requests.scatter(nvme_tcp::host::Tag(tag.of_hedge().0), 100, b"payload");
            assert_eq!(memory_of(&requests, tag), [0; 9]);
            if adopted {
                requests.answered(tag, A, false);
                requests.adopt(tag);
                assert_eq!(memory_of(&requests, tag), b"\0payload\0");
            } else {
                requests.drop_hedge(tag);
            }
            assert!(requests.hedges.is_empty());
        }
    }

    #[test]
    #[should_panic(expected = "may still write")]
    fn a_hedge_is_not_adopted_while_a_socket_holds_the_read() {
        let (mut guest, mut queue, mut requests) = guest();
        guest.read(0, 4096);
        let tag = requests.insert(DISK, FLOW, pop(&mut queue));
        requests.issue(tag, A).unwrap();
        requests.hedge(tag).unwrap();
        requests.adopt(tag);
    }

    #[test]
    fn the_hedge_of_a_read_given_up_writes_nothing() {
        let (mut guest, mut queue, mut requests) = guest();
        guest.read(0, 4096);
        let tag = requests.insert(DISK, FLOW, pop(&mut queue));
        requests.hedge(tag).unwrap();
        assert_eq!(requests.give_up(FLOW), (1, 0));
        requests.scatter(nvme_tcp::host::Tag(tag.of_hedge().0), 0, b"late");
        requests.adopt(tag);
        assert!(requests.hedge(tag).is_none());
        requests.drop_hedge(tag);
        assert!(requests.finish(tag).is_none());
    }
}
