//! Parsing of values in configurations and settings: addresses, times, sizes and the like.

use std::net::SocketAddr;
use std::str::FromStr;

use monotonic::Duration;
use mpath_config::address::Transport;
use mpath_config::parse_bytes;
use nvme_tcp::wire::AnaState;
use uuid::Uuid;

/// Why a text is not a valid listener, namespace or setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("address '{0}': give IP:PORT, as in 127.0.0.1:4420 or [::1]:4420")]
    Address(String),
    #[error("{field} '{text}': give one of {words}")]
    Word { field: &'static str, text: String, words: String },
    #[error("{field} '{text}': give a number with a unit, at most {max:?}, as in 250us, 30ms or 2s")]
    Time { field: &'static str, text: String, max: Duration },
    #[error("{field} '{text}': give a number from 0 to 4294967295")]
    Count { field: &'static str, text: String },
    #[error("fail '{0}': give COUNT:SCT/SC[/crd1|/crd2|/crd3][/dnr] with an error status, as in 3:0/0x21/crd1")]
    Fail(String),
    #[error(
        "commands '{0}': give COUNT[:OPERATION[:NSID]], as in 1:read:2, or COUNT:TIME[:OPERATION[:NSID]] for answer-late; \
         OPERATION is read, write, write-zeroes, dsm or flush"
    )]
    Answer(String),
    #[error("rate '{0}': give bytes per second, at least 1, or off")]
    Rate(String),
    #[error("'{0}': give NSID:VALUE, or NSID:own to restore the namespace's own value")]
    MissingNsid(String),
    #[error(
        "setting '{0}': give one of ana, delay, rate, hold, black-hole, cross-reset, listen, reset, header-digests, data-digests, fail, \
             swallow, lose-answer, answer-early, answer-twice, answer-late, short-read, uuid, nguid and size with a value, as in ana=inaccessible"
    )]
    Setting(String),
    #[error("namespace '{0}': give mem:SIZE or file:PATH:SIZE")]
    Namespace(String),
    #[error("size '{0}': give bytes, or a number with KiB, MiB, GiB or TiB, as in 1GiB")]
    Size(String),
    #[error("uuid '{0}': give a UUID other than nil, as in 12345678-1234-4234-8234-123456789abc")]
    Uuid(String),
}

pub(crate) fn parse_addr(text: &str) -> Result<SocketAddr, ParseError> {
    text.parse().map_err(|_| ParseError::Address(text.to_owned()))
}

pub(crate) fn parse_transport(text: &str) -> Result<Transport, ParseError> {
    parse_word("transport", &[("tcp", Transport::Tcp), ("mptcp", Transport::Mptcp)], text)
}

/// The value of one of these words.
pub(crate) fn parse_word<T: Copy>(field: &'static str, words: &[(&str, T)], text: &str) -> Result<T, ParseError> {
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    let words = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| ParseError::Word { field, text: text.to_owned(), words: words() })
}

/// Parses a UUID. The nil UUID is refused, because it means "none".
pub(crate) fn parse_uuid(text: &str) -> Result<Uuid, ParseError> {
    let parsed = Uuid::from_str(text).ok().filter(|parsed| !parsed.is_nil());
    parsed.ok_or_else(|| ParseError::Uuid(text.to_owned()))
}

pub(crate) fn parse_count(field: &'static str, text: &str) -> Result<u32, ParseError> {
    // `parse` alone would accept a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let count = if digits { text.parse().ok() } else { None };
    count.ok_or_else(|| ParseError::Count { field, text: text.to_owned() })
}

pub(crate) fn parse_ana(text: &str) -> Result<AnaState, ParseError> {
    let states = [
        ("optimized", AnaState::Optimized),
        ("non-optimized", AnaState::NonOptimized),
        ("inaccessible", AnaState::Inaccessible),
        ("persistent-loss", AnaState::PersistentLoss),
        ("change", AnaState::Change),
    ];
    parse_word("ana", &states, text)
}

pub(crate) fn parse_time(field: &'static str, text: &str, max: Duration) -> Result<Duration, ParseError> {
    let time = humantime::parse_duration(text).ok().map(Duration::from).filter(|&time| time <= max);
    time.ok_or_else(|| ParseError::Time { field, text: text.to_owned(), max })
}

pub(crate) fn parse_size(text: &str) -> Result<u64, ParseError> {
    parse_bytes(text).ok_or_else(|| ParseError::Size(text.to_owned()))
}
