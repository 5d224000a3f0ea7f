//! Decides: a key is repeated.
//!
//! Between the reader of YAML and the types: keeps track of the place, and applies repairs.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};

use super::place::{Place, Step};
use super::repair::Repair;
use super::{Known, MAX_VALUES};

/// Where a value is, and what is known of the text.
#[derive(Clone)]
pub(super) struct Position<'a> {
    known: &'a Known,
    place: Place,
}

impl<'a> Position<'a> {
    pub(super) fn root(known: &'a Known) -> Self {
        Self { known, place: Place::new() }
    }

    fn step(&self, step: Step) -> Self {
        let mut place = self.place.clone();
        place.push(step);
        Self { known: self.known, place }
    }

    fn repair(&self) -> Option<&'a Repair> {
        self.known.repairs.get(&self.place)
    }

    /// Counts a value. An error if a text has too many.
    fn count<E: Error>(&self) -> Result<(), E> {
        let count = self.known.values.get() + 1;
        self.known.values.set(count);
        let message = format_args!("more than {MAX_VALUES} values, aliases counted in full; write fewer");
        if count > MAX_VALUES { Err(E::custom(message)) } else { Ok(()) }
    }

    /// Notes that the attempt has failed at this place. Only the first such place counts.
    fn failed(&self) {
        self.known.failed_at.borrow_mut().get_or_insert_with(|| self.place.clone());
    }
}

/// A deserializer, visitor, or access to a mapping or list, at its position.
pub(super) struct Filtered<'a, T> {
    pub(super) inner: T,
    pub(super) position: Position<'a>,
}

macro_rules! deserializer {
    ($($method:ident($($argument:ident: $type:ty),*);)*) => {
        impl<'de, D: Deserializer<'de>> Deserializer<'de> for Filtered<'_, D> {
            type Error = D::Error;
            $(fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
                self.inner.$method($($argument,)* Filtered { inner: visitor, position: self.position })
            })*
        }
    };
}

