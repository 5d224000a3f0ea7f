//! Which contents each block may have right now.
//!
//! Writes to the same block exclude each other, as a file system would ensure. Reads run at any time. A block takes at most one
//! new write while reads of it are in flight. So a read can meet only two contents: the content at its submission, and the newest
//! content that a write has begun before its completion.

/// The content of a block, as far as the front-end can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Anything: not written in this run, discarded, or a write to it has failed.
    Unknown,
    Zeroes,
    /// The data of the write with this version.
    Data(u64),
}

impl std::fmt::Display for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => f.write_str("anything"),
            Self::Zeroes => f.write_str("zeroes"),
            Self::Data(version) => write!(f, "version {version}"),
        }
    }
}

/// A run of blocks, counted from the start of the region under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u64,
    /// Number of blocks, at least 1.
    pub(super) count: u64,
}

#[derive(Debug, Clone, Copy)]
struct BlockState {
    settled: Content,
    /// The content after the write in flight, if there is one.
    coming: Option<Content>,
    readers: u16,
    /// A write has been in flight during the flight of a present reader.
    raced: bool,
}

impl BlockState {
    fn newest(self) -> Content {
        self.coming.unwrap_or(self.settled)
    }
}

/// How many recent writes are remembered as places to go back to.
const RECENT: usize = 256;

/// The model of one region. See the module's text.
#[derive(Debug)]
pub(super) struct Model {
    blocks: Vec<BlockState>,
    next_version: u64,
    recent: Vec<Range>,
    recent_at: usize,
}

impl Model {
    /// `blocks` blocks of unknown content.
    pub(super) fn new(blocks: usize) -> Self {
        let fresh = BlockState { settled: Content::Unknown, coming: None, readers: 0, raced: false };
        Self { blocks: vec![fresh; blocks], next_version: 1, recent: Vec::with_capacity(RECENT), recent_at: 0 }
    }

    pub(super) fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub(super) fn known_blocks(&self) -> u64 {
        self.blocks.iter().filter(|block| block.settled != Content::Unknown).count() as u64
    }

    /// Whether any block of the range has a known content.
    pub(super) fn any_known(&self, range: Range) -> bool {
        self.slice(range).iter().any(|block| block.settled != Content::Unknown)
    }

    /// A recently written range.
    pub(super) fn recent(&self, pick: u64) -> Option<Range> {
        let len = self.recent.len() as u64;
        (len > 0).then(|| self.recent[(pick % len) as usize])
    }

    fn slice(&self, range: Range) -> &[BlockState] {
        &self.blocks[range.first as usize..(range.first + range.count) as usize]
    }

    fn slice_mut(&mut self, range: Range) -> &mut [BlockState] {
        &mut self.blocks[range.first as usize..(range.first + range.count) as usize]
    }

    /// Begins a read. Puts the oldest content that the read may meet into `floor`, one for each block.
    pub(super) fn begin_read(&mut self, range: Range, floor: &mut Vec<Content>) {
        floor.clear();
        for block in self.slice_mut(range) {
            block.raced |= block.coming.is_some();
            block.readers += 1;
            floor.push(block.settled);
        }
    }

    /// Ends a read. Puts the newest content that the read may have met into `ceiling`, one for each block.
    pub(super) fn end_read(&mut self, range: Range, ceiling: &mut Vec<Content>) {
        ceiling.clear();
        for block in self.slice_mut(range) {
            block.readers -= 1;
            ceiling.push(block.newest());
            if block.readers == 0 {
                block.raced = false;
            }
        }
    }

    fn begin_change(&mut self, range: Range, to: Content) -> bool {
        let free = |block: &BlockState| block.coming.is_none() && !block.raced;
        if !self.slice(range).iter().all(free) {
            return false;
        }
        for block in self.slice_mut(range) {
            block.coming = Some(to);
            block.raced = block.readers > 0;
        }
        true
    }

    /// Begins a write of new data and returns its version, or `None` if the range is not free for one.
    pub(super) fn begin_write(&mut self, range: Range) -> Option<u64> {
        let version = self.next_version;
        self.begin_change(range, Content::Data(version)).then(|| {
            self.next_version += 1;
            version
        })
    }

    /// Begins a write of zeroes; false if the range is not free for one.
    pub(super) fn begin_zeroes(&mut self, range: Range) -> bool {
        self.begin_change(range, Content::Zeroes)
    }

    /// Begins a discard, after which the content is undefined; false if the range is not free for one.
    pub(super) fn begin_discard(&mut self, range: Range) -> bool {
        self.begin_change(range, Content::Unknown)
    }

    /// Ends a write, zeroing or discard. After a failed one nothing is known about the range.
    pub(super) fn end_change(&mut self, range: Range, succeeded: bool) {
        for block in self.slice_mut(range) {
            let coming = block.coming.take().filter(|_| succeeded);
            block.settled = coming.unwrap_or(Content::Unknown);
        }
        if self.recent.len() < RECENT {
            self.recent.push(range);
        } else {
            self.recent[self.recent_at] = range;
            self.recent_at = (self.recent_at + 1) % RECENT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Range = Range { first: 3, count: 1 };

    fn read(model: &mut Model) -> [Content; 2] {
        let (mut floor, mut ceiling) = (Vec::new(), Vec::new());
        model.begin_read(ONE, &mut floor);
        model.end_read(ONE, &mut ceiling);
        [floor[0], ceiling[0]]
    }

    #[test]
    fn settled_content_is_the_only_candidate() {
        let mut model = Model::new(8);
        assert_eq!(read(&mut model), [Content::Unknown; 2]);
        let version = model.begin_write(ONE).unwrap();
        model.end_change(ONE, true);
        assert_eq!(read(&mut model), [Content::Data(version); 2]);
        assert!(model.begin_zeroes(ONE));
        model.end_change(ONE, true);
        assert_eq!(read(&mut model), [Content::Zeroes; 2]);
        assert_eq!(model.known_blocks(), 1);
        assert!(model.begin_discard(ONE));
        model.end_change(ONE, true);
        assert_eq!(read(&mut model), [Content::Unknown; 2]);
        assert_eq!(model.known_blocks(), 0);
    }

    #[test]
    fn writes_exclude_each_other_where_they_overlap() {
        let mut model = Model::new(8);
        assert!(model.begin_write(Range { first: 2, count: 3 }).is_some());
        assert!(model.begin_write(Range { first: 4, count: 2 }).is_none());
        assert!(!model.begin_zeroes(ONE));
        assert!(model.begin_write(Range { first: 5, count: 2 }).is_some());
        model.end_change(Range { first: 2, count: 3 }, true);
        assert!(model.begin_write(ONE).is_some());
    }

    #[test]
    fn a_read_meets_at_most_two_contents() {
        let mut model = Model::new(8);
        let old = model.begin_write(ONE).unwrap();
        model.end_change(ONE, true);
        let (mut floor, mut ceiling) = (Vec::new(), Vec::new());
        model.begin_read(ONE, &mut floor);
        let new = model.begin_write(ONE).unwrap();
        model.end_change(ONE, true);
        assert_eq!(model.begin_write(ONE), None, "a third content would be possible for the reader");
        model.end_read(ONE, &mut ceiling);
        assert_eq!((floor[0], ceiling[0]), (Content::Data(old), Content::Data(new)));
        assert!(model.begin_write(ONE).is_some());
    }

    #[test]
    fn a_failed_write_leaves_nothing_known() {
        let mut model = Model::new(8);
        model.begin_write(ONE).unwrap();
        model.end_change(ONE, false);
        assert_eq!(read(&mut model), [Content::Unknown; 2]);
    }
}
