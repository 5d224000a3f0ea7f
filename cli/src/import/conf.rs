//! `/etc/nvme/discovery.conf`: a line is the options of one `nvme discover`.

use std::path::Path;

use mpath_config::{HostId, Nqn};

use super::controller::{ControllerAddress, NvmeOption};
use super::{DISCOVERY_NQN, ImportError, Imported, ImportedDisk, Selection};

/// Short option, long option, and whether a value follows.
const SHORT: [(char, &str, bool); 30] = [
    ('t', "transport", true),
    ('n', "nqn", true),
    ('a', "traddr", true),
    ('s', "trsvcid", true),
    ('w', "host-traddr", true),
    ('f', "host-iface", true),
    ('q', "hostnqn", true),
    ('I', "hostid", true),
    ('i', "nr-io-queues", true),
    ('W', "nr-write-queues", true),
    ('P', "nr-poll-queues", true),
    ('Q', "queue-size", true),
    ('k', "keep-alive-tmo", true),
    ('c', "reconnect-delay", true),
    ('l', "ctrl-loss-tmo", true),
    ('F', "fast-io-fail-tmo", true),
    ('T', "tos", true),
    ('D', "duplicate-connect", false),
    ('d', "disable-sqflow", false),
    ('g', "hdr-digest", false),
    ('G', "data-digest", false),
    ('p', "persistent", false),
    ('S', SECRET, true),
    ('C', "dhchap-ctrl-secret", true),
    ('J', "config", true),
    ('o', "output-format", true),
    ('r', "raw", true),
    ('O', "dump-config", false),
    ('m', "matching", false),
    ('v', "verbose", false),
];

const SECRET: &str = "dhchap-secret";

/// Long options that take no value and have no short form.
const FLAGS: [&str; 7] = ["tls", "concat", "quiet", "force", "no-reuse", "nbft", "no-nbft"];

pub(super) fn read(file: &Path, text: &str, selection: &Selection) -> Result<Imported, ImportError> {
    let Some(subsystem) = &selection.subsystem else {
        return Err(ImportError::WhichSubsystem { file: file.into() });
    };
    let mut imported = Imported { hostnqn: selection.hostnqn.clone(), ..Imported::default() };
    let mut disk = ImportedDisk { subsystem: subsystem.to_string(), ..ImportedDisk::default() };
    for (line, text) in (1..).zip(text.lines()) {
        let refuse = |option: &str, reason: String| ImportError::Option {
            file: file.into(),
            line,
            option: option.into(),
            reason,
        };
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let given = options(text).map_err(|(option, reason)| refuse(&option, reason.into()))?;
        let mut options: Vec<NvmeOption> = Vec::new();
        for option in given {
            if let Some(first) = options.iter_mut().find(|first| first.name == option.name) {
                // nvme-cli, too, uses the last one.
                disk.notes
                    .push(format!("line {line}: {first}: left out, given again in the line and the last one counts"));
                *first = option;
            } else {
                options.push(option);
            }
        }
        let mut take = |name: &str| {
            let at = options.iter().position(|option| option.name == name)?;
            Some(options.remove(at).value)
        };
        let transport = take("transport").ok_or_else(|| refuse("transport", "missing; give --transport=tcp".into()))?;
        let is_tcp = transport.eq_ignore_ascii_case("tcp");
        let traddr = match take("traddr") {
            Some(traddr) => traddr,
            None if is_tcp => return Err(refuse("traddr", "missing; give --traddr=ADDRESS".into())),
            None => String::new(),
        };
        let address = ControllerAddress { transport, traddr, trsvcid: take("trsvcid") };
        let mut is_of_this_host = true;
        if let Some(text) = take("hostnqn") {
            let hostnqn: Nqn = text.parse().map_err(|error| refuse("hostnqn", format!("{error}")))?;
            let known = imported.hostnqn.get_or_insert_with(|| hostnqn.clone());
            is_of_this_host = *known == hostnqn;
            if !is_of_this_host {
                disk.notes.push(format!(
                    "hostnqn {hostnqn} of {}: left out, a daemon has one and that is {known}",
                    address.name()
                ));
            }
        }
        if let Some(text) = take("hostid") {
            let hostid: HostId = text.parse().map_err(|error| refuse("hostid", format!("{error}")))?;
            if is_of_this_host {
                imported.hostid.get_or_insert(hostid);
            }
            if !is_of_this_host || imported.hostid != Some(hostid) {
                disk.notes.push(format!("hostid {hostid} of {}: left out, a daemon has one", address.name()));
            }
        }
        if let Some(nqn) = take("nqn").filter(|nqn| nqn != DISCOVERY_NQN) {
            disk.notes.push(format!("nqn {nqn} of {}: no counterpart, {DISCOVERY_NQN} is asked", address.name()));
        }
        disk.add(&address, true, &options);
    }
    disk.discovery_tls = disk.tls;
    imported.disks.push(disk);
    Ok(imported)
}

