//! The requests of this thread's virtqueues, from the ring to the used ring. A request's tag is its place here; the
//! guest memory it names stays mapped as long as it stands here.

use mpath_core::Tag;
use nvme_tcp::host::{PayloadSink, PayloadSource};
use vhost_user_blk::Request;

struct Active {
    request: Request,
    queue: u16,
}

/// Grows to the sum of the queue sizes and no further: a virtqueue never has more chains out than entries.
#[derive(Default)]
pub(crate) struct Requests {
    slots: Vec<Option<Active>>,
    free: Vec<u32>,
}

impl Requests {
    pub(crate) fn insert(&mut self, queue: u16, request: Request) -> Tag {
        let active = Some(Active { request, queue });
        if let Some(place) = self.free.pop() {
            self.slots[place as usize] = active;
            return Tag(place);
        }
        self.slots.push(active);
        Tag(u32::try_from(self.slots.len() - 1).expect("bounded by the sizes of the virtqueues"))
    }

    /// Takes a request out, with the index of its virtqueue.
    pub(crate) fn remove(&mut self, tag: Tag) -> (u16, Request) {
        let active = self.slots[tag.0 as usize].take().expect("a tag is finished once");
        self.free.push(tag.0);
        (active.queue, active.request)
    }

    /// Takes out everything of one virtqueue.
    pub(crate) fn tags_of(&self, queue: u16) -> impl Iterator<Item = Tag> + '_ {
        self.slots
            .iter()
            .enumerate()
            .filter(move |(_, slot)| slot.as_ref().is_some_and(|active| active.queue == queue))
            .map(|(place, _)| Tag(place as u32))
    }

    pub(crate) fn get(&self, tag: Tag) -> &Request {
        &self.slots[tag.0 as usize].as_ref().expect("a tag in flight stands in the table").request
    }
}

impl PayloadSource for Requests {
    fn gather(&self, tag: nvme_tcp::host::Tag, offset: u32, dst: &mut [u8]) {
        self.get(Tag(tag.0)).segments.read(offset, dst);
    }
}

impl PayloadSink for Requests {
    fn scatter(&mut self, tag: nvme_tcp::host::Tag, offset: u32, src: &[u8]) {
        self.get(Tag(tag.0)).segments.write(offset, src);
    }
}
