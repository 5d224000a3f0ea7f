//! The texts that configurations and settings are made of: addresses, times, sizes and the like.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use mpath_api::address::Transport;
use nvme_tcp::wire::AnaState;
use uuid::Uuid;

/// Why a text does not describe a listener or namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not an address and port.
    #[error("address '{0}': give IP:PORT, as in 127.0.0.1:4420 or [::1]:4420")]
    Address(String),
    /// Not a transport.
    #[error("transport '{0}': give tcp or mptcp")]
    Transport(String),
    /// Not a time with its unit, or too long.
    #[error("{field} '{text}': give a number with its unit, as in 250us, 30ms or 2s, at most {max:?}")]
    Time {
        /// What it is for.
        field: &'static str,
        /// What was given.
        text: String,
        /// The longest that is taken.
        max: Duration,
    },
    /// Not a number of 32 bits.
    #[error("{field} '{text}': give a number from 0 to 4294967295")]
    Count {
        /// What it is for.
        field: &'static str,
        /// What was given.
        text: String,
    },
    /// Not an ANA state.
    #[error("ana '{0}': give optimized, non-optimized, inaccessible, persistent-loss or change")]
    Ana(String),
    /// Not a way to be silent.
    #[error("black-hole '{0}': give stall, mute or off")]
    BlackHole(String),
    /// Not what can become of a Cross-Controller Reset.
    #[error("cross-reset '{0}': give on, fail or mute")]
    CrossReset(String),
    /// Neither on nor off.
    #[error("listen '{0}': give on or off")]
    Listen(String),
    /// Not a choice of queues.
    #[error("reset '{0}': give all, admin or io")]
    Reset(String),
    /// Not a status with its count.
    #[error("fail '{0}': give COUNT:SCT/SC, then /crd1 to /crd3 and /dnr if wanted, as in 3:0/0x21/crd1; not success")]
    Fail(String),
    /// Not the commands that meet a fault.
    #[error(
        "commands '{0}': give COUNT, then :TIME for answer-late, then :read, :write, :write-zeroes, :dsm or :flush and :NSID if wanted, as in 1:read:2"
    )]
    Answer(String),
    /// A pipe through which nothing goes.
    #[error("rate '{0}': give the bytes a second, at least 1, or off")]
    Rate(String),
    /// Without the namespace it is for.
    #[error("'{0}': give NSID:VALUE, or NSID:own for the namespace's own")]
    NoNsid(String),
    /// There is no such setting.
    #[error(
        "setting '{0}': give one of ana, delay, rate, hold, black-hole, cross-reset, listen, reset, header-digests, data-digests, fail, \
             swallow, lose-answer, answer-early, answer-twice, answer-late, short-read, uuid, nguid and size with its value, as in ana=inaccessible"
    )]
    Setting(String),
    /// Neither memory nor a file.
    #[error("namespace '{0}': give mem:SIZE or file:PATH:SIZE")]
    Namespace(String),
    /// Not a size.
    #[error("size '{0}': give bytes, or a number with KiB, MiB, GiB or TiB, as in 1GiB")]
    Size(String),
    /// Not a UUID.
    #[error("uuid '{0}': give one as in 12345678-1234-4234-8234-123456789abc, not nil")]
    Uuid(String),
}

pub(crate) fn parse_addr(text: &str) -> Result<SocketAddr, ParseError> {
    text.parse().map_err(|_| ParseError::Address(text.to_owned()))
}

pub(crate) fn parse_transport(text: &str) -> Result<Transport, ParseError> {
    match text {
        "tcp" => Ok(Transport::Tcp),
        "mptcp" => Ok(Transport::Mptcp),
        _ => Err(ParseError::Transport(text.to_owned())),
    }
}

/// A UUID that is not nil, which would say that there is none.
pub(crate) fn parse_uuid(text: &str) -> Result<Uuid, ParseError> {
    let parsed = Uuid::from_str(text).ok().filter(|parsed| !parsed.is_nil());
    parsed.ok_or_else(|| ParseError::Uuid(text.to_owned()))
}

pub(crate) fn parse_count(field: &'static str, text: &str) -> Result<u32, ParseError> {
    // Nothing but digits: `parse` would take a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let count = if digits { text.parse().ok() } else { None };
    count.ok_or_else(|| ParseError::Count { field, text: text.to_owned() })
}

pub(crate) fn parse_ana(text: &str) -> Result<AnaState, ParseError> {
    match text {
        "optimized" => Ok(AnaState::Optimized),
        "non-optimized" => Ok(AnaState::NonOptimized),
        "inaccessible" => Ok(AnaState::Inaccessible),
        "persistent-loss" => Ok(AnaState::PersistentLoss),
        "change" => Ok(AnaState::Change),
        _ => Err(ParseError::Ana(text.to_owned())),
    }
}

/// A whole number and its unit, which must be one of `units`.
fn parse_scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let &(_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(scale)
}

pub(crate) fn parse_time(field: &'static str, text: &str, max: Duration) -> Result<Duration, ParseError> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let time = parse_scaled(text, &units).map(Duration::from_nanos).filter(|&time| time <= max);
    time.ok_or_else(|| ParseError::Time { field, text: text.to_owned(), max })
}

pub(crate) fn parse_size(text: &str) -> Result<u64, ParseError> {
    let units = [("", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
    parse_scaled(text, &units).ok_or_else(|| ParseError::Size(text.to_owned()))
}
