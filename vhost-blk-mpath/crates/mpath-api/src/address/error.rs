//! Why a text is no address.

/// Why a text is not a [`PathAddress`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// There is nothing.
    #[error("an empty text is no address; write tcp://HOST or tcp://HOST:PORT")]
    Empty,
    /// There is a transport, and no host.
    #[error("`{text}`: the host is missing; write tcp://HOST or tcp://HOST:PORT")]
    NoHost {
        /// The whole text.
        text: String,
    },
    /// There is no `SCHEME://` in front.
    #[error("`{text}` names no transport; write {meant}")]
    NoTransport {
        /// The whole text.
        text: String,
        /// What was probably meant.
        meant: String,
    },
    /// The transport is none that NVMe over Fabrics on this host knows.
    #[error("`{text}`: unknown transport `{transport}`; there are tcp:// and mptcp://")]
    UnknownTransport {
        /// The whole text.
        text: String,
        /// What stood in front of `://`.
        transport: String,
    },
    /// The host is neither an IPv4 address, an IPv6 address in brackets nor a name.
    #[error("`{text}`: `{host}` is no IPv4 address, no [IPv6 address] and no host name")]
    BadHost {
        /// The whole text.
        text: String,
        /// What stands where the host belongs.
        host: String,
    },
    /// The port is not a number from 1 to 65535.
    #[error("`{text}`: `{port}` is no port; give a number from 1 to 65535, or none for {default_port}")]
    BadPort {
        /// The whole text.
        text: String,
        /// What stands where the port belongs.
        port: String,
        /// What it is if none is given.
        default_port: u16,
    },
    /// What follows after `?` is not known.
    #[error(
        "`{text}`: `{option}` is no option of an address; write ?host-traddr=ADDRESS or ?host-iface=NAME, or both with & between"
    )]
    UnknownOption {
        /// The whole text.
        text: String,
        /// The option.
        option: String,
    },
    /// An option is given more than once.
    #[error("`{text}`: {option} is given twice")]
    OptionTwice {
        /// The whole text.
        text: String,
        /// The option.
        option: &'static str,
    },
    /// `host-traddr` is no address.
    #[error("`{text}`: host-traddr `{value}` is no IPv4 address and no IPv6 address of this host")]
    BadHostTraddr {
        /// The whole text.
        text: String,
        /// What was given.
        value: String,
    },
    /// `host-iface` cannot be the name of an interface.
    #[error("`{text}`: host-iface `{value}` is no name of an interface, as `ip link` lists them")]
    BadHostIface {
        /// The whole text.
        text: String,
        /// What was given.
        value: String,
    },
    /// One end is an IPv4 address and the other one IPv6.
    #[error("`{text}`: host-traddr and host are not both IPv4 or both IPv6")]
    Family {
        /// The whole text.
        text: String,
    },
}
