//! Edits of single values of a YAML text.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use crate::config::DiskName;
use crate::config::reader::nodes::{Entry, Node, NodeKind};

/// A text and its values.
pub(super) struct Document<'a> {
    text: &'a str,
    root: Rc<Node>,
}

fn name(disk: &Node) -> Cow<'_, str> {
    let name = disk.get("name").and_then(Node::scalar);
    name.map_or_else(|| DiskName::default().to_string().into(), Cow::Borrowed)
}

impl<'a> Document<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        Some(Self { text, root: Node::parse(text, false)? })
    }

    /// The list of disks.
    pub(super) fn disks(&self) -> Option<&Node> {
        self.root.get("disks")
    }

    /// The settings of a disk, or of a disk that shares its paths.
    pub(super) fn disk(&self, wanted: &str) -> Option<&Node> {
        let disks = self.disks()?.items();
        let mut all =
            disks.iter().chain(disks.iter().filter_map(|disk| disk.get("share-paths-with")).flat_map(Node::items));
        all.find(|disk| name(disk) == wanted).map(|disk| &**disk)
    }

    /// The position of a disk in the list.
    pub(super) fn position(&self, wanted: &str) -> Option<usize> {
        self.disks()?.items().iter().position(|disk| name(disk) == wanted)
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
        let Some(Entry { value: last, .. }) = entries.last() else {
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
