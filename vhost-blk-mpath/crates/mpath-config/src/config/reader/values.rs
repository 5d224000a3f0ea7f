//! Decides: a key is repeated.
//!
//! Reads a type from values with their places, and notes where that fails.

use std::cell::RefCell;
use std::iter::Enumerate;
use std::rc::Rc;
use std::slice::Iter;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_yaml::{Error, Number};

use super::nodes::{Entry, Node, NodeKind};
use super::place::{Place, Step};

/// Where a type failed.
pub(super) struct Failure {
    pub(super) place: Place,
    /// Whether the key was wrong.
    pub(super) is_key: bool,
    /// Line and column.
    pub(super) at: (usize, usize),
}

/// A value at its place.
pub(super) struct Value<'a> {
    pub(super) node: &'a Node,
    pub(super) place: Place,
    /// Where the type failed first.
    pub(super) failed: &'a RefCell<Option<Failure>>,
}

impl<'a> Value<'a> {
    fn part(&self, step: &Step, node: &'a Node) -> Self {
        let mut place = self.place.clone();
        place.push(step.clone());
        Self { node, place, failed: self.failed }
    }

    fn read<'de, S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        let (place, at, failed) = (self.place.clone(), self.node.at, self.failed);
        seed.deserialize(self).inspect_err(|_| {
            failed.borrow_mut().get_or_insert(Failure { place, is_key: false, at });
        })
    }

    /// Whether this is a null of YAML.
    fn is_null(&self) -> bool {
        let NodeKind::Scalar { text, is_plain: true } = &self.node.kind else { return false };
        matches!(&**text, "" | "~" | "null" | "Null" | "NULL")
    }

    /// Whether nothing is written, which is an empty mapping or list too.
    fn is_empty(&self) -> bool {
        matches!(&self.node.kind, NodeKind::Scalar { text, is_plain: true } if text.is_empty())
    }
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.kind {
            _ if self.is_null() => visitor.visit_unit(),
            NodeKind::Scalar { text, is_plain: false } => visitor.visit_str(text),
            NodeKind::Scalar { text, .. } => match &**text {
                "true" | "True" | "TRUE" => visitor.visit_bool(true),
                "false" | "False" | "FALSE" => visitor.visit_bool(false),
                _ => match (text.parse::<Number>(), text.parse::<i128>()) {
                    (Ok(number), _) => number.deserialize_any(visitor),
                    (_, Ok(number)) if number.unsigned_abs() > u64::MAX.into() => visitor.visit_i128(number),
                    _ => visitor.visit_str(text),
                },
            },
            NodeKind::List { items, .. } => visitor.visit_seq(List { items: items.iter().enumerate(), whole: self }),
            NodeKind::Mapping { entries, .. } => {
                visitor.visit_map(Mapping { entries: entries.iter(), value: None, whole: self })
            }
        }
    }

    // A text needs no quotes, even if it looks like a number.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.scalar() {
            Some(text) => visitor.visit_str(text),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.is_empty() {
            return visitor.visit_seq(List { items: [].iter().enumerate(), whole: self });
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.kind {
            // A type with settings would take a list of them.
            NodeKind::List { .. } => Err(Error::invalid_type(Unexpected::Seq, &visitor)),
            _ if self.is_empty() => visitor.visit_map(Mapping { entries: [].iter(), value: None, whole: self }),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum
        identifier ignored_any
    }
}

struct List<'a> {
    items: Enumerate<Iter<'a, Rc<Node>>>,
    whole: Value<'a>,
}

impl<'de> SeqAccess<'de> for List<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some((index, item)) = self.items.next() else { return Ok(None) };
        self.whole.part(&Step::Item(index), item).read(seed).map(Some)
    }
}

struct Mapping<'a> {
    entries: Iter<'a, Entry>,
    /// The value of the key that was read last.
    value: Option<Value<'a>>,
    whole: Value<'a>,
}

impl<'de> MapAccess<'de> for Mapping<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(Entry { step, key_at, value }) = self.entries.next() else { return Ok(None) };
        let value = self.value.insert(self.whole.part(step, value));
        let key = match step {
            Step::Key(key, 0) => seed.deserialize(key.as_str().into_deserializer()),
            repeated => Err(Error::custom(format_args!("duplicate field `{repeated}`"))),
        };
        key.map(Some).inspect_err(|_| {
            let failure = || Failure { place: value.place.clone(), is_key: true, at: *key_at };
            value.failed.borrow_mut().get_or_insert_with(failure);
        })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        self.value.take().ok_or_else(|| Error::custom("a value follows a key"))?.read(seed)
    }
}