deserializer! {
    deserialize_any();
    deserialize_bool();
    deserialize_i8();
    deserialize_i16();
    deserialize_i32();
    deserialize_i64();
    deserialize_i128();
    deserialize_u8();
    deserialize_u16();
    deserialize_u32();
    deserialize_u64();
    deserialize_u128();
    deserialize_f32();
    deserialize_f64();
    deserialize_char();
    deserialize_str();
    deserialize_string();
    deserialize_bytes();
    deserialize_byte_buf();
    deserialize_option();
    deserialize_unit();
    deserialize_unit_struct(name: &'static str);
    deserialize_newtype_struct(name: &'static str);
    deserialize_seq();
    deserialize_tuple(len: usize);
    deserialize_tuple_struct(name: &'static str, len: usize);
    deserialize_map();
    deserialize_struct(name: &'static str, fields: &'static [&'static str]);
    deserialize_enum(name: &'static str, variants: &'static [&'static str]);
    deserialize_identifier();
    deserialize_ignored_any();
}

macro_rules! visit {
    ($($method:ident($type:ty);)*) => {
        $(fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Filtered<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool(bool);
        visit_i64(i64);
        visit_i128(i128);
        visit_u64(u64);
        visit_u128(u128);
        visit_f64(f64);
        visit_str(&str);
        visit_borrowed_str(&'de str);
        visit_string(String);
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Filtered { inner: deserializer, position: self.position })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Filtered { inner: deserializer, position: self.position })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(FilteredList { items, position: self.position, index: 0 })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let (keys, current) = (Vec::new(), None);
        self.inner.visit_map(FilteredMap { map, position: self.position, keys, current, added: None })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(data)
    }
}

/// A value at its position.
impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Filtered<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let position = self.position.clone();
        position.count()?;
        let value = match position.repair() {
            Some(Repair::Replace(placeholder)) => {
                IgnoredAny::deserialize(deserializer)?;
                placeholder.deserialize(self.inner, self.position)
            }
            Some(Repair::Refuse) => deserializer.deserialize_any(Refuse(PhantomData)),
            _ => self.inner.deserialize(Filtered { inner: deserializer, position: self.position }),
        };
        value.inspect_err(|_| position.failed())
    }
}

struct FilteredList<'a, A> {
    items: A,
    position: Position<'a>,
    index: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for FilteredList<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let position = self.position.step(Step::Item(self.index));
        self.index += 1;
        self.items.next_element_seed(Filtered { inner: seed, position })
    }
}

struct FilteredMap<'a, A> {
    map: A,
    position: Position<'a>,
    keys: Vec<String>,
    /// The position of the value that is read next.
    current: Option<Position<'a>>,
    /// The keys that are added at the end.
    added: Option<Vec<String>>,
}

impl<A> FilteredMap<'_, A> {
    /// The keys that repairs add to the mapping.
    fn missing(&self) -> Vec<String> {
        let place = &self.position.place;
        let repairs = self.position.known.repairs.iter();
        let missing = repairs.filter_map(|(at, repair)| match (&at[..], repair) {
            ([parent @ .., Step::Key(key)], Repair::Replace(_)) if parent == place => Some(key),
            _ => None,
        });
        missing.filter(|key| !self.keys.contains(key)).cloned().collect()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for FilteredMap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let mut seed = Some(seed);
        while self.added.is_none() {
            let key = FilteredKey { seed: &mut seed, position: &self.position, keys: &mut self.keys };
            match self.map.next_key_seed(key)? {
                Some((Some(key), position)) => {
                    self.current = Some(position);
                    return Ok(Some(key));
                }
                Some((None, _)) => drop(self.map.next_value::<IgnoredAny>()?),
                None => self.added = Some(self.missing()),
            }
        }
        let (Some(key), Some(seed)) = (self.added.as_mut().and_then(Vec::pop), seed) else { return Ok(None) };
        self.current = Some(self.position.step(Step::Key(key.clone())));
        seed.deserialize(key.into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let position = self.current.take().unwrap_or_else(|| self.position.clone());
        match (&self.added, position.repair()) {
            (Some(_), Some(Repair::Replace(placeholder))) => {
                placeholder.deserialize(seed, position.clone()).inspect_err(|_| position.failed())
            }
            _ => self.map.next_value_seed(Filtered { inner: seed, position }),
        }
    }
}

/// A key. It is read unless it is left out.
struct FilteredKey<'s, 'a, S> {
    seed: &'s mut Option<S>,
    position: &'s Position<'a>,
    keys: &'s mut Vec<String>,
}

impl<'de, 'a, S: DeserializeSeed<'de>> DeserializeSeed<'de> for FilteredKey<'_, 'a, S> {
    type Value = (Option<S::Value>, Position<'a>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, 'a, S: DeserializeSeed<'de>> Visitor<'de> for FilteredKey<'_, 'a, S> {
    type Value = (Option<S::Value>, Position<'a>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        let repeated = self.keys.iter().filter(|known| *known == key).count();
        let step = if repeated == 0 { Step::Key(key.into()) } else { Step::Repeated(key.into(), repeated) };
        let position = self.position.step(step);
        self.keys.push(key.into());
        if matches!(position.repair(), Some(Repair::LeaveOut)) {
            return Ok((None, position));
        }
        let read = match self.seed.take() {
            _ if repeated > 0 => Err(E::custom(format_args!("duplicate field `{key}`"))),
            Some(seed) => seed.deserialize(key.into_deserializer()),
            None => Err(E::custom("a key is read once")),
        };
        read.map(|key| (Some(key), position.clone())).inspect_err(|_: &E| position.failed())
    }
}

/// Refuses any value. The reader gives the error the place of the value.
struct Refuse<T>(PhantomData<T>);

impl<T> Visitor<'_> for Refuse<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing")
    }
}
