//! What `top` knows and shows. The state has no clock and no connection: the driver tells it times and answers.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use mpath_api::types::{Disk, Event, Events, GuestOperation, Path, QueueTurns, SchedulerDetail, Status};

use super::dialog::Dialog;
use super::history::{History, Measure, PathKey, key};

/// Events that are kept.
const EVENTS_MAX: usize = 100;

/// One look at the daemon.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) status: Status,
    pub(super) paths: Vec<Path>,
    pub(super) scheduling: Vec<SchedulerDetail>,
    pub(super) events: Events,
}

/// The list that the arrow keys move in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Focus {
    #[default]
    Disks,
    Paths,
}

/// The outcome of a change: done, or why not.
pub(super) type Outcome = Result<String, String>;

#[derive(Debug)]
pub(super) struct State {
    interval: Duration,
    /// The time since the start, as the driver told it last.
    now: Duration,
    look: Option<Look>,
    /// When the last look ended, and when the last look with an answer did.
    asked_at: Duration,
    answered_at: Duration,
    /// Why the last look has no answer.
    pub(super) error: Option<String>,
    pub(super) outcome: Option<Outcome>,
    pub(super) events: VecDeque<Event>,
    boot_id: String,
    last_event: u64,
    disk: Option<String>,
    path: Option<PathKey>,
    pub(super) focus: Focus,
    pub(super) measure: Measure,
    pub(super) history: History,
    /// What changed between the last two looks: by disk and virtqueue, and by disk.
    queue_rates: HashMap<(String, u16), QueueRate>,
    byte_rates: HashMap<String, ByteRate>,
    pub(super) dialog: Option<Dialog>,
}

/// What a virtqueue did in one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct QueueRate {
    pub(super) ios: u64,
    pub(super) bytes: u64,
}

/// Bytes a second of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ByteRate {
    pub(super) read: u64,
    pub(super) write: u64,
}

