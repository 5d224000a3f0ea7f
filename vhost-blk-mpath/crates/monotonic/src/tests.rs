#![allow(clippy::cast_precision_loss)] // floats of times

use std::fmt;
use std::time::Duration as Std;

use proptest::prelude::*;

use super::{Duration, Instant};

/// The longest time, as std's type.
const MAX: Std = Std::from_nanos(u64::MAX);

/// Numbers of all magnitudes.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
}

fn ours(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// Our result for std's, which may be too large or absent.
fn saturating(of_std: Option<Std>) -> Duration {
    of_std.unwrap_or(Std::MAX).into()
}

fn is_close(ours: Duration, of_std: f64) -> bool {
    (ours.as_nanos() as f64 - of_std).abs() <= 1.0 + of_std * 1e-15
}

proptest! {
    #[test]
    fn durations_are_those_of_std(a in number(), b in number(), factor: u32, divisor in 1..=u32::MAX) {
        let (x, y) = (Std::from_nanos(a), Std::from_nanos(b));
        prop_assert_eq!(Std::from(ours(a)), x);
        prop_assert_eq!(Duration::from(x), ours(a));
        prop_assert_eq!(ours(a).cmp(&ours(b)), x.cmp(&y));
        prop_assert_eq!(ours(a) + ours(b), saturating(x.checked_add(y)));
        prop_assert_eq!(ours(a) - ours(b), x.saturating_sub(y).into());
        prop_assert_eq!(ours(a).abs_diff(ours(b)), x.abs_diff(y).into());
        prop_assert_eq!(ours(a).checked_add(ours(b)), x.checked_add(y).filter(|sum| *sum <= MAX).map(Into::into));
        prop_assert_eq!(ours(a).checked_sub(ours(b)), x.checked_sub(y).map(Into::into));
        prop_assert_eq!(ours(a) * factor, saturating(x.checked_mul(factor)));
        prop_assert_eq!(factor * ours(a), ours(a) * factor);
        prop_assert_eq!(ours(a) / divisor, (x / divisor).into());
        prop_assert_eq!(ours(a).checked_div(divisor), x.checked_div(divisor).map(Into::into));
        prop_assert_eq!([ours(a), ours(b)].iter().sum::<Duration>(), ours(a) + ours(b));
        let [nanos, micros, millis] = [x.as_nanos(), x.as_micros(), x.as_millis()].map(|value| value as u64);
        prop_assert_eq!([ours(a).as_nanos(), ours(a).as_micros(), ours(a).as_millis()], [nanos, micros, millis]);
        prop_assert_eq!((ours(a).as_secs(), ours(a).subsec_nanos()), (x.as_secs(), x.subsec_nanos()));
        prop_assert_eq!(ours(a).is_zero(), x.is_zero());
        prop_assert_eq!(format!("{:?} {:.3?}", ours(a), ours(b)), format!("{x:?} {y:.3?}"));
    }

    #[test]
    fn units_are_those_of_std(number in number()) {
        prop_assert_eq!(Duration::from_micros(number), Std::from_micros(number).into());
        prop_assert_eq!(Duration::from_millis(number), Std::from_millis(number).into());
        prop_assert_eq!(Duration::from_secs(number), Std::from_secs(number).into());
    }

    #[test]
    fn fractions_are_those_of_std(a in number(), factor in 0.0..1e3_f64, secs in 0.0..1e8_f64) {
        let time = Std::from_nanos(a);
        let of_std = time.as_secs_f64();
        prop_assert!((ours(a).as_secs_f64() - of_std).abs() <= of_std * 1e-15);
        prop_assert!(is_close(Duration::from_secs_f64(secs), Std::from_secs_f64(secs).as_nanos() as f64));
        prop_assert_eq!(Duration::try_from_secs_f64(secs), Ok(Std::from_secs_f64(secs).into()));
        let nanos = a as f64;
        prop_assert!(is_close(ours(a).mul_f64(factor), (nanos * factor).min(MAX.as_nanos() as f64)));
        prop_assert!(is_close(ours(a).div_f64(factor), (nanos / factor).min(MAX.as_nanos() as f64)));
    }

    #[test]
    fn instants_are_those_of_std(past in 0..1_u64 << 60, a in number(), b in number()) {
        // Far from both ends of std's clock and of ours.
        let (a, b, past) = (ours(a / 4), ours(b / 4), ours(past));
        let (start, of_std) = (Instant::now(), std::time::Instant::now());
        let (x, y) = (start + a, start + b);
        let (x_std, y_std) = (of_std + Std::from(a), of_std + Std::from(b));
        prop_assert_eq!(x.cmp(&y), x_std.cmp(&y_std));
        prop_assert_eq!(x - y, (x_std - y_std).into());
        prop_assert_eq!((x.duration_since(y), x.saturating_duration_since(y)), (x - y, x - y));
        prop_assert_eq!((start - past, start.checked_sub(past)), (start - past, Some(start - past)));
        prop_assert_eq!(start - (start - past), past);
        prop_assert_eq!((x.checked_add(b), x.checked_sub(a)), (Some(x + b), Some(start)));
    }
}

#[test]
fn numbers_that_are_no_time_become_zero_or_the_longest_time() {
    let [nan, negative, large] = [f64::NAN, -1.0, 1e30].map(Duration::from_secs_f64);
    assert_eq!((nan, negative, large), (Duration::ZERO, Duration::ZERO, Duration::MAX));
    assert_eq!(Duration::MAX.mul_f64(f64::NAN), Duration::ZERO);
    assert_eq!(Duration::MAX.div_f64(0.0), Duration::MAX);
    assert!(Duration::try_from_secs_f64(f64::NAN).is_err() && Duration::try_from_secs_f64(-1.0).is_err());
    assert_eq!(Duration::ZERO.checked_div(0), None);
}

#[test]
fn instants_end_at_both_ends_of_the_clock() {
    let now = Instant::now();
    let (first, last) = (now - Duration::MAX, now + Duration::MAX);
    assert_eq!((first.checked_sub(ours(1)), last.checked_add(ours(1))), (None, None));
    assert_eq!((first - ours(1), last + ours(1)), (first, last));
    assert_eq!((first - last, last - first), (Duration::ZERO, ours(u64::MAX - 1)));
}

/// The nanoseconds of an instant. Only its debug text has std's.
fn nanos(instant: &impl fmt::Debug) -> u64 {
    let text = format!("{instant:?}");
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u64>().ok());
    let [seconds, nanos] = [numbers.next(), numbers.next()].map(|number| number.expect("std shows both"));
    seconds * 1_000_000_000 + nanos
}

#[test]
fn the_clock_and_its_text_are_those_of_std() {
    let (before, ours, after) = (std::time::Instant::now(), Instant::now(), std::time::Instant::now());
    assert!((nanos(&before)..=nanos(&after)).contains(&nanos(&ours)));
    assert!(format!("{ours:?}").starts_with("Instant { tv_sec: "));
    assert!(Instant::now() - ours <= ours.elapsed());
}

#[test]
fn an_optional_instant_is_one_word() {
    assert_eq!(size_of::<Option<Instant>>(), 8);
}
