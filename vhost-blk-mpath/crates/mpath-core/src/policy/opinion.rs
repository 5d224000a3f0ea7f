//! Opinions of policies on paths, for the operator.

use std::fmt;

use monotonic::Duration;

/// What a policy says of a path. Numbers are those that the policy compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "api", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
#[cfg_attr(feature = "api", serde(tag = "says", rename_all = "kebab-case"))]
#[cfg_attr(feature = "api", schema(as = PolicyOpinion))]
pub enum Opinion {
    /// The path takes turns with others.
    Turn,
    /// `adaptive`: the path gets this many requests of a round.
    Weight {
        /// Requests.
        weight: u64,
    },
    /// `pid`: the virtqueue keeps to this path, or to another.
    Kept {
        /// Whether it keeps to this path.
        here: bool,
    },
    /// `numa`: the least distance is chosen.
    NumaDistance {
        /// The distance.
        distance: u32,
    },
    /// `queue-depth`: the fewest are chosen.
    InFlight {
        /// Requests in flight.
        #[cfg_attr(feature = "api", serde(rename = "in-flight"))]
        in_flight: u32,
    },
    /// `service-time`: the fewest are chosen.
    Service {
        /// Bytes in flight and of the request, by relative throughput.
        bytes: u64,
    },
    /// `latency` and `latency-rr`: the least is chosen.
    Latency {
        /// The estimate. `null`: the path was not measured.
        #[cfg_attr(feature = "api", serde(rename = "latency-us", with = "crate::us_if_any"))]
        #[cfg_attr(feature = "api", schema(value_type = Option<u64>))]
        latency: Option<Duration>,
    },
    /// The path gets one request that measures it.
    Measurement,
    /// The request that measures the path is under way.
    BeingMeasured,
    /// `bdp`: the least is chosen among paths of about the same use.
    AnsweredIn {
        /// The estimated time until the answer, behind what is in flight.
        #[cfg_attr(feature = "api", serde(rename = "answered-in-us", with = "crate::us"))]
        #[cfg_attr(feature = "api", schema(value_type = u64))]
        answered_in: Duration,
    },
    /// `bdp`: the path would add too little for its latency.
    NotAdmitted {
        /// The estimate. `null`: the path was not measured.
        #[cfg_attr(feature = "api", serde(rename = "latency-us", with = "crate::us_if_any"))]
        #[cfg_attr(feature = "api", schema(value_type = Option<u64>))]
        latency: Option<Duration>,
    },
    /// `bdp`: the policy's own window of the path is full.
    PolicyWindowFull {
        /// Bytes that the policy allows in flight.
        #[cfg_attr(feature = "api", serde(rename = "window-bytes"))]
        window_bytes: u64,
    },
}

impl fmt::Display for Opinion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: &Duration| format!("{:.3} ms", time.as_secs_f64() * 1e3);
        let known = |latency: &Option<Duration>| latency.as_ref().map_or("unknown".into(), ms);
        match self {
            Self::Turn => f.write_str("takes turns"),
            Self::Weight { weight } => write!(f, "weight {weight}"),
            Self::Kept { here: true } => f.write_str("the virtqueue keeps to it"),
            Self::Kept { here: false } => f.write_str("the virtqueue keeps to another"),
            Self::NumaDistance { distance } => write!(f, "NUMA distance {distance}"),
            Self::InFlight { in_flight } => write!(f, "{in_flight} in flight"),
            Self::Service { bytes } => write!(f, "{bytes} bytes by throughput"),
            Self::Latency { latency } => write!(f, "latency {}", known(latency)),
            Self::Measurement => f.write_str("is due for a measurement"),
            Self::BeingMeasured => f.write_str("is being measured"),
            Self::AnsweredIn { answered_in } => write!(f, "answers in {}", ms(answered_in)),
            Self::NotAdmitted { latency } => write!(f, "latency {}, adds too little", known(latency)),
            Self::PolicyWindowFull { window_bytes } => write!(f, "the policy's window of {window_bytes} bytes is full"),
        }
    }
}
