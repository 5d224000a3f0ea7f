//! The text forms that the command line gives listeners and namespaces in.

use std::str::FromStr;
use std::time::Duration;

use nvme_tcp::wire::AnaState;
use uuid::Uuid;

use crate::config::{ListenerConfig, NamespaceConfig};

/// Why a text does not describe a listener or namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not an address and port.
    #[error("address '{0}': give IP:PORT, as in 127.0.0.1:4420 or [::1]:4420")]
    Address(String),
    /// Not a time with its unit.
    #[error("delay '{0}': give a number with its unit, as in 250us, 30ms or 2s")]
    Delay(String),
    /// Not an ANA state.
    #[error("ana '{0}': give optimized, non-optimized, inaccessible, persistent-loss or change")]
    Ana(String),
    /// A listener has no such option.
    #[error("option '{0}': a listener has delay=TIME and ana=STATE")]
    ListenerOption(String),
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

/// `IP:PORT[,delay=TIME][,ana=STATE]`
impl FromStr for ListenerConfig {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut parts = text.split(',');
        let addr = parts.next().unwrap_or_default();
        let addr = addr.parse().map_err(|_| ParseError::Address(addr.to_owned()))?;
        let mut listener = Self::new(addr);
        for part in parts {
            match part.split_once('=') {
                Some(("delay", value)) => listener.delay = parse_delay(value)?,
                Some(("ana", value)) => listener.ana = parse_ana(value)?,
                _ => return Err(ParseError::ListenerOption(part.to_owned())),
            }
        }
        Ok(listener)
    }
}

/// `mem:SIZE[,uuid=UUID]` or `file:PATH:SIZE[,uuid=UUID]`
impl FromStr for NamespaceConfig {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (text, uuid) = match text.rsplit_once(",uuid=") {
            Some((rest, uuid)) => {
                let parsed = Uuid::from_str(uuid).ok().filter(|parsed| !parsed.is_nil());
                (rest, Some(parsed.ok_or_else(|| ParseError::Uuid(uuid.to_owned()))?))
            }
            None => (text, None),
        };
        let unknown = || ParseError::Namespace(text.to_owned());
        let namespace = match text.split_once(':').ok_or_else(unknown)? {
            ("mem", size) => Self::memory(parse_size(size)?),
            ("file", rest) => {
                let (path, size) = rest.rsplit_once(':').ok_or_else(unknown)?;
                if path.is_empty() {
                    return Err(unknown());
                }
                Self::file(path, parse_size(size)?)
            }
            _ => return Err(unknown()),
        };
        Ok(Self { uuid, ..namespace })
    }
}

fn parse_ana(text: &str) -> Result<AnaState, ParseError> {
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

fn parse_delay(text: &str) -> Result<Duration, ParseError> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let nanos = parse_scaled(text, &units).ok_or_else(|| ParseError::Delay(text.to_owned()))?;
    Ok(Duration::from_nanos(nanos))
}

fn parse_size(text: &str) -> Result<u64, ParseError> {
    let units = [("", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
    parse_scaled(text, &units).ok_or_else(|| ParseError::Size(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_with_everything() {
        let listener: ListenerConfig = "127.0.0.1:4421,delay=250us,ana=non-optimized".parse().unwrap();
        assert_eq!(listener.addr, "127.0.0.1:4421".parse().unwrap());
        assert_eq!(listener.delay, Duration::from_micros(250));
        assert_eq!(listener.ana, AnaState::NonOptimized);
    }

    #[test]
    fn a_plain_listener_is_fast_and_optimized() {
        let listener: ListenerConfig = "[::1]:0".parse().unwrap();
        assert_eq!(listener, ListenerConfig::new("[::1]:0".parse().unwrap()));
    }

    #[test]
    fn bad_listeners_name_field_and_value() {
        let parse = |text: &str| text.parse::<ListenerConfig>().unwrap_err();
        assert_eq!(parse("localhost"), ParseError::Address("localhost".into()));
        assert_eq!(parse("1.2.3.4:1,delay=30"), ParseError::Delay("30".into()));
        assert_eq!(parse("1.2.3.4:1,delay=ms"), ParseError::Delay("ms".into()));
        assert_eq!(parse("1.2.3.4:1,delay=-1ms"), ParseError::Delay("-1ms".into()));
        assert_eq!(parse("1.2.3.4:1,ana=up"), ParseError::Ana("up".into()));
        assert_eq!(parse("1.2.3.4:1,speed=1"), ParseError::ListenerOption("speed=1".into()));
        assert_eq!(parse("1.2.3.4:1,"), ParseError::ListenerOption(String::new()));
        let huge = "99999999999999999999s";
        assert_eq!(parse(&format!("1.2.3.4:1,delay={huge}")), ParseError::Delay(huge.into()));
    }

    #[test]
    fn namespaces() {
        let uuid = "12345678-1234-4234-8234-123456789abc";
        assert_eq!("mem:1GiB".parse(), Ok(NamespaceConfig::memory(1 << 30)));
        assert_eq!("file:/a:b:512".parse(), Ok(NamespaceConfig::file("/a:b", 512)));
        let with_uuid: NamespaceConfig = format!("mem:4KiB,uuid={uuid}").parse().unwrap();
        assert_eq!(with_uuid.uuid, Some(uuid.parse().unwrap()));
        let parse = |text: &str| text.parse::<NamespaceConfig>().unwrap_err();
        assert_eq!(parse("mem"), ParseError::Namespace("mem".into()));
        assert_eq!(parse("ram:1"), ParseError::Namespace("ram:1".into()));
        assert_eq!(parse("file:/x"), ParseError::Namespace("file:/x".into()));
        assert_eq!(parse("mem:1GB"), ParseError::Size("1GB".into()));
        assert_eq!(parse("mem:17000000TiB"), ParseError::Size("17000000TiB".into()));
        assert_eq!(parse("mem:1,uuid=7"), ParseError::Uuid("7".into()));
    }
}
