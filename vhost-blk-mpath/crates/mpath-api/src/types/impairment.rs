//! Injections: deliberate impairments of a path.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use monotonic::Duration;
use mpath_config::ValueError;
use mpath_core::{Direction, Distribution, OpClass, json_schema, parse_bytes, parse_time, time_text, words};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::LastChange;

words! {
    /// The status of failed requests.
    #[derive(Default)]
    InjectedStatus as "InjectedStatus", "status", {
        /// Internal Path Error, 3/00h: retried on another path.
        #[default]
        PathError = "path-error",
        /// Asymmetric Access Inaccessible, 3/02h: retried on another path.
        AnaInaccessible = "ana-inaccessible",
        /// Asymmetric Access Transition, 3/03h: retried on another path.
        AnaTransition = "ana-transition",
        /// Internal Error, 0/06h: retried.
        InternalError = "internal-error",
        /// Namespace Not Ready, 0/82h: retried.
        NamespaceNotReady = "namespace-not-ready",
        /// Command Interrupted, 0/21h: retried.
        CommandInterrupted = "command-interrupted",
        /// Unrecovered Read Error, 2/81h: final.
        MediaError = "media-error",
        /// Internal Error with Do Not Retry, 0/06h: final.
        InternalErrorDnr = "internal-error-dnr",
    }
}

/// A number with a range, in JSON a number and on command lines a text with a unit.
macro_rules! ranged {
    ($(#[$doc:meta])* $type:ident, $range:expr, $parse:expr, $expected:literal, $example:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "u64", into = "u64")]
        pub struct $type(u64);

        impl TryFrom<u64> for $type {
            type Error = ValueError;

            fn try_from(value: u64) -> Result<Self, ValueError> {
                let is_in_range = ($range).contains(&value);
                is_in_range.then_some(Self(value)).ok_or_else(|| {
                    ValueError::new(&value.to_string(), concat!("out of range: ", $expected))
                })
            }
        }

        impl FromStr for $type {
            type Err = ValueError;

            fn from_str(text: &str) -> Result<Self, ValueError> {
                let parse: fn(&str) -> Option<u64> = $parse;
                parse(text).and_then(|value| Self::try_from(value).ok()).ok_or_else(|| {
                    ValueError::new(text, concat!("refused: ", $expected, "; give a value such as ", $example))
                })
            }
        }

        impl From<$type> for u64 {
            fn from(value: $type) -> Self {
                value.0
            }
        }

        json_schema!($type, stringify!($type), range_schema($expected, $range));
    };
}

fn range_schema(description: &str, range: RangeInclusive<u64>) -> serde_json::Value {
    let (min, max) = (range.start(), range.end());
    json!({
        "type": "integer",
        "description": description,
        "format": "int64",
        "minimum": min,
        "maximum": max,
        "examples": [min, max],
    })
}

ranged! {
    /// Bytes per second, from 64 KiB to 100 GiB.
    InjectedRate, (64 << 10)..=(100 << 30), parse_bytes,
    "a rate is 64KiB to 100GiB a second (65536 to 107374182400 bytes)", "100MiB"
}
ranged! {
    /// Milliseconds after which an injection ends by itself, from 1 ms to 24 h.
    InjectedMilliseconds, 1..=86_400_000, |text| parse_time(text).map(Duration::as_millis),
    "an injection ends after 1ms to 24h (1 to 86400000 ms)", "30s"
}
ranged! {
    /// Failing requests per million, 1 to 1 000 000.
    InjectedShare, 1..=1_000_000, parse_share,
    "an error rate is 0.0001% to 100% (1 to 1000000 of a million)", "1% or 0.01"
}
ranged! {
    /// Microseconds from 1 to 60 000 000.
    InjectedLatency, 1..=60_000_000, |text| parse_time(text).map(Duration::as_micros),
    "an injected time is 1us to 60s (1 to 60000000 us)", "30ms"
}

// The cast saturates. Negative values and NaN become 0, which is refused.
#[allow(clippy::cast_sign_loss)]
fn parse_share(text: &str) -> Option<u64> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1e6), |percent| (percent, 1e4));
    number.parse().ok().map(|number: f64| (number * scale).round() as u64)
}

impl InjectedMilliseconds {
    /// The time.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl InjectedLatency {
    /// The time.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl TryFrom<std::time::Duration> for InjectedLatency {
    type Error = ValueError;

    /// Drops fractions of a microsecond.
    fn try_from(latency: std::time::Duration) -> Result<Self, ValueError> {
        Self::try_from(Duration::from(latency).as_micros())
    }
}

/// An injection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", try_from = "UncheckedInjection")]
pub struct Injection {
    /// The class of requests. If left out: every class without an injection of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<OpClass>,
    /// Whether requests are impaired before they are sent or after they were executed.
    pub direction: Direction,
    /// Added latency, 1 us to 60 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<InjectedLatency>,
    /// Jitter of the added latency, 1 us to 60 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_us: Option<InjectedLatency>,
    /// Distribution of the jitter. Only with jitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// Bandwidth in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<InjectedRate>,
    /// Failing requests per million.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_rate_ppm: Option<InjectedShare>,
    /// Status of failing requests. Only with an error rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<InjectedStatus>,
    /// Whether no request passes until the injection ends.
    pub stall: bool,
    /// Seed of the random numbers for jitter and errors.
    pub seed: u64,
}

