//! Decides: a log line is left out.
//!
//! Limits the lines of the log. A guest, a front-end or a target may repeat without end what the log tells of.
//!
//! The limit is that of one place in the code, so that one flood leaves the other lines in place. Lines of events have a limit in
//! [`crate::events`], and `RUST_LOG=debug` asks for every line of its levels.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::Hash;
use std::sync::{LazyLock, Mutex, PoisonError};

use monotonic::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};

use crate::events::LOG_TARGET as EVENTS;

/// The most lines of one place in a [`PERIOD`].
const LINES_MAX: u64 = 1000;
/// The time for [`LINES_MAX`] lines, and between reports of lines that were left out.
const PERIOD: Duration = Duration::from_secs(60);

static PLACES: LazyLock<Mutex<Places<Identifier>>> = LazyLock::new(Mutex::default);

/// The lines of each place in its current period.
#[derive(Debug)]
struct Places<K>(HashMap<K, Place>);

#[derive(Debug)]
struct Place {
    /// For the report: file and line.
    name: String,
    /// When the period began.
    since: Instant,
    /// Lines in the period, logged or not.
    lines: u64,
    /// Lines that were left out and are not reported yet.
    left_out: u64,
}

impl<K> Default for Places<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Places<K> {
    /// Counts a line of a place. Returns whether it is to be logged.
    fn admits(&mut self, place: K, name: impl FnOnce() -> String, now: Instant) -> bool {
        let place = self.0.entry(place).or_insert_with(|| Place { name: name(), since: now, lines: 0, left_out: 0 });
        if now.duration_since(place.since) >= PERIOD {
            (place.since, place.lines) = (now, 0);
        }
        place.lines += 1;
        let is_admitted = place.lines <= LINES_MAX;
        place.left_out += u64::from(!is_admitted);
        is_admitted
    }

    /// The places whose lines were left out since the last call, with the number of these lines.
    fn take_left_out(&mut self) -> Vec<(String, u64)> {
        let places = self.0.values_mut().filter(|place| place.left_out > 0);
        places.map(|place| (place.name.clone(), std::mem::take(&mut place.left_out))).collect()
    }
}

/// Counts a line. Returns whether it is to be logged.
pub(crate) fn admits(metadata: &Metadata<'_>) -> bool {
    if *metadata.level() > Level::INFO || metadata.target() == EVENTS {
        return true;
    }
    let name = || format!("{}:{}", metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    places.admits(metadata.callsite(), name, Instant::now())
}

/// Reports once in a period the lines that were left out.
pub(crate) async fn report() -> Infallible {
    loop {
        tokio::time::sleep(PERIOD.into()).await;
        let left_out = PLACES.lock().unwrap_or_else(PoisonError::into_inner).take_left_out();
        for (place, lines) in left_out {
            tracing::warn!(
                place,
                lines,
                "log lines were left out: more than {LINES_MAX} in {PERIOD:?} from one place in the code"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_from_one_place_is_cut_and_counted() {
        let (mut places, start) = (Places::default(), Instant::now());
        let mut admitted = |place: &'static str, lines: u64, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            (0..lines).filter(|_| places.admits(place, || place.to_owned(), now)).count() as u64
        };
        assert_eq!(admitted("a", LINES_MAX + 500, 0), LINES_MAX);
        assert_eq!(admitted("a", 7, 59), 0);
        assert_eq!(admitted("b", 7, 59), 7, "other places are not affected");
        assert_eq!(admitted("a", 7, 60), 7, "the next period");
        assert_eq!(places.take_left_out(), [("a".to_owned(), 507)]);
        assert_eq!(places.take_left_out(), []);
    }
}
