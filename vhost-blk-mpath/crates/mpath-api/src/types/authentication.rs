//! How a path was authenticated.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The in-band authentication (DH-HMAC-CHAP) of a live path. It is that of the admin queue. The other queues use the same secrets.
/// With `concat`, it is the authentication that has generated the key for TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PathAuthentication {
    /// Who has proven itself.
    pub sides: AuthenticatedSides,
    /// The hash that the controller chose: `SHA-256`, `SHA-384` or `SHA-512`.
    pub hash: String,
    /// The Diffie-Hellman group that the controller chose: `null`, or `ffdhe2048` to `ffdhe8192`.
    pub dh_group: String,
}

/// Who has proven itself in an authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AuthenticatedSides {
    /// This host to the controller.
    Host,
    /// This host to the controller, and the controller to this host.
    Bidirectional,
}

impl fmt::Display for PathAuthentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sides, hash, dh_group } = self;
        let sides = match sides {
            AuthenticatedSides::Host => "host authenticated",
            AuthenticatedSides::Bidirectional => "host and controller authenticated",
        };
        write!(f, "{sides} ({hash}, {dh_group})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authentication_is_shown_as_json_and_in_words() {
        let shown = PathAuthentication {
            sides: AuthenticatedSides::Bidirectional,
            hash: "SHA-256".into(),
            dh_group: "ffdhe2048".into(),
        };
        assert_eq!(shown.to_string(), "host and controller authenticated (SHA-256, ffdhe2048)");
        let json = serde_json::json!({ "sides": "bidirectional", "hash": "SHA-256", "dh-group": "ffdhe2048" });
        assert_eq!(serde_json::to_value(&shown).unwrap(), json);
    }
}
