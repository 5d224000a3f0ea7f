//! Decides: the bytes of a request fit into the window of a path (`has_room_for`).
//!
//! The limit of requests and bytes in flight on a path.

/// The limit of one path's requests and bytes in flight, for one [`crate::Group`] (one I/O thread).
///
/// A request that finds no room waits in the group without a path. A request larger than the whole window goes alone,
/// when the path is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Requests. 0 counts as 1.
    pub ios: u32,
    /// Bytes.
    pub bytes: u64,
}

impl Default for Window {
    /// 128 requests (the queue size Linux uses) and 8 MiB.
    fn default() -> Self {
        Self { ios: 128, bytes: 8 << 20 }
    }
}

/// Requests and bytes in flight on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) ios: u32,
    pub(crate) bytes: u64,
}

impl Usage {
    /// Whether the bytes of one more request fit into the window. A request larger than the whole window goes alone.
    #[inline]
    pub(crate) fn has_room_for(self, window: Window, bytes: u32) -> bool {
        self.ios == 0 || self.bytes + u64::from(bytes) <= window.bytes
    }

    pub(crate) fn take(&mut self, bytes: u32) {
        self.ios += 1;
        self.bytes += u64::from(bytes);
    }

    pub(crate) fn give_back(&mut self, bytes: u32) {
        assert!(self.ios > 0 && self.bytes >= u64::from(bytes), "the window counts every request once");
        self.ios -= 1;
        self.bytes -= u64::from(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { ios: 2, bytes: 8192 };

    #[test]
    fn bytes_in_flight_are_limited() {
        let mut usage = Usage::default();
        assert!(usage.has_room_for(WINDOW, 4096));
        usage.take(4096);
        assert!(usage.has_room_for(WINDOW, 4096));
        assert!(!usage.has_room_for(WINDOW, 4097));
        usage.take(4096);
        assert!(usage.has_room_for(WINDOW, 0) && !usage.has_room_for(WINDOW, 1));
        usage.give_back(4096);
        assert!(usage.has_room_for(WINDOW, 4096));
    }

    #[test]
    fn an_idle_path_takes_any_size() {
        let mut usage = Usage::default();
        assert!(usage.has_room_for(WINDOW, 1 << 20));
        usage.take(1 << 20);
        assert!(!usage.has_room_for(WINDOW, 1));
        usage.give_back(1 << 20);
        assert!(usage.has_room_for(Window { ios: 0, bytes: 0 }, 1));
    }
}
