//! Writes the configuration, with comments for options without a counterpart.

use std::fmt::{Display, Write};
use std::path::Path;

use super::{Imported, ImportedDisk};

pub(super) fn write(file: &Path, imported: &Imported) -> String {
    let mut text = String::new();
    line(
        &mut text,
        0,
        &format_args!(
            "# Imported from {}. Comments say what has no counterpart.",
            one_line(&file.display().to_string())
        ),
    );
    notes(&mut text, 0, &imported.notes);
    if let Some(hostnqn) = &imported.hostnqn {
        line(&mut text, 0, &format_args!("hostnqn: {}", scalar(hostnqn)));
    }
    if let Some(hostid) = &imported.hostid {
        line(&mut text, 0, &format_args!("hostid: {}", scalar(hostid)));
    }
    line(&mut text, 0, &"disks:");
    for (index, disk) in imported.disks.iter().enumerate() {
        write_disk(&mut text, index, disk);
    }
    text
}

fn write_disk(text: &mut String, index: usize, disk: &ImportedDisk) {
    line(text, 2, &format_args!("- name: disk{index}"));
    line(text, 4, &format_args!("socket-path: /run/vhost-blk-mpath/disk{index}.sock"));
    line(text, 4, &format_args!("subsystem: {}", scalar(&disk.subsystem)));
    list(text, "paths", &disk.paths);
    list(text, "discovery", &disk.discovery);
    for (key, value) in disk.settings() {
        line(text, 4, &format_args!("{key}: {value}"));
    }
    if disk.tls {
        // Without the file no path connects. Without the setting, paths would connect in clear text.
        line(text, 4, &format_args!("tls-key-file: /etc/vhost-blk-mpath/disk{index}.key"));
    }
    if disk.discovery_tls && !disk.discovery.is_empty() {
        line(text, 4, &"discovery-tls-key-file: /etc/vhost-blk-mpath/discovery.key");
    }
    notes(text, 4, &disk.notes);
}

fn list(text: &mut String, key: &str, items: &[impl Display]) {
    if !items.is_empty() {
        line(text, 4, &format_args!("{key}:"));
        for item in items {
            line(text, 6, &format_args!("- {}", scalar(item)));
        }
    }
}

fn notes(text: &mut String, indent: usize, notes: &[String]) {
    for note in notes {
        line(text, indent, &format_args!("# {}", one_line(note)));
    }
}

fn line(text: &mut String, indent: usize, what: &dyn Display) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{:indent$}{what}", "");
}

/// The value in double quotes, in which JSON and YAML agree. So YAML reads a string.
fn scalar(value: &impl Display) -> String {
    serde_json::Value::String(value.to_string()).to_string()
}

/// The note on one line, because a line break would end the comment.
pub(super) fn one_line(note: &str) -> String {
    note.chars()
        .map(|c| if c.is_control() || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .collect()
}
