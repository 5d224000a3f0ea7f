//! The requests of this thread's virtqueues, from the ring to the used ring. A request's tag is its place here; the
//! guest memory it names stays mapped as long as it stands here.

use mpath_core::{Epoch, PathId, Tag};
use nvme_tcp::host::{PayloadSink, PayloadSource};
use vhost_user_blk::{Op, Request};

/// Most slots are active under load, so a box would only add an allocation to each request.
#[allow(clippy::large_enum_variant)]
#[derive(Default)]
enum Slot {
    #[default]
    Free,
    Active(Active),
    /// Given up, and on no socket any more; its tag is free again when the group has finished it.
    Abandoned {
        in_doubt: Option<Doubt>,
    },
}

/// The association by which a write may still be executed, until its fence is lifted.
type Doubt = (PathId, Epoch);

struct Active {
    request: Request,
    queue: u16,
    /// The paths whose sockets hold it, as a set: a flush may be on several.
    on_paths: u64,
    abandoned: bool,
    in_doubt: Option<Doubt>,
}

/// Grows to the sum of the virtqueues' sizes, as a virtqueue never has more chains out than entries, and by what was given
/// up and waits for a fence.
#[derive(Default)]
pub(crate) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Requests {
    pub(crate) fn insert(&mut self, queue: u16, request: Request) -> Tag {
        let slot = Slot::Active(Active { request, queue, on_paths: 0, abandoned: false, in_doubt: None });
        if let Some(place) = self.free.pop() {
            self.slots[place as usize] = slot;
            return Tag(place);
        }
        self.slots.push(slot);
        Tag(u32::try_from(self.slots.len() - 1).expect("bounded by the sizes of the virtqueues"))
    }

    /// The request, to be put on the socket of `path`; `None` if it was given up.
    pub(crate) fn issue(&mut self, tag: Tag, path: PathId) -> Option<&Request> {
        match &mut self.slots[tag.0 as usize] {
            Slot::Active(active) if !active.abandoned => {
                active.on_paths |= bit(path);
                Some(&active.request)
            }
            Slot::Active(_) | Slot::Abandoned { .. } => None,
            Slot::Free => unreachable!("a request in the group stands in the table"),
        }
    }

    /// The socket of `path` holds the request no longer. If that was the last one to hold a request that was given up, its
    /// guest memory is let go, and the answer is the virtqueue it came from.
    pub(crate) fn answered(&mut self, tag: Tag, path: PathId) -> Option<u16> {
        let slot = &mut self.slots[tag.0 as usize];
        let Slot::Active(active) = slot else { unreachable!("a request on a socket stands in the table") };
        active.on_paths &= !bit(path);
        let queue = active.queue;
        let let_go = active.abandoned && active.on_paths == 0;
        if let_go {
            *slot = Slot::Abandoned { in_doubt: active.in_doubt };
        }
        let_go.then_some(queue)
    }

    /// The association is over, and whether the request was executed under it, or still will be, is not known.
    pub(crate) fn lost_in_doubt(&mut self, tag: Tag, path: PathId, epoch: Epoch) {
        let Slot::Active(active) = &mut self.slots[tag.0 as usize] else {
            unreachable!("a request on a socket stands in the table")
        };
        // What changes nothing may be executed at any time.
        if !matches!(active.request.op, Op::Read | Op::Flush) {
            active.in_doubt = Some((path, epoch));
        }
    }

    /// Nothing is executed under this association any more.
    pub(crate) fn fence_lifted(&mut self, path: PathId, epoch: Epoch) {
        for slot in &mut self.slots {
            if let Slot::Active(Active { in_doubt, .. }) | Slot::Abandoned { in_doubt } = slot {
                *in_doubt = in_doubt.filter(|&doubt| doubt != (path, epoch));
            }
        }
    }

    /// Whether a request that was given up may still change data.
    pub(crate) fn leaves_doubt(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Slot::Abandoned { in_doubt: Some(_) }))
    }

    /// Takes a finished request out, with the index of its virtqueue; `None` if it was given up.
    pub(crate) fn finish(&mut self, tag: Tag) -> Option<(u16, Request)> {
        self.free.push(tag.0);
        match std::mem::take(&mut self.slots[tag.0 as usize]) {
            Slot::Active(active) => Some((active.queue, active.request)),
            Slot::Abandoned { .. } => None,
            Slot::Free => unreachable!("a request is finished once"),
        }
    }

    /// Gives up every request of a virtqueue. Those on no socket let go of guest memory at once: how many they are. Those on
    /// sockets do when the sockets let go of them: which paths these are, as a set.
    pub(crate) fn abandon(&mut self, queue: u16) -> (u32, u64) {
        let (mut let_go, mut paths) = (0, 0);
        for slot in &mut self.slots {
            match slot {
                Slot::Active(active) if active.queue == queue && active.on_paths == 0 => {
                    *slot = Slot::Abandoned { in_doubt: active.in_doubt };
                    let_go += 1;
                }
                Slot::Active(active) if active.queue == queue => {
                    active.abandoned = true;
                    paths |= active.on_paths;
                }
                Slot::Active(_) | Slot::Abandoned { .. } | Slot::Free => {}
            }
        }
        (let_go, paths)
    }

    pub(crate) fn get(&self, tag: Tag) -> &Request {
        match &self.slots[tag.0 as usize] {
            Slot::Active(active) => &active.request,
            Slot::Abandoned { .. } | Slot::Free => unreachable!("a request on a socket stands in the table"),
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
    fn scatter(&mut self, tag: nvme_tcp::host::Tag, offset: u32, src: &[u8]) {
        self.get(Tag(tag.0)).segments.copy_from(offset, src);
    }
}
