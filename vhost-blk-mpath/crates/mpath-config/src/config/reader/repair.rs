//! The repair of a value that has an error, so that the rest can be read.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeSeed, Error, IntoDeserializer};

use super::access::{Filtered, Position};

/// The repair of a value.
#[derive(Debug, Clone)]
pub(super) enum Repair {
    /// The key is left out with its value.
    LeaveOut,
    /// Another value takes its place. A missing key is added.
    Replace(Placeholder),
    /// The value is refused, to learn where it is.
    Refuse,
}

/// A value of some type. The number makes it differ from all others.
#[derive(Debug, Clone)]
pub(super) struct Placeholder {
    kind: usize,
    number: usize,
}

impl Repair {
    pub(super) fn first_placeholder(number: usize) -> Self {
        Self::Replace(Placeholder { kind: 0, number })
    }
}

impl Placeholder {
    const KINDS: usize = 5;

    /// The next to be tried, if this one does not fit either.
    pub(super) fn next(&self) -> Option<Repair> {
        let kind = self.kind + 1;
        (kind < Self::KINDS).then_some(Repair::Replace(Self { kind, ..*self }))
    }

    pub(super) fn deserialize<'de, S: DeserializeSeed<'de>, E: Error>(
        &self,
        seed: S,
        position: Position<'_>,
    ) -> Result<S::Value, E> {
        let number = self.number;
        let text = |text: String| IntoDeserializer::<E>::into_deserializer(text);
        match self.kind {
            0 => seed.deserialize(text(format!("placeholder-{number}"))),
            1 => seed.deserialize(text(format!("tcp://placeholder-{number}"))),
            // Few configurations use namespace identifiers as large as these.
            2 => seed.deserialize(IntoDeserializer::<E>::into_deserializer(u64::from(u32::MAX) - 1 - number as u64)),
            3 => {
                let inner = MapDeserializer::<_, E>::new(std::iter::empty::<(&str, &str)>());
                seed.deserialize(Filtered { inner, position })
            }
            _ => seed.deserialize(SeqDeserializer::<_, E>::new(std::iter::empty::<&str>())),
        }
    }
}
