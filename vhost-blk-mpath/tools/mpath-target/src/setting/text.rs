//! The text form of settings.

use std::fmt;
use std::str::FromStr;

use monotonic::Duration;
use mpath_config::text_serde;
use nvme_tcp::wire::{Opcode, Status};
use nvme_tcp_target::{AnswerFault, FaultyCommands};

use super::{BlackHole, CrossReset, Hold, MAX_DELAY, Queues, Setting};
use crate::parse::{ParseError, parse_ana, parse_count, parse_size, parse_time, parse_uuid, parse_word};

/// Values that are written as a word.
pub(crate) type Words<T, const N: usize> = [(&'static str, T); N];

pub(crate) const BLACK_HOLES: Words<Option<BlackHole>, 3> =
    [("off", None), ("stall", Some(BlackHole::Stall)), ("mute", Some(BlackHole::Mute))];
pub(crate) const CROSS_RESETS: Words<CrossReset, 3> =
    [("on", CrossReset::On), ("fail", CrossReset::Fail), ("mute", CrossReset::Mute)];
const LISTEN: Words<bool, 2> = [("on", true), ("off", false)];
const QUEUES: Words<Queues, 3> = [("all", Queues::All), ("admin", Queues::Admin), ("io", Queues::Io)];
const OPERATIONS: Words<Opcode, 5> = [
    ("read", Opcode::READ),
    ("write", Opcode::WRITE),
    ("write-zeroes", Opcode::WRITE_ZEROES),
    ("dsm", Opcode::DATASET_MANAGEMENT),
    ("flush", Opcode::FLUSH),
];
/// The settings of answer faults. The time of late answers is in the value.
const ANSWER_FAULTS: Words<AnswerFault, 6> = [
    ("swallow", AnswerFault::Swallow),
    ("lose-answer", AnswerFault::Lose),
    ("answer-early", AnswerFault::Early),
    ("answer-twice", AnswerFault::Twice),
    ("answer-late", AnswerFault::Late(Duration::ZERO)),
    ("short-read", AnswerFault::Short),
];

/// The place of a value among these words.
pub(crate) fn place<T: PartialEq>(words: &[(&str, T)], value: &T) -> usize {
    words.iter().position(|(_, other)| other == value).expect("every value has a word")
}

/// The word for a value.
pub(crate) fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words[place(words, value)].0
}

impl FromStr for Setting {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let unknown = || ParseError::Setting(text.to_owned());
        let (name, value) = text.split_once('=').ok_or_else(unknown)?;
        if let Some(&(_, fault)) = ANSWER_FAULTS.iter().find(|(fault, _)| *fault == name) {
            return parse_answer(fault, value);
        }
        Ok(match name {
            "ana" => {
                let (group, state) = match value.split_once(':') {
                    Some((group, state)) => (Some(parse_count("group", group)?), state),
                    None => (None, value),
                };
                Self::Ana { group, state: parse_ana(state)? }
            }
            "delay" => Self::Delay(parse_time("delay", value, MAX_DELAY)?),
            "rate" if value == "off" => Self::Rate(None),
            "rate" => {
                let rate = Some(parse_size(value)?).filter(|&rate| rate > 0);
                Self::Rate(Some(rate.ok_or_else(|| ParseError::Rate(value.to_owned()))?))
            }
            "hold" => Self::Hold(match value {
                "off" => Hold::Off,
                "on" => Hold::On,
                time => Hold::For(parse_time("hold", time, MAX_DELAY)?),
            }),
            "black-hole" => Self::BlackHole(parse_word("black-hole", &BLACK_HOLES, value)?),
            "cross-reset" => Self::CrossReset(parse_word("cross-reset", &CROSS_RESETS, value)?),
            "listen" => Self::Listen(parse_word("listen", &LISTEN, value)?),
            "reset" => Self::Reset(parse_word("reset", &QUEUES, value)?),
            "header-digests" => Self::HeaderDigests(parse_count("header-digests", value)?),
            "data-digests" => Self::DataDigests(parse_count("data-digests", value)?),
            "fail" => parse_fail(value)?,
            "uuid" => {
                let (nsid, uuid) = parse_override(value, parse_uuid)?;
                Self::Uuid { nsid, uuid }
            }
            "nguid" => {
                let (nsid, nguid) = parse_override(value, parse_uuid)?;
                Self::Nguid { nsid, nguid }
            }
            "size" => {
                let (nsid, bytes) = parse_override(value, parse_size)?;
                Self::Size { nsid, bytes }
            }
            _ => return Err(unknown()),
        })
    }
}

