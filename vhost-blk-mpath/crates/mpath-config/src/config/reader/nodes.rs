//! The values of a YAML text with their places. `serde_yaml` has no places of values.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use super::place::Step;

/// The most mappings and lists in each other, as for `serde_yaml`.
const MAX_DEPTH: usize = 128;

/// A value.
#[derive(Clone)]
pub(in crate::config) struct Node {
    /// In bytes.
    pub(in crate::config) range: Range<usize>,
    /// Line and column, from 1.
    pub(super) at: (usize, usize),
    /// This value and all in it, aliases in full.
    pub(super) count: usize,
    pub(in crate::config) kind: NodeKind,
}

/// A kind of value. An alias is the value that it repeats.
#[derive(Clone)]
pub(in crate::config) enum NodeKind {
    /// A plain one may be a number or a word of YAML.
    Scalar {
        text: String,
        is_plain: bool,
    },
    Mapping {
        is_flow: bool,
        entries: Vec<Entry>,
    },
    List {
        is_flow: bool,
        items: Vec<Rc<Node>>,
    },
}

/// A key and its value.
#[derive(Clone)]
pub(in crate::config) struct Entry {
    pub(super) step: Step,
    /// Line and column of the key.
    pub(super) key_at: (usize, usize),
    pub(in crate::config) value: Rc<Node>,
}

impl Node {
    /// The value of a text. `None` for an error, a key that is no text, and an alias that is not followed.
    pub(in crate::config) fn parse(text: &str, follows_aliases: bool) -> Option<Rc<Self>> {
        let parser = Parser::new_from_str(text);
        let mut reader = Reader { text, parser, follows_aliases, anchors: HashMap::new() };
        loop {
            match reader.next()? {
                (Event::StreamStart | Event::DocumentStart(..), _) => {}
                (event, span) => return reader.node(event, span, 0),
            }
        }
    }

    /// The value of a key of a mapping.
    pub(in crate::config) fn get(&self, key: &str) -> Option<&Self> {
        self.part(&Step::Key(key.into(), 0))
    }

    /// The items of a list.
    pub(in crate::config) fn items(&self) -> &[Rc<Self>] {
        if let NodeKind::List { items, .. } = &self.kind { items } else { &[] }
    }

    pub(in crate::config) fn scalar(&self) -> Option<&str> {
        if let NodeKind::Scalar { text, .. } = &self.kind { Some(text) } else { None }
    }

    fn part(&self, step: &Step) -> Option<&Self> {
        match (&self.kind, step) {
            (NodeKind::List { items, .. }, Step::Item(index)) => items.get(*index).map(|item| &**item),
            (NodeKind::Mapping { entries, .. }, key) => {
                entries.iter().find(|entry| entry.step == *key).map(|entry| &*entry.value)
            }
            _ => None,
        }
    }

    /// The value at a place.
    pub(super) fn find(&self, place: &[Step]) -> Option<&Self> {
        place.iter().try_fold(self, Self::part)
    }

