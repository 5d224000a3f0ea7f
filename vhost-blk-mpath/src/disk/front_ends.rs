//! Decides: front-ends leave one after the other before they start a virtqueue (`left`).
//!
//! Front-ends of a disk that came and left. QEMU does so once a second if it cannot share the guest's memory.

use std::time::{Duration, Instant};

/// The number of front-ends in a row that is reported.
const FLAPPING: u32 = 3;
/// The longest time between two front-ends in a row.
const PERIOD: Duration = Duration::from_secs(60);

/// The remedy for front-ends that leave at once.
const REMEDY: &str = "if no `front-end lost` in the events and no line in QEMU's log says why, the usual cause is that QEMU cannot share \
    the guest's memory: start it with `-object memory-backend-memfd,id=mem,size=SIZE,share=on -machine memory-backend=mem`, SIZE being that of `-m`";

/// The front-ends of a disk, by what they did.
#[derive(Debug, Default)]
pub(crate) struct FrontEnds {
    /// The virtqueues that were started before the last front-end came.
    starts_before: u64,
    /// The number of front-ends in a row that started no virtqueue, and when the last one left.
    unused: Option<(u32, Instant)>,
}

impl FrontEnds {
    /// A front-end came. `starts` counts the virtqueues that front-ends have started.
    pub(crate) fn came(&mut self, starts: u64) {
        self.starts_before = starts;
    }

    /// The front-end left. Returns what to report, once for front-ends in a row.
    pub(crate) fn left(&mut self, starts: u64, now: Instant) -> Option<String> {
        if starts != self.starts_before {
            self.unused = None;
            return None;
        }
        let count = self.recent(now) + 1;
        self.unused = Some((count, now));
        (count == FLAPPING).then(|| format!("{count} {}", described()))
    }

    /// Why no front-end stays.
    pub(crate) fn trouble(&self, now: Instant) -> Option<String> {
        let count = self.recent(now);
        (count >= FLAPPING).then(|| format!("the last {count} {}", described()))
    }

    fn recent(&self, now: Instant) -> u32 {
        self.unused.filter(|(_, last)| now - *last < PERIOD).map_or(0, |(count, _)| count)
    }
}

fn described() -> String {
    format!("front-ends in a row left before they started a virtqueue; {REMEDY}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_ends_that_leave_at_once_are_explained_once() {
        let (mut front_ends, start) = (FrontEnds::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut told = Vec::new();
        // QEMU without `share=on` and with `reconnect=1`.
        for second in 0..22 {
            front_ends.came(0);
            assert_eq!(front_ends.trouble(at(second)).is_some(), second >= 3);
            told.extend(front_ends.left(0, at(second)));
        }
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("3 front-ends in a row left before they started a virtqueue"), "{told:?}");
        assert!(told[0].contains("share=on") && told[0].contains("memory-backend=mem"), "{told:?}");
        assert!(front_ends.trouble(at(22)).unwrap().starts_with("the last 22 front-ends in a row"));
        assert_eq!(front_ends.trouble(at(81)), None, "a minute later");
    }

    #[test]
    fn front_ends_that_start_virtqueues_or_come_rarely_are_no_trouble() {
        let (mut front_ends, start) = (FrontEnds::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..10 {
            front_ends.came(second);
            assert_eq!(front_ends.left(second + 1, at(second)), None, "it started a virtqueue");
        }
        for visit in 1..10 {
            front_ends.came(10);
            assert_eq!(front_ends.left(10, at(60 * visit)), None, "one a minute");
        }
        assert_eq!(front_ends.trouble(at(541)), None);
    }
}
