//! Metrics as data: names, helps, and how they are read from a value. `prometheus-client` writes them as text.

use std::fmt;
use std::sync::Arc;

use monotonic::Duration;
use mpath_api::types::TimeHistogram;
use mpath_core::TIME_BUCKETS_NS;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, GaugeValueEncoder, NoLabelSet,
    prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// Begins every name, with an underscore after it.
pub(super) const PREFIX: &str = "vhost_blk_mpath";

/// The labels of a sample.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A metric of values of one type.
#[derive(Debug)]
pub(super) struct Metric<T: 'static> {
    /// The name without [`PREFIX`].
    name: &'static str,
    /// The help, one line.
    help: &'static str,
    read: Read<T>,
}

/// The type of a metric, and how to read it from a value.
#[derive(Debug)]
enum Read<T> {
    /// A counter, which only grows.
    Counter(fn(&T) -> Number),
    /// A gauge. No sample if it is unknown.
    Gauge(fn(&T) -> Option<Number>),
    /// A constant 1 with labels.
    Info(fn(&T) -> Labels),
    /// A label and its possible values. The sample of the present value is 1, the others are 0.
    States(&'static str, fn(&T) -> Vec<(String, bool)>),
    /// A histogram of times.
    Times(fn(&T) -> TimeHistogram),
}

/// A counter. `name` ends in `_total`.
pub(super) const fn counter<T>(name: &'static str, help: &'static str, read: fn(&T) -> Number) -> Metric<T> {
    Metric { name, help, read: Read::Counter(read) }
}

/// A gauge.
pub(super) const fn gauge<T>(name: &'static str, help: &'static str, read: fn(&T) -> Option<Number>) -> Metric<T> {
    Metric { name, help, read: Read::Gauge(read) }
}

/// A constant 1 with labels. `name` ends in `_info`.
pub(super) const fn info<T>(name: &'static str, help: &'static str, read: fn(&T) -> Labels) -> Metric<T> {
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

/// A histogram of times. `name` ends in `_seconds`.
pub(super) const fn times<T>(name: &'static str, help: &'static str, read: fn(&T) -> TimeHistogram) -> Metric<T> {
    Metric { name, help, read: Read::Times(read) }
}

impl<T: fmt::Debug + Send + Sync> Metric<T> {
    /// The text of the metric for these values.
    pub(super) fn text(&'static self, things: &Arc<Vec<(Labels, T)>>) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(Samples { metric: self, things: Arc::clone(things) }));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).expect("a string takes all text");
        text
    }

    fn encode(&self, things: &[(Labels, T)], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Self { name, help, read } = self;
        // The library adds the suffixes of the types.
        let (kind, suffix) = match read {
            Read::Counter(_) => (MetricType::Counter, "_total"),
            Read::Info(_) => (MetricType::Info, "_info"),
            Read::Gauge(_) | Read::States(..) => (MetricType::Gauge, ""),
            Read::Times(_) => (MetricType::Histogram, ""),
        };
        let name = name.strip_suffix(suffix).expect("the constructors say so");
        let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
        for (labels, thing) in things {
            match read {
                Read::Counter(read) => {
                    metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, f64>(&read(thing), None)?;
                }
                Read::Gauge(read) => {
                    if let Some(value) = read(thing) {
                        metric.encode_family(labels)?.encode_gauge(&value)?;
                    }
                }
                Read::Info(read) => metric.encode_family(labels)?.encode_info(&read(thing))?,
                Read::States(label, read) => {
                    for (state, is_now) in read(thing) {
                        let labels = with(labels, label, state);
                        metric.encode_family(&labels)?.encode_gauge(&Number::from(is_now))?;
                    }
                }
                Read::Times(read) => {
                    let TimeHistogram { counts, sum } = read(thing);
                    let ends = TIME_BUCKETS_NS.map(|ns| Duration::from_nanos(ns).as_secs_f64());
                    let buckets: Vec<_> = ends.into_iter().chain([f64::INFINITY]).zip(counts).collect();
                    let (sum, count) = (sum.as_secs_f64(), counts.iter().sum());
                    metric.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
                }
            }
        }
        Ok(())
    }
}

/// These labels and one more.
pub(super) fn with(labels: &Labels, name: &'static str, value: impl fmt::Display) -> Labels {
    labels.iter().cloned().chain([(name, value.to_string())]).collect()
}

/// All samples of one metric.
#[derive(Debug)]
struct Samples<T: 'static> {
    metric: &'static Metric<T>,
    things: Arc<Vec<(Labels, T)>>,
}

impl<T: fmt::Debug + Send + Sync> Collector for Samples<T> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.metric.encode(&self.things, &mut encoder)
    }
}

/// The value of a sample.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Whole(u64),
    Float(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<i64> for Number {
    #[allow(clippy::cast_precision_loss)] // as Prometheus stores it
    fn from(value: i64) -> Self {
        Self::Float(value as f64)
    }
}

/// In seconds.
impl From<Duration> for Number {
    fn from(value: Duration) -> Self {
        Self::Float(value.as_secs_f64())
    }
}

impl EncodeGaugeValue for Number {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => EncodeGaugeValue::encode(value, encoder),
            Self::Float(value) => EncodeGaugeValue::encode(value, encoder),
        }
    }
}

impl EncodeCounterValue for Number {
    fn encode(&self, encoder: &mut CounterValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => EncodeCounterValue::encode(value, encoder),
            Self::Float(value) => EncodeCounterValue::encode(value, encoder),
        }
    }
}