/// Parses `NSID:VALUE`, where VALUE may be `own`.
fn parse_override<T>(
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, ParseError>,
) -> Result<(u32, Option<T>), ParseError> {
    let (nsid, value) = text.split_once(':').ok_or_else(|| ParseError::MissingNsid(text.to_owned()))?;
    let value = if value == "own" { None } else { Some(parse(value)?) };
    Ok((parse_count("nsid", nsid)?, value))
}

/// Parses `COUNT:SCT/SC[/crdN][/dnr]`. The codes are decimal, or hexadecimal with `0x`.
fn parse_fail(text: &str) -> Result<Setting, ParseError> {
    let bad = || ParseError::Fail(text.to_owned());
    let (count, status) = text.split_once(':').ok_or_else(bad)?;
    let code = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let mut parts = status.split('/');
    let sct = parts.next().and_then(code).filter(|&sct| sct <= 7).ok_or_else(bad)?;
    let sc = parts.next().and_then(code).ok_or_else(bad)?;
    let mut status = Status::new(sct, sc);
    for part in parts {
        status = match part {
            "crd1" => status.with_crd(1),
            "crd2" => status.with_crd(2),
            "crd3" => status.with_crd(3),
            "dnr" => status.with_dnr(),
            _ => return Err(bad()),
        };
    }
    if status.is_success() {
        return Err(bad());
    }
    Ok(Setting::Fail { count: parse_count("fail", count)?, status })
}

/// Parses `COUNT[:OPERATION[:NSID]]`, or `COUNT:TIME[:OPERATION[:NSID]]` for late answers.
fn parse_answer(mut fault: AnswerFault, text: &str) -> Result<Setting, ParseError> {
    let bad = || ParseError::Answer(text.to_owned());
    let mut parts = text.split(':');
    let count = parse_count("count", parts.next().unwrap_or_default())?;
    if let AnswerFault::Late(time) = &mut fault {
        *time = parse_time("answer-late", parts.next().ok_or_else(bad)?, MAX_DELAY)?;
    }
    let opcode = parts.next().map(|name| parse_word("operation", &OPERATIONS, name).map_err(|_| bad())).transpose()?;
    let nsid = parts.next().map(|nsid| parse_count("nsid", nsid)).transpose()?;
    if parts.next().is_some() {
        return Err(bad());
    }
    Ok(Setting::Answer { fault, commands: FaultyCommands { count, opcode, nsid } })
}

/// The text that `FromStr` parses.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ana { group: None, state } => write!(f, "ana={state}"),
            Self::Ana { group: Some(group), state } => write!(f, "ana={group}:{state}"),
            Self::Delay(delay) => write!(f, "delay={}ns", delay.as_nanos()),
            Self::Rate(None) => f.write_str("rate=off"),
            Self::Rate(Some(rate)) => write!(f, "rate={rate}"),
            Self::Hold(Hold::Off) => f.write_str("hold=off"),
            Self::Hold(Hold::On) => f.write_str("hold=on"),
            Self::Hold(Hold::For(time)) => write!(f, "hold={}ns", time.as_nanos()),
            Self::BlackHole(black_hole) => write!(f, "black-hole={}", word(&BLACK_HOLES, black_hole)),
            Self::CrossReset(cross_reset) => write!(f, "cross-reset={}", word(&CROSS_RESETS, cross_reset)),
            Self::Listen(listen) => write!(f, "listen={}", word(&LISTEN, listen)),
            Self::Reset(queues) => write!(f, "reset={}", word(&QUEUES, queues)),
            Self::HeaderDigests(count) => write!(f, "header-digests={count}"),
            Self::DataDigests(count) => write!(f, "data-digests={count}"),
            Self::Fail { count, status } => {
                write!(f, "fail={count}:{}/{:#04x}", status.sct(), status.sc())?;
                if status.crd() > 0 {
                    write!(f, "/crd{}", status.crd())?;
                }
                if status.dnr() { f.write_str("/dnr") } else { Ok(()) }
            }
            Self::Answer { fault, commands } => write_answer(f, *fault, *commands),
            Self::Uuid { nsid, uuid } => write_override(f, "uuid", *nsid, uuid.as_ref()),
            Self::Nguid { nsid, nguid } => write_override(f, "nguid", *nsid, nguid.as_ref()),
            Self::Size { nsid, bytes } => write_override(f, "size", *nsid, bytes.as_ref()),
        }
    }
}

