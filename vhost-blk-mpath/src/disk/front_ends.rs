//! Decides: front-ends leave one after the other before they start a virtqueue (`left`).
//! Decides: a front-end waits until another one has left (`saw_waiting`).
//!
//! Front-ends of a disk. QEMU comes and leaves once a second if it cannot share the guest's memory. A second QEMU on the same socket
//! stands still with its guest, and says nothing.

use monotonic::{Duration, Instant};
use mpath_api::types::FrontEndProcess;
use mpath_api_server::program;

/// The number of front-ends in a row that is reported.
const FLAPPING: u32 = 3;
/// The longest time between two front-ends in a row.
const PERIOD: Duration = Duration::from_secs(60);

/// How often in a row a front-end is seen to wait before that is reported. A program that only tries the socket leaves before.
const LOOKS: u32 = 2;

/// The remedy for front-ends that leave at once.
const REMEDY: &str = "if no `front-end lost` in the events and no line in QEMU's log says why, the usual cause is that QEMU cannot share \
    the guest's memory: start it with `-object memory-backend-memfd,id=mem,size=SIZE,share=on -machine memory-backend=mem`, SIZE being that of `-m`";

/// A front-end that waits until the connected one has left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingFrontEnd {
    /// Tells it from others.
    pub(crate) number: u64,
    /// Its process, if that is known.
    pub(crate) pid: Option<u32>,
    /// The connected one has hung up, and its requests have not ended.
    pub(crate) is_draining: bool,
}

/// The front-ends of a disk, by what they did.
#[derive(Debug, Default)]
pub(crate) struct FrontEnds {
    /// The virtqueues that were started before the last front-end came.
    starts_before: u64,
    /// The number of front-ends in a row that started no virtqueue, and when the last one left.
    unused: Option<(u32, Instant)>,
    /// The process of the connected front-end, if it is known.
    connected: Option<FrontEndProcess>,
    /// The name of its program was looked up.
    has_program: bool,
    /// The front-end that waits for the connected one, its process, and how often in a row it was seen to wait.
    waiting: Option<(WaitingFrontEnd, Option<FrontEndProcess>, u32)>,
}

impl FrontEnds {
    /// A front-end came, of the process `pid` if that is known. `starts` counts the virtqueues that front-ends have started.
    pub(crate) fn came(&mut self, pid: Option<u32>, starts: u64) {
        let connected = pid.map(|pid| FrontEndProcess { pid, program: None });
        *self = Self { starts_before: starts, unused: self.unused, connected, has_program: false, waiting: None };
    }

    /// The front-end left. Returns what to report, once for front-ends in a row.
    pub(crate) fn left(&mut self, starts: u64, now: Instant) -> Option<String> {
        (self.connected, self.waiting) = (None, None);
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

    /// The process of the connected front-end. Looks its program up at the first call: the thread that serves it cannot.
    pub(crate) fn process(&mut self) -> Option<FrontEndProcess> {
        if let Some(process) = self.connected.as_mut().filter(|_| !self.has_program) {
            (process.program, self.has_program) = (program(process.pid), true);
        }
        self.connected.clone()
    }

    /// Another front-end was seen to wait, or none. Returns what to report, once for each that waits.
    pub(crate) fn saw_waiting(&mut self, waiting: Option<WaitingFrontEnd>) -> Option<String> {
        let before = self.waiting.take();
        let waiting = waiting?;
        let looks = before.filter(|(of, ..)| of.number == waiting.number).map_or(0, |(.., looks)| looks) + 1;
        let process = waiting.pid.map(|pid| FrontEndProcess { pid, program: program(pid) });
        self.waiting = Some((waiting, process, looks));
        if looks == LOOKS { self.waiting() } else { None }
    }

    /// That a front-end waits, and for whom.
    pub(crate) fn waiting(&mut self) -> Option<String> {
        let (of, waiting, _) = self.waiting.clone().filter(|(.., looks)| *looks >= LOOKS)?;
        let named = |process: Option<FrontEndProcess>, else_: &str| process.map_or(else_.into(), |of| of.to_string());
        let (waiting, connected) = (named(waiting, "a front-end"), named(self.process(), "the connected one"));
        if of.is_draining {
            return Some(format!(
                "{waiting} waits on the socket until the requests of {connected}, which has left, have ended"
            ));
        }
        Some(format!(
            "{waiting} waits on the socket until {connected} has left, because a disk serves one front-end at a time; end the one that \
             is not meant to have the disk"
        ))
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
            front_ends.came(None, 0);
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
            front_ends.came(None, second);
            assert_eq!(front_ends.left(second + 1, at(second)), None, "it started a virtqueue");
        }
        for visit in 1..10 {
            front_ends.came(None, 10);
            assert_eq!(front_ends.left(10, at(60 * visit)), None, "one a minute");
        }
        assert_eq!(front_ends.trouble(at(541)), None);
    }

    #[test]
    fn a_front_end_that_waits_is_told_once_while_it_waits() {
        let mut front_ends = FrontEnds::default();
        // No process has such a number.
        let (connected, other) = (u32::MAX, u32::MAX - 1);
        let waits = |number, pid| Some(WaitingFrontEnd { number, pid, is_draining: false });
        front_ends.came(Some(connected), 0);
        assert_eq!(front_ends.process().map(|process| process.pid), Some(connected));
        // The second one takes the place of the first one at once.
        for number in 1..=2 {
            assert_eq!(front_ends.saw_waiting(waits(number, Some(other))), None, "it may only try the socket");
            let told = front_ends.saw_waiting(waits(number, Some(other))).unwrap();
            let expected = format!("process {other} waits on the socket until process {connected} has left, because");
            assert!(told.starts_with(&expected), "{told}");
            assert_eq!(front_ends.saw_waiting(waits(number, Some(other))), None);
            assert_eq!(front_ends.waiting(), Some(told));
        }
        let draining = Some(WaitingFrontEnd { number: 2, pid: None, is_draining: true });
        assert_eq!(front_ends.saw_waiting(draining), None);
        let text = format!(
            "a front-end waits on the socket until the requests of process {connected}, which has left, have ended"
        );
        assert_eq!(front_ends.waiting(), Some(text));
        assert_eq!((front_ends.saw_waiting(None), front_ends.waiting()), (None, None), "it has gone");
        front_ends.saw_waiting(waits(3, None));
        front_ends.left(1, Instant::now());
        front_ends.came(None, 1);
        assert_eq!((front_ends.process(), front_ends.saw_waiting(waits(3, None))), (None, None), "another one waits");
        let told = front_ends.saw_waiting(waits(3, None)).unwrap();
        assert!(told.starts_with("a front-end waits on the socket until the connected one has left"), "{told}");
    }
}
