//! Decides: a disk has this condition, for these reasons.
//!
//! The health of disks: the condition of each, its reasons, and the errors that its guest got.
//!
//! [`Subsystem::check_health`] looks at everything anew. The API calls it for each answer, and a task calls it twice a second, so
//! that events tell of a new condition without anyone asking.

use std::time::SystemTime;

use monotonic::{Duration, Instant};
use mpath_api::types::{Condition, ConditionReason, DiskHealth, EventKind, PathCounts};
use mpath_api_server::on_own_behalf;
use mpath_config::MinPaths;
use mpath_core::OLD_REQUEST;
use vhost_user_blk::QueueError;

use crate::disk::Disk;
use crate::events::utc;
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::{DroppedPath, PathStatus, REMOVAL_HELD};
use crate::subsystem::vendor_window::condition_id;

/// Why the discovery controllers of a subsystem have led to no path.
pub(crate) struct Undiscovered {
    pub(crate) why: String,
    /// First logs are missing, so there may be a path at any moment.
    pub(crate) is_pending: bool,
}

/// The paths of a disk at one moment.
struct PathFacts {
    counts: PathCounts,
    /// Why expected paths are not usable, with the paths of each reason.
    unusable: Vec<(Vec<String>, String)>,
    /// A path makes its first attempt to connect, or has just become live, so it may be usable at any moment. Or a first log may
    /// add one.
    some_untried: bool,
    /// The paths whose removal is held.
    held: Vec<String>,
    /// Why the disk has fewer paths than it is to have.
    too_few: Option<String>,
}

impl Subsystem {
    /// Looks at the health of a disk, and records events of what has changed. Records none while the disk is being
    /// removed, because its paths and front-ends go by order then. `outstanding` is known to the I/O threads alone.
    /// `undiscovered` is given if the subsystem has discovery controllers and no path.
    ///
    /// Must not be called with the state locked.
    pub(crate) fn check_health(
        &self,
        disk: &Disk,
        undiscovered: Option<&Undiscovered>,
        outstanding: u64,
        is_leaving: bool,
    ) -> (DiskHealth, PathCounts) {
        let (now, time) = (Instant::now(), SystemTime::now());
        let mut history = disk.health();
        let mut events = history.new_errors(&disk.shared.errors, now, time);
        let broken = disk.queues.take_newly_broken().into_iter();
        events.extend(broken.map(|(index, error)| (EventKind::DiskFailing, broken_message(index, error))));
        let mut paths = self.path_facts(disk, time);
        paths.some_untried |= undiscovered.is_some_and(|undiscovered| undiscovered.is_pending);
        // Each I/O thread may use another path, so that I/O goes on although none is usable in all threads.
        let is_waiting = paths.counts.usable == 0 && !disk.shared.usable.any_in_each();
        history.waiting_since = is_waiting.then(|| history.waiting_since.unwrap_or(time));

        let mut reasons = history.failures(now);
        let mut add = |condition, message| reasons.push(ConditionReason { condition, message });
        for (index, (broke_at, error)) in disk.queues.broken() {
            add(Condition::Failing, broken_reason(index, time - (now - broke_at).into(), error));
        }
        if let Some(reason) = disk.hold_reason(now) {
            add(Condition::Held, reason);
        }
        if let Some(since) = history.waiting_since {
            add(Condition::Waiting, waiting_reason(since, &paths, undiscovered));
        }
        if !disk.is_connected() {
            add(Condition::NoFrontEnd, disk.no_front_end(now));
        }
        if !is_waiting && paths.counts.usable < paths.counts.expected {
            add(Condition::Degraded, degraded_reason(&paths));
        }
        if let Some(reason) = paths.too_few.clone().filter(|_| !is_waiting) {
            add(Condition::Degraded, reason);
        }
        for path in &paths.held {
            add(Condition::Degraded, format!("{path}: {REMOVAL_HELD}"));
        }
        // A starved host, a lost socket and a front-end that waits are no trouble of the paths, and have events of their own. The
        // front-end knows of an old request.
        let waiting = disk.waiting_front_end();
        let others = self.events.stalls.starved(now).into_iter().chain(history.lost_socket.clone()).chain(waiting);
        let reasons_of_disk = reasons.len();
        let oldest = disk.shared.oldest.age(now).filter(|age| *age >= OLD_REQUEST);
        reasons.extend(oldest.map(|age| ConditionReason {
            condition: Condition::Degraded,
            message: format!(
                "a request of the guest has had no answer for {}; `mpathctl explain {}` says what it waits for",
                tenths(age),
                disk.name()
            ),
        }));
        reasons.extend(others.map(|message| ConditionReason { condition: Condition::Degraded, message }));
        let condition = worst(reasons.iter().map(|reason| reason.condition));
        if let Some(backing) = disk.backing() {
            // Only a connected front-end reads the condition, so `no-front-end` is left out.
            let of_disk = reasons[..reasons_of_disk].iter().map(|reason| reason.condition);
            let seen = worst(of_disk.filter(|condition| *condition != Condition::NoFrontEnd));
            backing.frontend.set_condition(condition_id(seen));
        }
        if condition != history.condition {
            (history.condition, history.since) = (condition, time);
        }
        // A path that is about to connect for the first time, or just has, is no trouble yet.
        let of_paths = |reason: &&ConditionReason| {
            matches!(reason.condition, Condition::Waiting | Condition::Degraded) && !paths.some_untried
        };
        let trouble = reasons[..reasons_of_disk].iter().find(of_paths);
        let to_tell = trouble.map_or(Condition::Ok, |reason| reason.condition);
        if to_tell != history.told && !(trouble.is_none() && paths.some_untried) {
            history.told = to_tell;
            events.push(match trouble {
                Some(reason) if to_tell == Condition::Waiting => (EventKind::DiskWaiting, reason.message.clone()),
                Some(reason) => (EventKind::DiskDegraded, reason.message.clone()),
                None => (EventKind::DiskOk, format!("all {} expected paths are usable", paths.counts.expected)),
            });
        }
        for (kind, message) in events.into_iter().filter(|_| !is_leaving) {
            // A client may have asked for the status just when it has changed.
            on_own_behalf(|| disk.event(kind, message));
        }
        let health = DiskHealth {
            condition,
            condition_since: utc(history.since),
            reasons,
            outstanding,
            guest_errors: history.guest_errors(),
        };
        (health, paths.counts)
    }

