//! The text format of Prometheus, version 0.0.4: <https://prometheus.io/docs/instrumenting/exposition_formats/>.
//!
//! A [`Metric`] is written as its HELP and TYPE lines, then all of its samples. [`Labels`] escapes the values of labels.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use crate::types::Latency;

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// The prefix of every name.
pub(super) const PREFIX: &str = "vhost_blk_mpath_";

/// A metric of values of one type.
pub(super) struct Metric<T: 'static> {
    /// The name without [`PREFIX`].
    name: &'static str,
    /// The help, one line.
    help: &'static str,
    read: Read<T>,
}

/// The type of a metric, and how to read it from a value.
enum Read<T> {
    /// A counter, which only grows.
    Counter(fn(&T) -> f64),
    /// A gauge. No sample if it is unknown.
    Gauge(fn(&T) -> Option<f64>),
    /// A constant 1 with labels.
    Info(fn(&T) -> Vec<(&'static str, String)>),
    /// A label and its possible values. The sample of the present value is 1, the others are 0.
    States(&'static str, fn(&T) -> Vec<(String, bool)>),
    /// A summary: a count, and the times if there were any.
    Times(fn(&T) -> (u64, Option<Latency>)),
}

/// A counter. `name` ends in `_total`.
pub(super) const fn counter<T>(name: &'static str, help: &'static str, read: fn(&T) -> f64) -> Metric<T> {
    Metric { name, help, read: Read::Counter(read) }
}

/// A gauge.
pub(super) const fn gauge<T>(name: &'static str, help: &'static str, read: fn(&T) -> Option<f64>) -> Metric<T> {
    Metric { name, help, read: Read::Gauge(read) }
}

/// A constant 1 with labels. `name` ends in `_info`.
pub(super) const fn info<T>(
    name: &'static str,
    help: &'static str,
    read: fn(&T) -> Vec<(&'static str, String)>,
) -> Metric<T> {
    Metric { name, help, read: Read::Info(read) }
}

/// One sample per state, with the state as the value of `label`.
pub(super) const fn states<T>(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    read: fn(&T) -> Vec<(String, bool)>,
) -> Metric<T> {
    Metric { name, help, read: Read::States(label, read) }
}

/// A summary of times. `name` ends in `_seconds`.
pub(super) const fn times<T>(
    name: &'static str,
    help: &'static str,
    read: fn(&T) -> (u64, Option<Latency>),
) -> Metric<T> {
    Metric { name, help, read: Read::Times(read) }
}

impl<T> Metric<T> {
    /// The text of the metric for these values.
    pub(super) fn text(&self, things: &[(Labels, T)]) -> String {
        let Self { name, help, read } = self;
        let mut text = format!("# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {}\n", read.kind());
        for (labels, thing) in things {
            read.samples(thing, labels, &mut |suffix, labels, value| {
                let _ = writeln!(text, "{PREFIX}{name}{suffix}{labels} {value}");
            });
        }
        text
    }
}

impl<T> Read<T> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) | Self::Info(_) | Self::States(..) => "gauge",
            Self::Times(_) => "summary",
        }
    }

    /// Calls `put` for each sample with the suffix of the name, the labels and the value.
    fn samples(&self, thing: &T, labels: &Labels, put: &mut dyn FnMut(&str, &Labels, f64)) {
        match self {
            Self::Counter(read) => put("", labels, read(thing)),
            Self::Gauge(read) => {
                if let Some(value) = read(thing) {
                    put("", labels, value);
                }
            }
            Self::Info(read) => {
                let with = |labels: Labels, (name, value): (&str, String)| labels.with(name, value);
                put("", &read(thing).into_iter().fold(labels.clone(), with), 1.0);
            }
            Self::States(label, read) => {
                for (state, is_now) in read(thing) {
                    put("", &labels.with(label, state), f64::from(is_now));
                }
            }
            Self::Times(read) => {
                let (count, times) = read(thing);
                if let Some(times) = times {
                    let quantiles = [("0.5", times.p50_us), ("0.99", times.p99_us), ("0.999", times.p999_us)];
                    for (quantile, us) in quantiles.into_iter().chain([("1", times.max_us)]) {
                        put("", &labels.with("quantile", quantile), seconds(us));
                    }
                }
                put("_sum", labels, times.map_or(0.0, |times| seconds(times.sum_us)));
                put("_count", labels, number(count));
            }
        }
    }
}

/// A number as a 64-bit float, the only type that Prometheus has.
#[allow(clippy::cast_precision_loss)]
pub(super) fn number(number: impl Into<i128>) -> f64 {
    number.into() as f64
}

fn seconds(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64()
}

/// The labels of a sample.
#[derive(Debug, Clone, Default)]
pub(super) struct Labels(String);

impl Labels {
    /// These labels and one more.
    pub(super) fn with(&self, name: &str, value: impl Display) -> Self {
        let mut text = self.0.clone();
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"");
        for char in value.to_string().chars() {
            match char {
                '\\' => text.push_str(r"\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str(r"\n"),
                char => text.push(char),
            }
        }
        text.push('"');
        Self(text)
    }
}

impl Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{{{}}}", self.0) }
    }
}
