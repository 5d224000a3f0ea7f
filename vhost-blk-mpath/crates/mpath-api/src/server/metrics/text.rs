//! Prometheus' text format, version 0.0.4: <https://prometheus.io/docs/instrumenting/exposition_formats/>.
//!
//! A [`Metric`] is written in one piece: its HELP and TYPE lines, then all of its samples. Labels are escaped where they are
//! made, and cannot be made otherwise.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use crate::types::Latency;

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// What every name begins with.
pub(super) const PREFIX: &str = "vhost_blk_mpath_";

/// One metric of things of one kind.
pub(super) struct Metric<T: 'static> {
    /// Without [`PREFIX`].
    name: &'static str,
    /// One line.
    help: &'static str,
    read: Read<T>,
}

/// What a metric is, and what it says of a thing.
enum Read<T> {
    /// Only grows.
    Counter(fn(&T) -> f64),
    /// Goes up and down. No sample where it is not known.
    Gauge(fn(&T) -> Option<f64>),
    /// Always 1; its labels tell.
    Info(fn(&T) -> Vec<(&'static str, String)>),
    /// A label and the values it can have. The one that is the case is 1, the others are 0.
    States(&'static str, fn(&T) -> Vec<(String, bool)>),
    /// How many, and how long they took if there were any.
    Times(fn(&T) -> (u64, Option<Latency>)),
}

/// What only grows. `name` ends in `_total`.
pub(super) const fn counter<T>(name: &'static str, help: &'static str, read: fn(&T) -> f64) -> Metric<T> {
    Metric { name, help, read: Read::Counter(read) }
}

/// What goes up and down, where it is known.
pub(super) const fn gauge<T>(name: &'static str, help: &'static str, read: fn(&T) -> Option<f64>) -> Metric<T> {
    Metric { name, help, read: Read::Gauge(read) }
}

/// Labels for the sake of the labels. `name` ends in `_info`.
pub(super) const fn info<T>(
    name: &'static str,
    help: &'static str,
    read: fn(&T) -> Vec<(&'static str, String)>,
) -> Metric<T> {
    Metric { name, help, read: Read::Info(read) }
}

/// One of several states, each the value of `label`.
pub(super) const fn states<T>(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    read: fn(&T) -> Vec<(String, bool)>,
) -> Metric<T> {
    Metric { name, help, read: Read::States(label, read) }
}

/// How many, and how long they took. `name` ends in `_seconds`.
pub(super) const fn times<T>(
    name: &'static str,
    help: &'static str,
    read: fn(&T) -> (u64, Option<Latency>),
) -> Metric<T> {
    Metric { name, help, read: Read::Times(read) }
}

impl<T> Metric<T> {
    /// The metric of all these things.
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

    /// Puts each sample: what is appended to the name, the labels, the value.
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

/// A number as Prometheus knows it: it has no others.
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
    /// These and one more.
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