impl State {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            now: Duration::ZERO,
            look: None,
            asked_at: Duration::ZERO,
            answered_at: Duration::ZERO,
            error: None,
            outcome: None,
            events: VecDeque::new(),
            boot_id: String::new(),
            last_event: 0,
            disk: None,
            path: None,
            focus: Focus::default(),
            measure: Measure::default(),
            history: History::default(),
            queue_rates: HashMap::new(),
            byte_rates: HashMap::new(),
            dialog: None,
        }
    }

    /// The number of the last event known: the next look asks for those after it.
    pub(super) fn last_event(&self) -> u64 {
        self.last_event
    }

    pub(super) fn time(&mut self, now: Duration) {
        self.now = now;
    }

    /// Handles the answer to a look.
    pub(super) fn looked(&mut self, now: Duration, answer: Result<Look, String>) {
        self.now = now;
        let seconds = now.as_secs().saturating_sub(self.asked_at.as_secs()) as usize;
        self.asked_at = now;
        match answer {
            Ok(look) => {
                // The first look is a sample too.
                let seconds = if self.look.is_none() { 1 } else { seconds };
                self.rates(now.saturating_sub(self.answered_at), &look);
                self.history.add(&look.paths, seconds);
                self.take_events(&look.events);
                (self.look, self.answered_at, self.error) = (Some(look), now, None);
                self.keep_choice();
            }
            Err(error) => {
                self.history.add_gap(seconds);
                self.error = Some(error);
            }
        }
    }

    /// Computes the rates since the last look. A counter that fell belongs to another daemon or path, and gives no rate.
    fn rates(&mut self, time: Duration, look: &Look) {
        let Some(old) = &self.look else { return };
        let rate = |from: u64, to: u64| to.checked_sub(from).map(|moved| per_second(moved, time));
        let of_disk = |disk: &Disk| {
            let before = old.status.disks.iter().find(|before| before.name == disk.name)?;
            let of = |operation| rate(before.guest.of(operation)?.bytes, disk.guest.of(operation)?.bytes);
            let (read, write) = (of(GuestOperation::Read)?, of(GuestOperation::Write)?);
            Some((disk.name.clone(), ByteRate { read, write }))
        };
        self.byte_rates = look.status.disks.iter().filter_map(of_disk).collect();
        let queues = |of: &[SchedulerDetail]| {
            let of_disk =
                |of: &SchedulerDetail| of.queues.iter().map(|queue| (of.disk.clone(), *queue)).collect::<Vec<_>>();
            of.iter().flat_map(of_disk).collect::<Vec<_>>()
        };
        let before: HashMap<_, QueueTurns> =
            queues(&old.scheduling).into_iter().map(|(disk, queue)| ((disk, queue.queue), queue)).collect();
        let of_queue = |(disk, queue): (String, QueueTurns)| {
            let of = (disk, queue.queue);
            let from = before.get(&of)?;
            let (ios, bytes) = (rate(from.served, queue.served)?, rate(from.served_bytes, queue.served_bytes)?);
            Some((of, QueueRate { ios, bytes }))
        };
        self.queue_rates = queues(&look.scheduling).into_iter().filter_map(of_queue).collect();
    }

    fn take_events(&mut self, new: &Events) {
        if self.boot_id != new.boot_id {
            // Another daemon answers, and its events count from 1. The number in the request was the earlier daemon's, so the
            // answer may leave out some.
            let is_first = self.boot_id.is_empty();
            self.boot_id.clone_from(&new.boot_id);
            if !is_first && self.last_event > 0 {
                self.last_event = 0;
                return;
            }
        }
        self.events.extend(new.events.iter().cloned());
        self.events.drain(..self.events.len().saturating_sub(EVENTS_MAX));
        self.last_event = new.last;
    }

    /// Chooses the first disk and path if those chosen are gone.
    fn keep_choice(&mut self) {
        if self.chosen_disk().is_none() {
            self.disk = self.disks().first().map(|disk| disk.name.clone());
        }
        if self.chosen_path().is_none() {
            self.path = self.paths().first().map(|path| key(path));
        }
    }

    pub(super) fn status(&self) -> Option<&Status> {
        self.look.as_ref().map(|look| &look.status)
    }

    /// Seconds since the last answer, if that is longer than a look takes.
    pub(super) fn silent_s(&self) -> Option<u64> {
        let silent = self.now.saturating_sub(self.answered_at);
        (self.error.is_some() || silent > self.interval * 2 + Duration::from_secs(1)).then_some(silent.as_secs())
    }

    /// The disks, the worst first.
    pub(super) fn disks(&self) -> Vec<&Disk> {
        let mut disks: Vec<_> = self.status().into_iter().flat_map(|status| &status.disks).collect();
        disks.sort_by_key(|disk| std::cmp::Reverse(disk.health.condition));
        disks
    }

    pub(super) fn chosen_disk(&self) -> Option<&Disk> {
        let chosen = self.disk.as_ref()?;
        self.status()?.disks.iter().find(|disk| disk.name == *chosen)
    }

    /// The disk that has the paths of the chosen disk.
    pub(super) fn owner(&self) -> Option<&str> {
        let disk = self.chosen_disk()?;
        Some(disk.shares_paths_of.as_ref().unwrap_or(&disk.name))
    }

    /// The paths of the chosen disk.
    pub(super) fn paths(&self) -> Vec<&Path> {
        self.owner().map_or_else(Vec::new, |owner| self.paths_of(owner).collect())
    }

    /// The paths that a disk has itself.
    pub(super) fn paths_of<'a>(&'a self, disk: &'a str) -> impl Iterator<Item = &'a Path> + Clone {
        self.look.iter().flat_map(|look| &look.paths).filter(move |path| path.disk == disk)
    }

    pub(super) fn chosen_path(&self) -> Option<&Path> {
        let chosen = self.path.as_ref()?;
        self.paths().into_iter().find(|path| key(path) == *chosen)
    }

    pub(super) fn scheduling(&self, disk: &str) -> Option<&SchedulerDetail> {
        self.look.as_ref()?.scheduling.iter().find(|of| of.disk == disk)
    }

    pub(super) fn byte_rate(&self, disk: &str) -> Option<ByteRate> {
        self.byte_rates.get(disk).copied()
    }

    pub(super) fn queue_rate(&self, disk: &str, queue: u16) -> Option<QueueRate> {
        self.queue_rates.get(&(disk.into(), queue)).copied()
    }

    /// Moves the choice in the list that has the focus.
    pub(super) fn move_choice(&mut self, by: isize) {
        match self.focus {
            Focus::Disks => {
                let disks: Vec<_> = self.disks().iter().map(|disk| disk.name.clone()).collect();
                let at = disks.iter().position(|name| self.disk.as_ref() == Some(name));
                self.disk = moved(&disks, at, by);
                self.keep_choice();
            }
            Focus::Paths => {
                let paths: Vec<_> = self.paths().into_iter().map(key).collect();
                let at = paths.iter().position(|of| self.path.as_ref() == Some(of));
                self.path = moved(&paths, at, by);
            }
        }
    }
}

/// The entry that is `by` entries after `at`, within the list.
fn moved<T: Clone>(list: &[T], at: Option<usize>, by: isize) -> Option<T> {
    let to = at.unwrap_or(0).saturating_add_signed(by);
    list.get(to.min(list.len().saturating_sub(1))).cloned()
}

fn per_second(moved: u64, time: Duration) -> u64 {
    let ms = time.as_millis().max(1);
    (u128::from(moved) * 1000 / ms) as u64
}
