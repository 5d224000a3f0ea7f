//! Decides: a text is this point in time (`point`).
//!
//! Points in time on the command line, in UTC as all times in tables.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mpath_config::parse_time;

/// The time of a day.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A text is no point in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no point in time; give a time of day in UTC such as 03:12, a date and time such as 2026-11-25T03:12:00Z, or a span \
     before now such as 2h"
)]
pub(crate) struct NoPoint {
    text: String,
}

/// The point in time that a text names: a span before `now` (`2h`), the last time of this name (`03:12`), or a date and time (`2026-11-25
/// 03:12`, RFC 3339). A time without an offset is in UTC.
pub(crate) fn point(text: &str, now: SystemTime) -> Result<SystemTime, NoPoint> {
    let text = text.trim();
    let before_now = || now.checked_sub(parse_time(text)?.into()).filter(|at| *at >= UNIX_EPOCH);
    let found = before_now().or_else(|| last_time_of_day(text, now)).or_else(|| date_and_time(text));
    found.ok_or_else(|| NoPoint { text: text.into() })
}

/// The point in time that a text names now.
pub(crate) fn point_now(text: &str) -> Result<SystemTime, NoPoint> {
    point(text, SystemTime::now())
}

/// The end of a time is before its beginning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the times are from {from} until {until}; give a beginning that is before the end, with the date if need be")]
pub(crate) struct WrongOrder {
    from: String,
    until: String,
}

/// Refuses an end that is before the beginning.
pub(crate) fn check_order(from: Option<SystemTime>, until: Option<SystemTime>) -> Result<(), WrongOrder> {
    let text = |time| humantime::format_rfc3339_seconds(time).to_string();
    match (from, until) {
        (Some(from), Some(until)) if until < from => Err(WrongOrder { from: text(from), until: text(until) }),
        _ => Ok(()),
    }
}

/// Whether a time of the API (RFC 3339, UTC) is within these bounds. A time that cannot be read is: nothing is hidden by mistake.
pub(crate) fn is_within(time: &str, from: Option<SystemTime>, until: Option<SystemTime>) -> bool {
    let Ok(time) = humantime::parse_rfc3339(time) else { return true };
    from.is_none_or(|from| from <= time) && until.is_none_or(|until| time <= until)
}

/// The last `03:12` or `03:12:40.5` until `now`: of today, or of yesterday if it is still to come today.
fn last_time_of_day(text: &str, now: SystemTime) -> Option<SystemTime> {
    // The date is only there to be parsed.
    let in_day = humantime::parse_rfc3339_weak(&format!("1970-01-01 {}", with_seconds(text)?)).ok()?;
    let in_day = in_day.duration_since(UNIX_EPOCH).ok().filter(|time| *time < DAY)?;
    let since_epoch = now.duration_since(UNIX_EPOCH).ok()?;
    let today = UNIX_EPOCH + Duration::from_secs(since_epoch.as_secs() / DAY.as_secs() * DAY.as_secs());
    if today + in_day <= now { Some(today + in_day) } else { (today + in_day).checked_sub(DAY) }
}

/// A date and time, with `T` or a blank between them. The seconds, and `Z` or an offset such as `+01:00`, may be left out.
fn date_and_time(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let at = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (time, offset) = time.split_at_checked(at)?;
    let local = humantime::parse_rfc3339_weak(&format!("{date} {}", with_seconds(time)?)).ok()?;
    let (sign, offset) = offset.split_at_checked(1).unwrap_or_default();
    match sign {
        "" => Some(local),
        "Z" | "z" => offset.is_empty().then_some(local),
        // Clocks ahead of UTC show a time that UTC has later.
        "+" => local.checked_sub(offset_from_utc(offset)?),
        _ => local.checked_add(offset_from_utc(offset)?),
    }
}

fn offset_from_utc(text: &str) -> Option<Duration> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then(|| Duration::from_secs(hours * 3600 + minutes * 60))
}

/// `HH:MM` as `HH:MM:00`. `None` without a colon.
fn with_seconds(time: &str) -> Option<String> {
    match time.matches(':').count() {
        1 => Some(format!("{time}:00")),
        2 => Some(time.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-25T10:48:56Z
    const NOW: u64 = 1_795_603_736;

    fn at(text: &str) -> Option<String> {
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        point(text, now).ok().map(|point| humantime::format_rfc3339_millis(point).to_string())
    }

    #[test]
    fn a_span_is_before_now_in_the_grammar_of_all_times() {
        assert_eq!(at("2h").unwrap(), "2026-11-25T08:48:56.000Z");
        assert_eq!(at("1h 30m").unwrap(), "2026-11-25T09:18:56.000Z");
        assert_eq!(at("300ms").unwrap(), "2026-11-25T10:48:55.700Z");
    }

    #[test]
    fn a_time_of_day_is_the_last_one() {
        assert_eq!(at("03:12").unwrap(), "2026-11-25T03:12:00.000Z");
        assert_eq!(at("10:48:56").unwrap(), "2026-11-25T10:48:56.000Z");
        assert_eq!(at("10:48:57").unwrap(), "2026-11-24T10:48:57.000Z", "still to come today");
        assert_eq!(at("03:12:40.250").unwrap(), "2026-11-25T03:12:40.250Z");
    }

    #[test]
    fn an_end_before_the_beginning_is_refused() {
        let (early, late) = (UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(60));
        assert_eq!(check_order(Some(early), Some(late)), Ok(()));
        let error = check_order(Some(late), Some(early)).unwrap_err().to_string();
        assert!(error.starts_with("the times are from 1970-01-01T00:01:00Z until 1970-01-01T00:00:00Z"), "{error}");
    }

    #[test]
    fn a_date_and_time_may_have_an_offset() {
        for text in [
            "2026-11-24T03:12:00Z",
            "2026-11-24T03:12:00.000Z",
            "2026-11-24 03:12",
            "2026-11-24T03:12",
            " 2026-11-24 03:12:00 ",
            "2026-11-24T04:12:00+01:00",
            "2026-11-23T21:42:00-05:30",
        ] {
            assert_eq!(at(text).as_deref(), Some("2026-11-24T03:12:00.000Z"), "{text}");
        }
        assert_eq!(at("2027-01-01T00:00:00Z").unwrap(), "2027-01-01T00:00:00.000Z", "may be to come");
    }

    #[test]
    fn bounds_are_part_of_a_range() {
        let at = |second| Some(UNIX_EPOCH + Duration::from_secs(second));
        let within = |from, until| is_within("1970-01-01T00:00:05Z", from, until);
        assert!(within(None, None) && within(at(5), at(5)) && !within(at(6), None) && !within(None, at(4)));
        assert!(is_within("soon", at(6), at(4)));
    }

    #[test]
    fn anything_else_is_refused_with_examples() {
        for text in [
            "",
            "x",
            "9",
            "-2h",
            "3:12",
            "24:00",
            "03:60",
            "03:12+01:00",
            "2026-11-25",
            "2026-13-01 00:00",
            "2026-11-25T03:12:00+25:00",
            "2026-11-25T03:12:00+1:00",
            "2026-11-25T03:12:00Zx",
            "1000y",
            "\u{e4}3:12",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
        let error = point("x", UNIX_EPOCH).unwrap_err().to_string();
        assert!(error.contains("`x`") && error.contains("03:12") && error.contains("2h"), "{error}");
    }
}