    fn path_facts(&self, disk: &Disk, time: SystemTime) -> PathFacts {
        let mut state = self.state();
        let (left, most) = state.redundancy();
        let counts = PathCounts { total: state.paths().count() as u32, expected: 0, usable: 0, missing: 0 };
        let held = state.paths().filter(|path| path.is_removing() && path.is_wanted()).map(name_path).collect();
        let mut facts = PathFacts { counts, unusable: Vec::new(), some_untried: false, held, too_few: None };
        for path in state.paths().filter(|path| path.is_wanted()) {
            facts.counts.expected += 1;
            match path.unusable(disk.id, &disk.shared.usable) {
                None => facts.counts.usable += 1,
                Some(reason) => {
                    facts.some_untried |= path.is_untried() || path.is_just_live(time);
                    match facts.unusable.iter_mut().find(|(_, other)| *other == reason) {
                        Some((paths, _)) => paths.push(name_path(path)),
                        None => facts.unusable.push((vec![name_path(path)], reason)),
                    }
                }
            }
        }
        let min_paths = state.live(disk.id).min_paths;
        facts.counts.missing = match min_paths {
            MinPaths::Count(wanted) => u32::from(wanted).saturating_sub(facts.counts.usable),
            MinPaths::Auto => most - left,
        };
        let too_few = || too_few(min_paths, facts.counts.usable, (left, most), state.dropped());
        facts.too_few = (facts.counts.missing > 0).then(too_few);
        facts
    }
}

/// Why a disk has too few paths: `left` are those that are not being removed, and `most` those that it has had.
fn too_few(wanted: MinPaths, usable: u32, (left, most): (u32, u32), dropped: &[DroppedPath]) -> String {
    let cause = |DroppedPath { address, at, by_discovery }: &DroppedPath| {
        let by = if *by_discovery { "discovery" } else { "a reload" };
        format!("{by} dropped {address} at {}", utc(*at))
    };
    let causes: Vec<_> = dropped.iter().map(cause).collect();
    let causes = if causes.is_empty() { "others are gone".into() } else { causes.join(", ") };
    match wanted {
        MinPaths::Count(wanted) => format!("usable paths: {usable}, fewer than min-paths ({wanted})"),
        MinPaths::Auto => {
            format!("{left} of {most} paths are left: {causes}; if that is meant, set `min-paths` to {left}")
        }
    }
}

/// A time in seconds, as in `2.3 s`.
fn tenths(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn worst(conditions: impl Iterator<Item = Condition>) -> Condition {
    conditions.max().unwrap_or(Condition::Ok)
}

fn name_path(path: &PathStatus) -> String {
    format!("path {} ({})", path.id.0, path.address)
}

/// Each reason once, after the paths that have it.
fn listed(unusable: &[(Vec<String>, String)]) -> String {
    let one = |(paths, reason): &(Vec<String>, String)| format!("{}: {reason}", paths.join(", "));
    unusable.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn waiting_reason(since: SystemTime, paths: &PathFacts, undiscovered: Option<&Undiscovered>) -> String {
    let why = match (paths.counts.total, paths.counts.expected) {
        (0, _) => match undiscovered {
            Some(Undiscovered { why, .. }) => format!("there is no path; {why}"),
            None => "there is no path".into(),
        },
        (_, 0) => "every path is drained, disabled or being removed".into(),
        _ => listed(&paths.unusable),
    };
    format!("no path is usable since {}: {why}", utc(since))
}

fn broken_reason(index: u16, since: SystemTime, error: QueueError) -> String {
    format!("virtqueue {index} stands still since {} until the guest resets the device: {error}", utc(since))
}

fn broken_message(index: u16, error: QueueError) -> String {
    format!("virtqueue {index} stands still until the guest resets the device: {error}")
}

fn degraded_reason(PathFacts { counts, unusable, .. }: &PathFacts) -> String {
    format!("{} of {} expected paths are usable: {}", counts.usable, counts.expected, listed(unusable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_to_have_its_paths() {
        let address = "tcp://192.0.2.1:4420".parse().unwrap();
        let dropped = DroppedPath { address, at: SystemTime::UNIX_EPOCH, by_discovery: true };
        let too_few = |wanted: &str, usable, counts| {
            too_few(wanted.parse().unwrap(), usable, counts, std::slice::from_ref(&dropped))
        };
        assert_eq!(
            too_few("auto", 2, (2, 4)),
            "2 of 4 paths are left: discovery dropped tcp://192.0.2.1:4420 at 1970-01-01T00:00:00.000Z; if that is meant, set \
             `min-paths` to 2"
        );
        assert_eq!(too_few("2", 1, (4, 4)), "usable paths: 1, fewer than min-paths (2)");
    }

    #[test]
    fn a_reason_is_told_once_with_its_paths() {
        let unusable = [
            (vec!["path 0 (a)".into(), "path 2 (c)".into()], "lost".into()),
            (vec!["path 1 (b)".into()], "suspect".into()),
        ];
        assert_eq!(listed(&unusable), "path 0 (a), path 2 (c): lost; path 1 (b): suspect");
    }
}