/// An option and why it cannot be read.
type OptionError = (String, &'static str);

/// The options of a line: `--name=value`, `--name value`, `-n value`, `-nvalue`, `--flag`, `-f` and `-fg` for `-f -g`.
fn options(text: &str) -> Result<Vec<NvmeOption>, OptionError> {
    let mut options = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let next = words.peek().copied();
        if let Some(long) = word.strip_prefix("--") {
            let (name, attached) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let name = name.replace('_', "-");
            let known = SHORT.iter().find(|(_, long, _)| *long == name).map(|&(.., value)| value);
            let known = known.or_else(|| FLAGS.contains(&name.as_str()).then_some(false));
            // An unknown option has a value if the next word is no option.
            let takes_value = known.unwrap_or_else(|| next.is_some_and(|next| !next.starts_with('-')));
            let value = value_of(&name, attached, takes_value, &mut words)?;
            options.push(NvmeOption { name, value });
        } else if let Some(mut letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            while let Some(letter) = letters.chars().next() {
                letters = &letters[letter.len_utf8()..];
                let (name, takes_value) = short(letter, letters, next)
                    .ok_or_else(|| (word.into(), "unknown option; see nvme discover --help"))?;
                let attached =
                    letters.strip_prefix('=').or(Some(letters).filter(|rest| takes_value && !rest.is_empty()));
                let value = value_of(name, attached, takes_value, &mut words)?;
                options.push(NvmeOption { name: name.into(), value });
                if takes_value || attached.is_some() {
                    break;
                }
            }
        } else {
            return Err((word.into(), "no option; options begin with - or --"));
        }
    }
    Ok(options)
}

/// The name of a short option, and whether a value follows. `rest` follows in the same word, and `next` is the next word.
fn short(letter: char, rest: &str, next: Option<&str>) -> Option<(&'static str, bool)> {
    let &(_, name, takes_value) = SHORT.iter().find(|(short, ..)| *short == letter)?;
    // -S is a secret with nvme-cli 2, and a flag with nvme-cli 1.
    let is_secret = match rest {
        "" => next.is_some_and(|next| !next.starts_with('-')),
        rest => rest.starts_with("DHHC-") || rest.starts_with('='),
    };
    if name == SECRET && !is_secret { Some(("quiet", false)) } else { Some((name, takes_value)) }
}

/// The value of an option: the text in the same word, the next word, or `true` for a flag. A number below zero is a value.
fn value_of<'a>(
    name: &str,
    attached: Option<&str>,
    takes_value: bool,
    words: &mut impl Iterator<Item = &'a str>,
) -> Result<String, OptionError> {
    match attached {
        Some(value) => Ok(value.into()),
        None if takes_value => {
            let value = words.next().filter(|value| !value.starts_with('-') || value.parse::<i64>().is_ok());
            value.map(ToOwned::to_owned).ok_or((name.into(), "has no value"))
        }
        None => Ok("true".into()),
    }
}