/// An injection in force on a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct InjectionInForce {
    /// The injection.
    #[serde(flatten)]
    pub injection: Injection,
    /// The time until the injection ends by itself. Left out if it stays until it is cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in_ms: Option<u64>,
    /// Who has set the injection, and when. Left out in the answer to `PUT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<LastChange>,
}

/// Why settings are no injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InjectionError {
    /// Nothing is impaired.
    #[error("an injection needs at least one of latency, jitter, rate, error rate and stall; give one")]
    Nothing,
    /// A distribution without jitter.
    #[error("a distribution needs a jitter; give a jitter, or leave the distribution out")]
    DistributionWithoutJitter,
    /// A status without an error rate.
    #[error("a status needs an error rate; give an error rate, or leave the status out")]
    StatusWithoutErrors,
    /// A stall together with settings that have no effect on it.
    #[error("a stall lets no request pass; leave latency, jitter, rate and error rate out, or leave the stall out")]
    StallAndMore,
}

/// A wanted injection, before it is checked. It needs a latency, jitter, rate, error rate or stall.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schema(as = WantedInjection)]
pub(super) struct UncheckedInjection {
    /// The class of requests. If left out: every class without an injection of its own.
    class: Option<OpClass>,
    /// Whether requests are impaired before they are sent or after they were executed. Default: `request`.
    #[serde(default)]
    direction: Direction,
    /// Added latency.
    latency_us: Option<InjectedLatency>,
    /// Jitter of the added latency.
    jitter_us: Option<InjectedLatency>,
    /// Distribution of the jitter. Only with jitter. Default: `uniform`.
    distribution: Option<Distribution>,
    /// Bandwidth in bytes per second.
    rate: Option<InjectedRate>,
    /// Failing requests per million.
    error_rate_ppm: Option<InjectedShare>,
    /// Status of failing requests. Only with an error rate. Default: `path-error`.
    status: Option<InjectedStatus>,
    /// Whether no request passes until the injection ends. Only without latency, jitter, rate and error rate.
    #[serde(default)]
    stall: bool,
    /// Seed of the random numbers for jitter and errors.
    #[serde(default)]
    seed: u64,
}

impl TryFrom<UncheckedInjection> for Injection {
    type Error = InjectionError;

    fn try_from(from: UncheckedInjection) -> Result<Self, InjectionError> {
        let UncheckedInjection {
            class,
            direction,
            latency_us,
            jitter_us,
            distribution,
            rate,
            error_rate_ppm,
            status,
            stall,
            seed,
        } = from;
        Self { class, direction, latency_us, jitter_us, distribution, rate, error_rate_ppm, status, stall, seed }
            .checked()
    }
}

impl Injection {
    /// A fixed latency of every request before it is sent.
    #[must_use]
    pub fn latency(latency: InjectedLatency) -> Self {
        Self { latency_us: Some(latency), ..Self::default() }
    }

    /// The injection with the default distribution and status filled in.
    ///
    /// # Errors
    /// If the settings contradict each other or impair nothing.
    pub fn checked(self) -> Result<Self, InjectionError> {
        let (jitter, errors) = (self.jitter_us.is_some(), self.error_rate_ppm.is_some());
        let others = self.latency_us.is_some() || jitter || self.rate.is_some() || errors;
        if self.distribution.is_some() && !jitter {
            return Err(InjectionError::DistributionWithoutJitter);
        }
        if self.status.is_some() && !errors {
            return Err(InjectionError::StatusWithoutErrors);
        }
        match (self.stall, others) {
            (true, true) => Err(InjectionError::StallAndMore),
            (false, false) => Err(InjectionError::Nothing),
            _ => Ok(Self {
                distribution: self.jitter_us.map(|_| self.distribution.unwrap_or_default()),
                status: self.error_rate_ppm.map(|_| self.status.unwrap_or_default()),
                ..self
            }),
        }
    }

    /// Whether a path that gets the injection loses `other`: an injection replaces the one of its class, or all of them if it is for
    /// every class.
    #[must_use]
    pub fn replaces(&self, other: &Self) -> bool {
        self.class.is_none_or(|class| other.class == Some(class))
    }
}

