//! The window: where a front-end that knows of it reads about the disk's paths, and sets their policy. It is in the
//! configuration space, behind what virtio has there; docs/qemu.md specifies it.

use std::ops::Range;

/// Where it is in the configuration space, which is [`config_space::BYTES`](crate::config_space::BYTES) long.
pub(crate) const PLACE: Range<usize> = 192..256;
/// Where the one field is that can be written.
pub(crate) const POLICY: usize = PLACE.start + 6;

/// How long it is.
pub(crate) const BYTES: usize = PLACE.end - PLACE.start;
const MAGIC: [u8; 4] = *b"MPTH";
const VERSION: u16 = 1;

/// What the window says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The id of the path policy in force; 0 if that has none.
    pub policy: u16,
    /// The disk's paths, in whatever state.
    pub paths_total: u16,
    /// Those that I/O can use now.
    pub paths_live: u16,
    /// Those of them whose ANA state is optimized.
    pub paths_optimized: u16,
}

impl Window {
    /// As it is in the configuration space.
    pub(crate) fn bytes(self, generation: u32) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut put = |range: Range<usize>, value: &[u8]| bytes[range].copy_from_slice(value);
        put(0..4, &MAGIC);
        put(4..6, &VERSION.to_le_bytes());
        put(6..8, &self.policy.to_le_bytes());
        put(8..12, &generation.to_le_bytes());
        put(12..14, &self.paths_total.to_le_bytes());
        put(14..16, &self.paths_live.to_le_bytes());
        put(16..18, &self.paths_optimized.to_le_bytes());
        bytes
    }

    /// What a front-end makes of a configuration space: the window and its generation, or `None` if there is none. A later
    /// version has the same fields, and more behind them.
    #[must_use]
    pub fn find(space: &[u8]) -> Option<(Self, u32)> {
        let bytes = space.get(PLACE)?;
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if bytes[..4] != MAGIC || u16_at(4) < VERSION {
            return None;
        }
        let generation = u32::from(u16_at(8)) | u32::from(u16_at(10)) << 16;
        let window =
            Self { policy: u16_at(6), paths_total: u16_at(12), paths_live: u16_at(14), paths_optimized: u16_at(16) };
        Some((window, generation))
    }
}

/// Why a policy that a front-end has written is not put in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRefused {
    /// There is none of that id.
    #[error("no path policy has the id {0}")]
    Unknown(u16),
    /// The paths are another disk's, and so is their policy.
    #[error("the path policy is that of another disk, whose paths this one uses")]
    NotItsOwn,
}

/// What the front-end of now knows of the window.
#[derive(Debug, Default, PartialEq, Eq)]
enum Reader {
    /// It has not used the window: perhaps it knows of none.
    #[default]
    Unconcerned,
    /// It has read what the window says.
    UpToDate,
    /// The window has changed since, of which it is told once.
    Behind,
}

/// The window of a disk beside the front-end that may read it.
#[derive(Debug, Default)]
pub(crate) struct WindowState {
    window: Window,
    /// Changes with the window; wraps.
    generation: u32,
    reader: Reader,
}

impl WindowState {
    /// The window says that from now on. Whether the front-end is to be told.
    pub(crate) fn change(&mut self, window: Window) -> bool {
        if window == self.window {
            return false;
        }
        self.window = window;
        self.generation = self.generation.wrapping_add(1);
        let tell = self.reader == Reader::UpToDate;
        if tell {
            self.reader = Reader::Behind;
        }
        tell
    }

    /// The front-end reads it.
    pub(crate) fn read(&mut self) -> [u8; BYTES] {
        self.reader = Reader::UpToDate;
        self.window.bytes(self.generation)
    }

    /// Whether there is something to tell to a front-end that begins to listen.
    pub(crate) fn is_news(&self) -> bool {
        self.reader == Reader::Behind
    }

