//! Times in whole microseconds, or nothing, for `#[serde(with = "us_if_any")]`.

use monotonic::Duration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time in whole microseconds.
#[derive(Serialize, Deserialize)]
struct Us(#[serde(with = "crate::us")] Duration);

// The signature is serde's.
#[allow(clippy::ref_option)]
pub(crate) fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(Us).serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<Us>::deserialize(deserializer)?.map(|Us(time)| time))
}
