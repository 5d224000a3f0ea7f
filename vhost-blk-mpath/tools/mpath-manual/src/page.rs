//! One manual page for each command.

use std::io::Write;
use std::path::Path;
use std::{fs, io};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// The parts of a page that the command line does not have.
pub(crate) struct Place<'a> {
    pub(crate) section: &'static str,
    /// Pages that the page of the program names, with their sections.
    pub(crate) see_also: &'static [&'static str],
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// The date of the pages, such as 2026-11-27.
    pub(crate) date: &'a str,
}

/// Writes the page of a command, and the pages of its subcommands. The command must be built.
pub(crate) fn write(folder: &Path, command: &Command, place: &Place<'_>) -> io::Result<()> {
    write_below(folder, command, place, None)
}

fn write_below(folder: &Path, command: &Command, place: &Place<'_>, parent: Option<&str>) -> io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_below(folder, sub, place, Some(name(command)))?;
    }
    let mut text = Vec::new();
    render(&mut text, command, place, parent)?;
    // The library separates possible values by three breaks, of which mandoc warns.
    let text = String::from_utf8_lossy(&text).replace(".br\n\n.br\n", ".sp\n");
    fs::write(folder.join(format!("{}.{}", name(command), place.section)), text)
}

/// The name of a command's page, such as `mpathctl-path-list`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn render(w: &mut dyn Write, command: &Command, place: &Place<'_>, parent: Option<&str>) -> io::Result<()> {
    let man = Man::new(command.clone())
        .title(name(command).to_uppercase())
        .section(place.section)
        .date(place.date)
        .source(format!("vhost-blk-mpath {}", env!("CARGO_PKG_VERSION")))
        .manual("vhost-blk-mpath");
    man.render_title(w)?;
    man.render_name_section(w)?;
    man.render_synopsis_section(w)?;
    man.render_description_section(w)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(w)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(w)?;
    }
    let mut roff = Roff::default();
    if let Some(help) = command.get_after_help() {
        after_help(&mut roff, &help.to_string());
    }
    if parent.is_none() && !place.files.is_empty() {
        roff.control("SH", ["FILES"]);
        for (file, meaning) in place.files {
            roff.control("TP", []).text([bold(*file)]).text([roman(*meaning)]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    let parent = parent.map(|parent| format!("{parent}({})", place.section));
    let others: Vec<&str> = match &parent {
        Some(parent) => vec![parent],
        None => place.see_also.to_vec(),
    };
    roff.text([roman(format!("{}.", others.join(", ")))]);
    if parent.is_none() {
        roff.control("PP", []).text([roman("Documentation: /usr/share/doc/vhost-blk-mpath/operating/README.md.")]);
    }
    roff.to_writer(w)
}

/// The text below the options: exit codes, whose lines stay lines, then notes.
fn after_help(roff: &mut Roff, help: &str) {
    for (number, paragraph) in help.split("\n\n").enumerate() {
        if let Some(codes) = paragraph.strip_prefix("Exit codes:\n") {
            roff.control("SH", ["EXIT STATUS"]).control("nf", []);
            for code in codes.lines() {
                roff.text([roman(code.trim_start())]);
            }
            roff.control("fi", []);
        } else {
            match number {
                0 | 1 => roff.control("SH", ["NOTES"]),
                _ => roff.control("PP", []),
            };
            roff.text([roman(paragraph)]);
        }
    }
}