    /// The front-end is gone. The next one may be another.
    pub(crate) fn forget_reader(&mut self) {
        self.reader = Reader::Unconcerned;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config_space;

    const WINDOW: Window = Window { policy: 0x0102, paths_total: 0x0304, paths_live: 0x0506, paths_optimized: 0x0708 };

    fn space(window: [u8; BYTES]) -> [u8; config_space::BYTES] {
        let mut space = [0xff; config_space::BYTES];
        space[PLACE].copy_from_slice(&window);
        space
    }

    #[test]
    fn fields_are_where_they_are_documented() {
        let mut expected = [0; BYTES];
        expected[..18].copy_from_slice(b"MPTH\x01\x00\x02\x01\x0d\x0c\x0b\x0a\x04\x03\x06\x05\x08\x07");
        assert_eq!(WINDOW.bytes(0x0a0b_0c0d), expected);
        assert_eq!((PLACE, POLICY), (192..256, 198));
    }

    #[test]
    fn what_is_no_window_is_not_taken_for_one() {
        assert_eq!(Window::find(&[0; 256]), None);
        let whole = space(WINDOW.bytes(7));
        assert_eq!(Window::find(&whole), Some((WINDOW, 7)));
        assert_eq!(Window::find(&whole[..255]), None);
        assert_eq!(Window::find(&[]), None);
        // Of a later version; of none.
        let of_version = |version: u8| {
            let mut space = whole;
            space[196] = version;
            Window::find(&space)
        };
        assert_eq!((of_version(2), of_version(0)), (Some((WINDOW, 7)), None));
    }

    #[test]
    fn the_generation_changes_with_the_window_and_wraps() {
        let mut state = WindowState { generation: u32::MAX, ..WindowState::default() };
        let mut generation = |window| {
            state.change(window);
            Window::find(&space(state.read())).expect("a window").1
        };
        let other = Window { policy: 9, ..WINDOW };
        let read = [Window::default(), WINDOW, WINDOW, other, WINDOW].map(&mut generation);
        assert_eq!(read, [u32::MAX, 0, 0, 1, 2]);
    }

    #[test]
    fn who_has_used_it_is_told_once_until_it_reads_again() {
        let mut state = WindowState::default();
        let mut lives = 0;
        let mut change = |state: &mut WindowState| {
            lives += 1;
            state.change(Window { paths_live: lives, ..WINDOW })
        };
        assert!(!change(&mut state) && !state.is_news(), "not used yet");
        state.read();
        assert!(!state.is_news() && change(&mut state) && state.is_news());
        assert!(!change(&mut state) && state.is_news(), "told already");
        state.read();
        assert!(!state.is_news() && change(&mut state));
        state.forget_reader();
        assert!(!change(&mut state) && !state.is_news(), "the next one has not used it");
        let now = state.window;
        state.read();
        assert!(!state.change(now), "nothing has changed");
    }

    proptest! {
        #[test]
        fn what_is_written_is_found(fields: [u16; 4], generation: u32) {
            let [policy, paths_total, paths_live, paths_optimized] = fields;
            let window = Window { policy, paths_total, paths_live, paths_optimized };
            let bytes = window.bytes(generation);
            prop_assert_eq!(Window::find(&space(bytes)), Some((window, generation)));
            prop_assert_eq!(&bytes[18..], &[0; BYTES - 18]);
        }

        #[test]
        fn whatever_bytes_are_survived(space in proptest::collection::vec(any::<u8>(), 0..300), magic: bool) {
            let mut space = space;
            if magic && space.len() >= 200 {
                space[192..196].copy_from_slice(&MAGIC);
            }
            let is_window = space.len() >= 256 && space[192..196] == MAGIC && space[196..198] != [0, 0];
            prop_assert_eq!(Window::find(&space).is_some(), is_window);
        }

        /// Against the rule in one sentence: told if it has been read, has changed since, and was not told since.
        #[test]
        fn any_order_of_reads_and_changes(steps in proptest::collection::vec(0_u16..6, 0..40)) {
            let mut state = WindowState::default();
            let (mut used, mut told, mut current) = (false, false, Window::default());
            for step in steps {
                match step {
                    4 => {
                        state.read();
                        (used, told) = (true, false);
                    }
                    5 => {
                        state.forget_reader();
                        (used, told) = (false, false);
                    }
                    policy => {
                        let window = Window { policy, ..Window::default() };
                        let tell = used && !told && window != current;
                        prop_assert_eq!(state.change(window), tell);
                        (told, current) = (told || tell, window);
                    }
                }
                prop_assert_eq!(state.is_news(), told);
            }
        }
    }
}