fn write_answer(f: &mut fmt::Formatter<'_>, fault: AnswerFault, commands: FaultyCommands) -> fmt::Result {
    let FaultyCommands { count, opcode, nsid } = commands;
    match fault {
        AnswerFault::Late(time) => write!(f, "answer-late={count}:{}ns", time.as_nanos()),
        fault => write!(f, "{}={count}", word(&ANSWER_FAULTS, &fault)),
    }?;
    if let Some(opcode) = opcode {
        write!(f, ":{}", word(&OPERATIONS, &opcode))?;
    }
    nsid.map_or(Ok(()), |nsid| write!(f, ":{nsid}"))
}

fn write_override(f: &mut fmt::Formatter<'_>, name: &str, nsid: u32, value: Option<&impl fmt::Display>) -> fmt::Result {
    match value {
        Some(value) => write!(f, "{name}={nsid}:{value}"),
        None => write!(f, "{name}={nsid}:own"),
    }
}

text_serde!(Setting, "a setting NAME=VALUE");

#[cfg(test)]
mod tests {
    use nvme_tcp::wire::AnaState;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn any_setting() -> impl Strategy<Value = Setting> {
        let states = [
            AnaState::Optimized,
            AnaState::NonOptimized,
            AnaState::Inaccessible,
            AnaState::PersistentLoss,
            AnaState::Change,
        ];
        let time = || (0..=MAX_DELAY.as_nanos()).prop_map(Duration::from_nanos);
        let uuid = || proptest::option::of((1u128..).prop_map(Uuid::from_u128));
        let hold = prop_oneof![Just(Hold::Off), Just(Hold::On), time().prop_map(Hold::For)];
        let black_hole = proptest::option::of(prop_oneof![Just(BlackHole::Stall), Just(BlackHole::Mute)]);
        let cross_reset = prop_oneof![Just(CrossReset::On), Just(CrossReset::Fail), Just(CrossReset::Mute)];
        let queues = prop_oneof![Just(Queues::All), Just(Queues::Admin), Just(Queues::Io)];
        let answer_fault = prop_oneof![
            Just(AnswerFault::Swallow),
            Just(AnswerFault::Lose),
            Just(AnswerFault::Early),
            Just(AnswerFault::Twice),
            time().prop_map(AnswerFault::Late),
            Just(AnswerFault::Short),
        ];
        let which = proptest::option::of((0usize..OPERATIONS.len(), proptest::option::of(any::<u32>())));
        let fail = (any::<u32>(), 0u8..8, 1u8.., 0u8..4, any::<bool>());
        prop_oneof![
            (proptest::option::of(any::<u32>()), 0usize..5)
                .prop_map(move |(group, state)| Setting::Ana { group, state: states[state] }),
            time().prop_map(Setting::Delay),
            proptest::option::of(1u64..).prop_map(Setting::Rate),
            hold.prop_map(Setting::Hold),
            black_hole.prop_map(Setting::BlackHole),
            cross_reset.prop_map(Setting::CrossReset),
            any::<bool>().prop_map(Setting::Listen),
            queues.prop_map(Setting::Reset),
            any::<u32>().prop_map(Setting::HeaderDigests),
            any::<u32>().prop_map(Setting::DataDigests),
            fail.prop_map(|(count, sct, sc, crd, dnr)| {
                let status = Status::new(sct, sc).with_crd(crd);
                Setting::Fail { count, status: if dnr { status.with_dnr() } else { status } }
            }),
            (answer_fault, any::<u32>(), which).prop_map(|(fault, count, which)| {
                let opcode = which.map(|(operation, _)| OPERATIONS[operation].1);
                let nsid = which.and_then(|(_, nsid)| nsid);
                Setting::Answer { fault, commands: FaultyCommands { count, opcode, nsid } }
            }),
            (any::<u32>(), uuid()).prop_map(|(nsid, uuid)| Setting::Uuid { nsid, uuid }),
            (any::<u32>(), uuid()).prop_map(|(nsid, nguid)| Setting::Nguid { nsid, nguid }),
            (any::<u32>(), proptest::option::of(any::<u64>())).prop_map(|(nsid, bytes)| Setting::Size { nsid, bytes }),
        ]
    }