    /// Puts a value at a place, or nothing. Has no effect if there is no such mapping or list.
    pub(super) fn set(&mut self, place: &[Step], value: Option<NodeKind>) {
        match (&mut self.kind, place, value) {
            (kind, [], Some(value)) => *kind = value,
            (NodeKind::List { items, .. }, [Step::Item(index), rest @ ..], value) => {
                if let Some(item) = items.get_mut(*index) {
                    Rc::make_mut(item).set(rest, value);
                }
            }
            (NodeKind::Mapping { entries, .. }, [step], None) => entries.retain(|entry| entry.step != *step),
            (NodeKind::Mapping { entries, .. }, [step, rest @ ..], value) => {
                match (entries.iter_mut().find(|entry| entry.step == *step), value) {
                    (Some(entry), value) => Rc::make_mut(&mut entry.value).set(rest, value),
                    (None, Some(kind)) if rest.is_empty() => {
                        let value = Rc::new(Self { range: 0..0, at: self.at, count: 1, kind });
                        entries.push(Entry { step: step.clone(), key_at: self.at, value });
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

impl NodeKind {
    /// The values that take the place of a faulty one, until the type accepts one. The number makes each differ from all others.
    pub(super) fn placeholder(kind: usize, number: usize) -> Option<Self> {
        let scalar = |text: String, is_plain| Self::Scalar { text, is_plain };
        Some(match kind {
            0 => scalar(format!("placeholder-{number}"), false),
            1 => scalar(format!("tcp://placeholder-{number}"), false),
            // Few configurations use namespace identifiers as large as these.
            2 => scalar((u64::from(u32::MAX) - 1 - number as u64).to_string(), true),
            3 => Self::Mapping { is_flow: true, entries: Vec::new() },
            4 => Self::List { is_flow: true, items: Vec::new() },
            _ => return None,
        })
    }
}

/// Reads the events of a text.
struct Reader<'a> {
    text: &'a str,
    parser: Parser<'a, StrInput<'a>>,
    follows_aliases: bool,
    anchors: HashMap<usize, Rc<Node>>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<(Event<'a>, Span)> {
        self.parser.next_event()?.ok()
    }

    /// The value that begins with this event. `None` also at the end of a mapping or list.
    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Option<Rc<Node>> {
        let mut range = span.byte_range()?;
        // The parser gives `~` for nothing, and the span of the colon or dash in front of it.
        let written = &self.text[range.start..];
        let is_empty = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text.is_empty() || text == "~")
            && !written.starts_with('~');
        let skipped = usize::from(is_empty && written.starts_with([':', '-']));
        if is_empty {
            range = range.start + skipped..range.start + skipped;
        }
        let mut count: usize = 1;
        let is_flow = self.text[range.start..].starts_with(['{', '[']);
        let anchor = event.anchor_id();
        let kind = match event {
            _ if depth > MAX_DEPTH => return None,
            Event::Alias(anchor) if self.follows_aliases => return self.anchors.get(&anchor).cloned(),
            Event::Scalar(text, style, _, tag) => {
                let is_plain = style == ScalarStyle::Plain && tag.is_none();
                NodeKind::Scalar { text: if is_empty { String::new() } else { text.into_owned() }, is_plain }
            }
            Event::MappingStart(..) => {
                let (mut entries, mut repeated) = (Vec::new(), HashMap::new());
                loop {
                    let (key, key_span) = match self.next()? {
                        (Event::MappingEnd, span) if is_flow => break range.end = span.byte_range()?.end,
                        (Event::MappingEnd, _) => break,
                        (Event::Scalar(key, ..), span) => (key.into_owned(), span),
                        _ => return None,
                    };
                    let (event, span) = self.next()?;
                    let value = self.node(event, span, depth + 1)?;
                    range.end = value.range.end;
                    count = count.saturating_add(value.count);
                    let repeated = repeated.entry(key.clone()).or_insert(0);
                    entries.push(Entry { step: Step::Key(key, *repeated), key_at: at(key_span, 0), value });
                    *repeated += 1;
                }
                NodeKind::Mapping { is_flow, entries }
            }
            Event::SequenceStart(..) => {
                let mut items: Vec<Rc<Node>> = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, span) if is_flow => break range.end = span.byte_range()?.end,
                        (Event::SequenceEnd, _) => break,
                        (event, span) => items.push(self.node(event, span, depth + 1)?),
                    }
                    let last = items.last()?;
                    range.end = last.range.end;
                    count = count.saturating_add(last.count);
                }
                NodeKind::List { is_flow, items }
            }
            _ => return None,
        };
        let node = Rc::new(Node { range, at: at(span, skipped), count, kind });
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Some(node)
    }
}

/// Line and column, from 1.
fn at(span: Span, skipped: usize) -> (usize, usize) {
    (span.start.line(), span.start.col() + skipped + 1)
}
