//! Decides: the vendor window is visible.
//!
//! The vendor window: front-ends that know it read the state of the disk's paths there and set their policy. It lies in
//! the configuration space, behind virtio's fields. docs/qemu.md specifies it.

use std::ops::Range;

/// Its range in the configuration space, which is [`config_space::BYTES`](crate::config_space::BYTES) long.
pub(crate) const RANGE: Range<usize> = 192..256;
/// Offset of the policy, the one field that can be written.
pub(crate) const POLICY_OFFSET: usize = RANGE.start + 6;

/// Length of the window.
pub(crate) const BYTES: usize = RANGE.end - RANGE.start;
const MAGIC: [u8; 4] = *b"MPTH";
const VERSION: u16 = 2;
/// Later versions keep the fields of the first and add others behind them.
const FIRST_VERSION: u16 = 1;
/// The condition of the disk, from version 2 on.
const CONDITION: Range<usize> = 18..20;

/// The content of the vendor window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VendorWindow {
    /// Id of the path policy in force. 0 if it has no id.
    pub policy: u16,
    /// All paths of the disk, in any state.
    pub paths_total: u16,
    /// Paths that I/O can use.
    pub paths_live: u16,
    /// Usable paths whose ANA state is optimized.
    pub paths_optimized: u16,
}

impl VendorWindow {
    /// The bytes of the window in the configuration space.
    pub(crate) fn bytes(self, generation: u32, condition: u16) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut put = |range: Range<usize>, value: &[u8]| bytes[range].copy_from_slice(value);
        put(0..4, &MAGIC);
        put(4..6, &VERSION.to_le_bytes());
        put(6..8, &self.policy.to_le_bytes());
        put(8..12, &generation.to_le_bytes());
        put(12..14, &self.paths_total.to_le_bytes());
        put(14..16, &self.paths_live.to_le_bytes());
        put(16..18, &self.paths_optimized.to_le_bytes());
        put(CONDITION, &condition.to_le_bytes());
        bytes
    }

    /// Finds the window and its generation in a configuration space, as a front-end does.
    #[must_use]
    pub fn find(space: &[u8]) -> Option<(Self, u32)> {
        let bytes = space.get(RANGE)?;
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if bytes[..4] != MAGIC || u16_at(4) < FIRST_VERSION {
            return None;
        }
        let generation = u32::from(u16_at(8)) | u32::from(u16_at(10)) << 16;
        let window =
            Self { policy: u16_at(6), paths_total: u16_at(12), paths_live: u16_at(14), paths_optimized: u16_at(16) };
        Some((window, generation))
    }

    /// The id of the disk's condition in a configuration space with a window. 0 if the back-end does not say.
    #[must_use]
    pub fn condition(space: &[u8]) -> Option<u16> {
        Self::find(space)?;
        let bytes = space.get(RANGE)?.get(CONDITION)?;
        Some(u16::from_le_bytes([bytes[0], bytes[1]]))
    }
}

/// Why a policy that a front-end wrote was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetPolicyError {
    /// No policy has that id.
    #[error("no path policy has the id {0}")]
    Unknown(u16),
    /// The disk shares the paths of another disk, which owns the policy.
    #[error("the path policy belongs to another disk, whose paths this one shares")]
    OwnedByOtherDisk,
}

/// Whether the connected front-end has read the window, and its current content.
#[derive(Debug, Default, PartialEq, Eq)]
enum Reader {
    /// It has not read the window, and may not know it.
    #[default]
    NeverRead,
    /// It has read the current content.
    UpToDate,
    /// The window has changed since the last read. The front-end is notified once.
    Outdated,
}

/// The vendor window of a disk, and what its front-end has read.
#[derive(Debug, Default)]
pub(crate) struct VendorWindowState {
    window: VendorWindow,
    /// Id of the disk's condition. Front-ends read it when they are asked for it, so they are not notified of changes.
    pub(crate) condition: u16,
    /// Changes with the content but the condition, and wraps.
    generation: u32,
    reader: Reader,
}

impl VendorWindowState {
    /// Sets the content. Returns whether to notify the front-end.
    pub(crate) fn change(&mut self, window: VendorWindow) -> bool {
        if window == self.window {
            return false;
        }
        self.window = window;
        self.generation = self.generation.wrapping_add(1);
        let tell = self.reader == Reader::UpToDate;
        if tell {
            self.reader = Reader::Outdated;
        }
        tell
    }

    /// Returns the bytes for the front-end, which is up to date then.
    pub(crate) fn read(&mut self) -> [u8; BYTES] {
        self.reader = Reader::UpToDate;
        self.window.bytes(self.generation, self.condition)
    }

    /// Whether a front-end that passes its channel late has a change to be notified of.
    pub(crate) fn has_unreported_change(&self) -> bool {
        self.reader == Reader::Outdated
    }

