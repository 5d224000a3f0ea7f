//! The values of a YAML text with their places, and edits of single values.

use std::borrow::Cow;
use std::ops::Range;

use saphyr_parser::{Event, Parser, Span};

use crate::config::DiskName;

/// A text and its values.
pub(super) struct Document<'a> {
    text: &'a str,
    root: Node,
}

/// A value.
pub(super) struct Node {
    /// In bytes.
    range: Range<usize>,
    kind: NodeKind,
}

enum NodeKind {
    Scalar(String),
    Mapping { is_flow: bool, entries: Vec<(String, Node)> },
    List { is_flow: bool, items: Vec<Node> },
}

impl Node {
    pub(super) fn is_mapping(&self) -> bool {
        matches!(self.kind, NodeKind::Mapping { .. })
    }

    /// The value of a key of a mapping.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let NodeKind::Mapping { entries, .. } = &self.kind else { return None };
        entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The items of a list.
    pub(super) fn items(&self) -> &[Self] {
        if let NodeKind::List { items, .. } = &self.kind { items } else { &[] }
    }

    pub(super) fn scalar(&self) -> Option<&str> {
        if let NodeKind::Scalar(text) = &self.kind { Some(text) } else { None }
    }

    fn name(&self) -> Cow<'_, str> {
        let name = self.get("name").and_then(Self::scalar);
        name.map_or_else(|| DiskName::default().to_string().into(), Cow::Borrowed)
    }
}

/// Reads the events of a text. `None` for an error, an alias, and a key that is no text.
struct Reader<'a> {
    text: &'a str,
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    /// The byte of each character.
    bytes: Vec<usize>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<(Event<'a>, Range<usize>)> {
        let (event, Span { start, end, .. }) = self.parser.next_event()?.ok()?;
        let byte = |index| self.bytes.get(index).copied().unwrap_or(self.text.len());
        Some((event, byte(start.index())..byte(end.index())))
    }

    /// The value that begins with this event. `None` also at the end of a mapping or list.
    fn node(&mut self, event: Event<'a>, at: Range<usize>) -> Option<Node> {
        let is_flow = self.text[at.start..].starts_with(['{', '[']);
        let mut end = at.end;
        let kind = match event {
            Event::Scalar(text, ..) => NodeKind::Scalar(text.into_owned()),
            Event::MappingStart(..) => {
                let mut entries = Vec::new();
                loop {
                    let (event, at) = self.next()?;
                    let key = match event {
                        Event::MappingEnd => {
                            end = if is_flow { at.end } else { end };
                            break;
                        }
                        Event::Scalar(key, ..) => key.into_owned(),
                        _ => return None,
                    };
                    let (event, at) = self.next()?;
                    let value = self.node(event, at)?;
                    end = value.range.end;
                    entries.push((key, value));
                }
                NodeKind::Mapping { is_flow, entries }
            }
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    let (event, at) = self.next()?;
                    if event == Event::SequenceEnd {
                        end = if is_flow { at.end } else { end };
                        break;
                    }
                    let item = self.node(event, at)?;
                    end = item.range.end;
                    items.push(item);
                }
                NodeKind::List { is_flow, items }
            }
            _ => return None,
        };
        Some(Node { range: at.start..end, kind })
    }
}

impl<'a> Document<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let bytes = text.char_indices().map(|(at, _)| at).collect();
        let mut reader = Reader { text, parser: Parser::new_from_str(text), bytes };
        loop {
            match reader.next()? {
                (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
                (event, at) => return Some(Self { text, root: reader.node(event, at)? }),
            }
        }
    }

    /// The list of disks.
    pub(super) fn disks(&self) -> Option<&Node> {
        self.root.get("disks")
    }

    /// The settings of a disk, or of a disk that shares its paths.
    pub(super) fn disk(&self, name: &str) -> Option<&Node> {
        let disks = self.disks()?.items();
        let mut all =
            disks.iter().chain(disks.iter().filter_map(|disk| disk.get("share-paths-with")).flat_map(Node::items));
        all.find(|disk| disk.name() == name)
    }

    /// The position of a disk in the list.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.disks()?.items().iter().position(|disk| disk.name() == name)
    }

    /// The text with `new` in place of this range.
    fn with(&self, range: Range<usize>, new: &str) -> String {
        [&self.text[..range.start], new, &self.text[range.end..]].concat()
    }

    /// Where the line of this place ends.
    fn line_end(&self, at: usize) -> usize {
        self.text[at..].find('\n').map_or(self.text.len(), |length| at + length)
    }

    /// The text in front of this place on its line.
    fn line_before(&self, at: usize) -> &'a str {
        let begin = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        &self.text[begin..at]
    }

    /// The text with another value in place of `node`.
    pub(super) fn replace(&self, node: &Node, value: &str) -> String {
        self.with(node.range.clone(), value)
    }

    /// The text with lines after those of `last`.
    fn after_lines(&self, last: &Node, lines: &str) -> String {
        let end = self.line_end(last.range.end);
        self.with(end..end, &format!("\n{lines}"))
    }

    /// The text with one more key in a mapping.
    pub(super) fn insert(&self, mapping: &Node, key: &str, value: &str) -> Option<String> {
        let NodeKind::Mapping { is_flow, entries } = &mapping.kind else { return None };
        let Some((_, last)) = entries.last() else {
            return Some(self.replace(mapping, &format!("{{{key}: {value}}}")));
        };
        if *is_flow {
            return Some(self.with(last.range.end..last.range.end, &format!(", {key}: {value}")));
        }
        let indent = self.line_before(mapping.range.start).chars().count();
        Some(self.after_lines(last, &format!("{:indent$}{key}: {value}", "")))
    }

    /// The text with one more item in a list: `lines` if the items are on lines of their own, and `line` if the list is on one
    /// line.
    pub(super) fn append(&self, list: &Node, lines: &str, line: &str) -> Option<String> {
        let NodeKind::List { is_flow, items } = &list.kind else { return None };
        let Some(last) = items.last() else { return Some(self.replace(list, &format!("[{line}]"))) };
        if *is_flow {
            return Some(self.with(last.range.end..last.range.end, &format!(", {line}")));
        }
        let before = self.line_before(last.range.start);
        let indent = before[..before.rfind('-')?].chars().count();
        let lines: Vec<_> = lines
            .lines()
            .enumerate()
            .map(|(number, line)| {
                let dash = if number == 0 { "- " } else { "  " };
                format!("{:indent$}{dash}{line}", "")
            })
            .collect();
        Some(self.after_lines(last, &lines.join("\n")))
    }

    /// The text without an item of a list.
    pub(super) fn remove(&self, list: &Node, position: usize) -> Option<String> {
        let NodeKind::List { is_flow, items } = &list.kind else { return None };
        let item = items.get(position)?;
        if items.len() == 1 {
            return Some(self.replace(list, "[]"));
        }
        if *is_flow {
            let range = match position.checked_sub(1) {
                Some(before) => items[before].range.end..item.range.end,
                None => item.range.start..items[1].range.start,
            };
            return Some(self.with(range, ""));
        }
        let begin = item.range.start - self.line_before(item.range.start).len();
        let end = self.line_end(item.range.end);
        Some(self.with(begin..(end + 1).min(self.text.len()), ""))
    }
}
