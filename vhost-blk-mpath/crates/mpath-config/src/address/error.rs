//! Why a text is no address.

/// Why a text is not a [`PathAddress`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is empty.
    #[error("an empty text is no address; write tcp://HOST or tcp://HOST:PORT")]
    Empty,
    /// A transport without a host.
    #[error("`{text}`: the host is missing; write tcp://HOST or tcp://HOST:PORT")]
    NoHost {
        /// The whole text.
        text: String,
    },
    /// No `SCHEME://` in front.
    #[error("`{text}` has no transport; write {meant}")]
    NoTransport {
        /// The whole text.
        text: String,
        /// The text with a transport.
        meant: String,
    },
    /// The transport is not supported.
    #[error("`{text}`: unknown transport `{transport}`; write tcp:// or mptcp://")]
    UnknownTransport {
        /// The whole text.
        text: String,
        /// The text before `://`.
        transport: String,
    },
    /// The host is neither an IPv4 address, an IPv6 address in brackets nor a name.
    #[error("`{text}`: `{host}` is no IPv4 address, no [IPv6 address] and no host name")]
    BadHost {
        /// The whole text.
        text: String,
        /// The host part.
        host: String,
    },
    /// The port is not a number from 1 to 65535.
    #[error("`{text}`: `{port}` is no port; give a number from 1 to 65535, or leave the port out for {default_port}")]
    BadPort {
        /// The whole text.
        text: String,
        /// The port part.
        port: String,
        /// The default port.
        default_port: u16,
    },
    /// An unknown option after `?`.
    #[error("`{text}`: unknown option `{option}`; write ?host-traddr=ADDRESS, ?host-iface=NAME, or both joined by &")]
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
    #[error("`{text}`: host-traddr `{value}` is no IPv4 or IPv6 address")]
    BadHostTraddr {
        /// The whole text.
        text: String,
        /// The value.
        value: String,
    },
    /// `host-iface` is no interface name.
    #[error("`{text}`: host-iface `{value}` is no interface name; `ip link` lists them")]
    BadHostIface {
        /// The whole text.
        text: String,
        /// The value.
        value: String,
    },
    /// A link-local address without `host-iface` leads nowhere.
    #[error("`{text}`: a link-local address needs an interface; write `{meant}`")]
    LinkLocal {
        /// The whole text.
        text: String,
        /// The text with an interface.
        meant: String,
    },
    /// One end is IPv4 and the other IPv6.
    #[error("`{text}`: host-traddr and host are not both IPv4 or both IPv6")]
    Family {
        /// The whole text.
        text: String,
    },
}