    /// Forgets the front-end. The next one may be another program.
    pub(crate) fn front_end_left(&mut self) {
        self.reader = Reader::NeverRead;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config_space;

    const WINDOW: VendorWindow =
        VendorWindow { policy: 0x0102, paths_total: 0x0304, paths_live: 0x0506, paths_optimized: 0x0708 };

    fn space(window: [u8; BYTES]) -> [u8; config_space::BYTES] {
        let mut space = [0xff; config_space::BYTES];
        space[RANGE].copy_from_slice(&window);
        space
    }

    #[test]
    fn fields_are_where_they_are_documented() {
        let mut expected = [0; BYTES];
        expected[..20].copy_from_slice(b"MPTH\x02\x00\x02\x01\x0d\x0c\x0b\x0a\x04\x03\x06\x05\x08\x07\x0f\x0e");
        assert_eq!(WINDOW.bytes(0x0a0b_0c0d, 0x0e0f), expected);
        assert_eq!((RANGE, POLICY_OFFSET), (192..256, 198));
    }

    #[test]
    fn other_bytes_are_not_taken_for_a_window() {
        assert_eq!(VendorWindow::find(&[0; 256]), None);
        let whole = space(WINDOW.bytes(7, 0));
        assert_eq!(VendorWindow::find(&whole), Some((WINDOW, 7)));
        assert_eq!(VendorWindow::find(&whole[..255]), None);
        assert_eq!(VendorWindow::find(&[]), None);
        // A later version, the first one, and version 0.
        let of_version = |version: u8| {
            let mut space = whole;
            space[196] = version;
            VendorWindow::find(&space)
        };
        assert_eq!([3, 1, 0].map(of_version), [Some((WINDOW, 7)), Some((WINDOW, 7)), None]);
    }

    #[test]
    fn the_generation_changes_with_the_window_and_wraps() {
        let mut state = VendorWindowState { generation: u32::MAX, ..VendorWindowState::default() };
        let mut generation = |window| {
            state.change(window);
            VendorWindow::find(&space(state.read())).expect("a window").1
        };
        let other = VendorWindow { policy: 9, ..WINDOW };
        let read = [VendorWindow::default(), WINDOW, WINDOW, other, WINDOW].map(&mut generation);
        assert_eq!(read, [u32::MAX, 0, 0, 1, 2]);
    }

    #[test]
    fn a_condition_is_shown_without_a_notice() {
        let mut state = VendorWindowState::default();
        state.change(WINDOW);
        let before = space(state.read());
        state.condition = 4;
        assert!(!state.has_unreported_change() && !state.change(WINDOW));
        let after = space(state.read());
        assert_eq!((VendorWindow::condition(&before), VendorWindow::condition(&after)), (Some(0), Some(4)));
        assert_eq!(
            (VendorWindow::find(&before), VendorWindow::condition(&[0; 256])),
            (VendorWindow::find(&after), None)
        );
    }

    #[test]
    fn a_reader_is_notified_once_until_it_reads_again() {
        let mut state = VendorWindowState::default();
        let mut lives = 0;
        let mut change = |state: &mut VendorWindowState| {
            lives += 1;
            state.change(VendorWindow { paths_live: lives, ..WINDOW })
        };
        assert!(!change(&mut state) && !state.has_unreported_change(), "not used yet");
        state.read();
        assert!(!state.has_unreported_change() && change(&mut state) && state.has_unreported_change());
        assert!(!change(&mut state) && state.has_unreported_change(), "told already");
        state.read();
        assert!(!state.has_unreported_change() && change(&mut state));
        state.front_end_left();
        assert!(!change(&mut state) && !state.has_unreported_change(), "the next one has not used it");
        let now = state.window;
        state.read();
        assert!(!state.change(now), "nothing has changed");
    }

    proptest! {
        #[test]
        fn a_written_window_is_found(fields: [u16; 4], generation: u32, condition: u16) {
            let [policy, paths_total, paths_live, paths_optimized] = fields;
            let window = VendorWindow { policy, paths_total, paths_live, paths_optimized };
            let bytes = window.bytes(generation, condition);
            prop_assert_eq!(VendorWindow::find(&space(bytes)), Some((window, generation)));
            prop_assert_eq!(VendorWindow::condition(&space(bytes)), Some(condition));
            prop_assert_eq!(&bytes[20..], &[0; BYTES - 20]);
        }

        #[test]
        fn any_bytes_are_handled(space in proptest::collection::vec(any::<u8>(), 0..300), magic: bool) {
            let mut space = space;
            if magic && space.len() >= 200 {
                space[192..196].copy_from_slice(&MAGIC);
            }
            let is_window = space.len() >= 256 && space[192..196] == MAGIC && space[196..198] != [0, 0];
            prop_assert_eq!(VendorWindow::find(&space).is_some(), is_window);
        }

        /// The model: notify if the window was read, has changed since, and no notification was sent since.
        #[test]
        fn any_order_of_reads_and_changes(steps in proptest::collection::vec(0_u16..6, 0..40)) {
            let mut state = VendorWindowState::default();
            let (mut used, mut told, mut current) = (false, false, VendorWindow::default());
            for step in steps {
                match step {
                    4 => {
                        state.read();
                        (used, told) = (true, false);
                    }
                    5 => {
                        state.front_end_left();
                        (used, told) = (false, false);
                    }
                    policy => {
                        let window = VendorWindow { policy, ..VendorWindow::default() };
                        let tell = used && !told && window != current;
                        prop_assert_eq!(state.change(window), tell);
                        (told, current) = (told || tell, window);
                    }
                }
                prop_assert_eq!(state.has_unreported_change(), told);
            }
        }
    }
}