    proptest! {
        #[test]
        fn parse_inverts_display(setting in any_setting()) {
            prop_assert_eq!(setting.to_string().parse(), Ok(setting));
        }

        #[test]
        fn any_text_parses_or_fails(text in "(ana|hold|fail|uuid|size|reset|swallow|answer-late)?=?\\PC{0,24}") {
            let _ = text.parse::<Setting>();
        }
    }

    #[test]
    fn short_forms_parse() {
        let parse = |text: &str| text.parse::<Setting>().unwrap();
        assert_eq!(parse("delay=30ms"), Setting::Delay(Duration::from_millis(30)));
        assert_eq!(parse("hold=2s"), Setting::Hold(Hold::For(Duration::from_secs(2))));
        assert_eq!(parse("rate=100MiB"), Setting::Rate(Some(100 << 20)));
        assert_eq!(parse("size=1:1MiB"), Setting::Size { nsid: 1, bytes: Some(1 << 20) });
        let status = Status::COMMAND_INTERRUPTED.with_crd(2).with_dnr();
        assert_eq!(parse("fail=3:0/0x21/crd2/dnr"), Setting::Fail { count: 3, status });
        let commands = FaultyCommands { count: 2, opcode: Some(Opcode::FLUSH), nsid: Some(7) };
        let fault = AnswerFault::Late(Duration::from_secs(3));
        assert_eq!(parse("answer-late=2:3s:flush:7"), Setting::Answer { fault, commands });
        assert_eq!(parse("fail=3:3/2"), Setting::Fail { count: 3, status: Status::ANA_INACCESSIBLE });
    }

    #[test]
    fn errors_name_the_wrong_value() {
        for (text, word) in [
            ("", "''"),
            ("ana", "'ana'"),
            ("speed=1", "'speed=1'"),
            ("ana=up", "'up'"),
            ("ana=x:optimized", "group 'x'"),
            ("delay=30", "delay '30'"),
            ("rate=0", "rate '0'"),
            ("rate=fast", "'fast'"),
            ("hold=601s", "hold '601s'"),
            ("black-hole=on", "'on'"),
            ("cross-reset=off", "'off'"),
            ("listen=maybe", "'maybe'"),
            ("reset=1", "'1'"),
            ("header-digests=-1", "header-digests '-1'"),
            ("fail=3", "'3'"),
            ("fail=3:8/1", "'3:8/1'"),
            ("fail=3:0/0", "'3:0/0'"),
            ("fail=x:0/6", "fail 'x'"),
            ("fail=1:0/6/crd4", "'1:0/6/crd4'"),
            ("swallow=", "count ''"),
            ("swallow=1:verify", "'1:verify'"),
            ("swallow=1:read:x", "nsid 'x'"),
            ("swallow=1:read:1:2", "'1:read:1:2'"),
            ("answer-late=1", "'1'"),
            ("answer-late=1:read", "answer-late 'read'"),
            ("uuid=own", "'own'"),
            ("uuid=1:7", "'7'"),
            ("size=x:own", "nsid 'x'"),
            ("size=1:1GB", "'1GB'"),
        ] {
            let error = text.parse::<Setting>().unwrap_err().to_string();
            assert!(error.contains(word) && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