/// One phrase for people, without class, direction and seed.
impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |latency: InjectedLatency| time_text(latency.0);
        let mut parts = Vec::new();
        parts.extend(self.latency_us.map(|latency| format!("latency {}", time(latency))));
        let jitter = self.jitter_us.zip(self.distribution);
        parts.extend(jitter.map(|(jitter, how)| format!("jitter {} {how}", time(jitter))));
        parts.extend(self.rate.map(|rate| format!("rate {} B/s", rate.0)));
        let errors = self.error_rate_ppm.zip(self.status);
        parts.extend(errors.map(|(share, status)| format!("errors {}% {status}", f64::from(share.0 as u32) / 1e4)));
        parts.extend(self.stall.then(|| "stall".into()));
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_units() {
        let latency = |text: &str| text.parse::<InjectedLatency>().map(u64::from).map_err(|error| error.to_string());
        for (text, us) in
            [("30ms", 30_000), ("500us", 500), ("1.5s", 1_500_000), ("1s 1us", 1_000_001), ("1min", 60_000_000)]
        {
            assert_eq!(latency(text), Ok(us), "{text}");
        }
        for text in ["30", "", "ms", "-1ms", "30 parsecs", "0ms", "1ns", "61s", "999999999999y"] {
            let said = "is refused: an injected time is 1us to 60s (1 to 60000000 us); give a value such as 30ms";
            assert_eq!(latency(text).unwrap_err(), format!("`{text}` {said}"));
        }
        let longest = InjectedLatency::try_from(60_000_000).map(InjectedLatency::duration);
        assert_eq!(longest, Ok(mpath_core::Injection::MAX_LATENCY));

        let lasting = |text: &str| text.parse::<InjectedMilliseconds>().map(u64::from);
        for (text, ms) in [("30s", 30_000), ("5m", 300_000), ("1ms", 1), ("24h", 86_400_000)] {
            assert_eq!(lasting(text), Ok(ms), "{text}");
        }
        for text in ["30", "0s", "25h", "1us"] {
            let error = lasting(text).unwrap_err().to_string();
            assert!(error.contains("1ms to 24h") && error.ends_with("such as 30s"), "{text}: {error}");
        }

        let rate = |text: &str| text.parse::<InjectedRate>().map(u64::from);
        for (text, bytes) in [("65536", 65536), ("64KiB", 65536), ("100MiB", 100 << 20), ("100GiB", 100 << 30)] {
            assert_eq!(rate(text), Ok(bytes), "{text}");
        }
        for bad in ["", "65535", "1MB", "MiB", "-1MiB", "1.5MiB", "101GiB", "99999999999999999GiB", "1Mi\u{e4}"] {
            assert!(rate(bad).unwrap_err().to_string().contains("64KiB to 100GiB"), "{bad}");
        }
        let share = |text: &str| text.parse::<InjectedShare>().map(u64::from);
        for (text, ppm) in [("1%", 10_000), ("0.01", 10_000), ("100%", 1_000_000), ("1", 1_000_000), ("0.0001%", 1)] {
            assert_eq!(share(text), Ok(ppm), "{text}");
        }
        for bad in ["", "%", "0", "101%", "1.1", "-1%", "nan", "inf", "1 %x", "0.00001%"] {
            assert!(share(bad).unwrap_err().to_string().contains("0.0001% to 100%"), "{bad}");
        }
    }

    #[test]
    fn json_is_checked_and_defaults_are_filled_in() {
        let read = |text: &str| serde_json::from_str::<Injection>(text).map_err(|error| error.to_string());
        let text = r#"{"latency-us":5000,"jitter-us":3,"error-rate-ppm":12500,"class":"write","direction":"response"}"#;
        let injection = read(text).unwrap();
        assert_eq!(injection.to_string(), "latency 5ms, jitter 3us uniform, errors 1.25% path-error");
        assert_eq!(read(&serde_json::to_string(&injection).unwrap()), Ok(injection));
        for (text, part) in [
            ("{}", "give one"),
            (r#"{"latency-us":0}"#, "`0` is out of range: an injected time is 1us to 60s"),
            (r#"{"latency-us":1,"distribution":"normal"}"#, "give a jitter"),
            (r#"{"latency-us":1,"status":"media-error"}"#, "give an error rate"),
            (r#"{"latency-us":1,"stall":true}"#, "leave latency"),
            (r#"{"rate":65535}"#, "`65535` is out of range: a rate is 64KiB to 100GiB"),
            (r#"{"error-rate-ppm":1000001}"#, "0.0001% to 100%"),
            (r#"{"error-rate-ppm":0}"#, "0.0001% to 100%"),
            (r#"{"error-rate-ppm":1,"status":"bad"}"#, "`bad` is no status; give one of: path-error"),
            (r#"{"stall":true,"class":"flush"}"#, "`flush` is no class; give one of: read, write, other"),
            (r#"{"stall":true,"direction":"up"}"#, "request, response"),
            (r#"{"jitter-us":1,"distribution":"gauss"}"#, "uniform, normal, exponential, pareto"),
            (r#"{"stall":true,"loss":1}"#, "loss"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn an_injection_replaces_those_of_the_classes_it_covers() {
        let of = |class| Injection { class, stall: true, ..Injection::default() };
        let (read, write, all) = (of(Some(OpClass::Read)), of(Some(OpClass::Write)), of(None));
        for (new, replaced) in [(all, vec![all, read, write]), (read, vec![read]), (write, vec![write])] {
            let found: Vec<_> = [all, read, write].into_iter().filter(|other| new.replaces(other)).collect();
            assert_eq!(found, replaced);
        }
    }
}
