//! `/etc/nvme/discovery.conf`: a line is the options of one `nvme discover`.

use std::path::Path;

use mpath_config::{HostId, Nqn};

use super::controller::{ControllerAddress, NvmeOption};
use super::{DISCOVERY_NQN, ImportError, Imported, ImportedDisk, Selection};

/// Short option, long option, and whether a value follows.
const SHORT: [(char, &str, bool); 22] = [
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
];

/// Long options that take no value and have no short form that matters here.
const FLAGS: [&str; 8] = ["tls", "concat", "quiet", "matching", "force", "nbft", "no-nbft", "raw"];

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
        if let Some(text) = take("hostnqn") {
            let hostnqn: Nqn = text.parse().map_err(|error| refuse("hostnqn", format!("{error}")))?;
            let known = imported.hostnqn.get_or_insert_with(|| hostnqn.clone());
            if *known != hostnqn {
                disk.notes.push(format!(
                    "hostnqn {hostnqn} of {}: left out, a daemon has one and that is {known}",
                    address.name()
                ));
            }
        }
        if let Some(text) = take("hostid") {
            let hostid: HostId = text.parse().map_err(|error| refuse("hostid", format!("{error}")))?;
            let known = imported.hostid.get_or_insert(hostid);
            if *known != hostid {
                disk.notes.push(format!(
                    "hostid {hostid} of {}: left out, a daemon has one and that is {known}",
                    address.name()
                ));
            }
        }
        if let Some(nqn) = take("nqn").filter(|nqn| nqn != DISCOVERY_NQN) {
            disk.notes.push(format!("nqn {nqn} of {}: no counterpart, {DISCOVERY_NQN} is asked", address.name()));
        }
        // A discovery controller has the timeouts of its disk.
        disk.add(&address, true, &options);
    }
    disk.discovery_tls = disk.tls;
    imported.disks.push(disk);
    Ok(imported)
}

/// The options of a line: `--name=value`, `--name value`, `-n value`, `-nvalue`, `--flag` and `-f`.
fn options(text: &str) -> Result<Vec<NvmeOption>, (String, &'static str)> {
    let mut options = Vec::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let (name, attached, takes_value) = if let Some(long) = word.strip_prefix("--") {
            let (name, attached) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let name = name.replace('_', "-");
            let is_flag =
                FLAGS.contains(&name.as_str()) || SHORT.iter().any(|(_, long, value)| *long == name && !value);
            (name, attached, !is_flag)
        } else if let Some(short) = word.strip_prefix('-') {
            let mut letters = short.chars();
            let known = letters.next().and_then(|letter| SHORT.iter().find(|(short, ..)| *short == letter));
            let Some(&(_, name, value)) = known else {
                return Err((word.into(), "unknown option; see nvme discover --help"));
            };
            let rest = letters.as_str();
            let attached = (!rest.is_empty()).then(|| rest.strip_prefix('=').unwrap_or(rest));
            (name.to_owned(), attached, value)
        } else {
            return Err((word.into(), "no option; options begin with - or --"));
        };
        let value = match attached {
            Some(value) => value.to_owned(),
            None if takes_value => match words.next() {
                Some(value) => value.to_owned(),
                None => return Err((name, "has no value")),
            },
            None => "true".to_owned(),
        };
        options.push(NvmeOption { name, value });
    }
    Ok(options)
}
