//! TLS of the connections to the target: the key of a run, and the controller's end of a connection.
//!
//! The host runs its shipping session. The target's socket encrypts and decrypts by itself, like a socket with TLS in the kernel.

mod controller;
mod records;

use std::sync::Arc;

use nvme_tcp::wire::Nqn;
use nvme_tls::psk::{Candidate, ConfiguredPsk, RetainedHash, Suite, candidates};
use nvme_tls::{KeyLookup, Session};

pub(crate) use self::controller::ControllerEnd;
pub(crate) use self::records::Received;

/// Both suites.
pub(crate) const SUITES: [Suite; 2] = [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384];

/// A refusal of TLS by a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsRefusal {
    /// The node does not know the identity of the host.
    UnknownIdentity,
    /// The node expects clear text, and answers in clear text.
    ClearText,
}

impl TlsRefusal {
    pub(crate) const ALL: [Self; 2] = [Self::UnknownIdentity, Self::ClearText];
}

/// The key of a run, which both ends have.
#[derive(Debug, Clone)]
pub(crate) struct TlsPlan {
    key: Candidate,
}

impl TlsPlan {
    pub(crate) fn new(suite: Suite, hostnqn: &Nqn, subnqn: &Nqn) -> Self {
        let hash = match suite {
            Suite::Aes128GcmSha256 => RetainedHash::Sha256,
            Suite::Aes256GcmSha384 => RetainedHash::Sha384,
        };
        let psk = ConfiguredPsk::new(hash, &vec![1; suite.psk_len()]).expect("a key of the right length");
        let identities = candidates(&psk, hostnqn, subnqn).expect("a key can be derived");
        Self { key: identities.into_iter().next().expect("a key has an identity") }
    }

    /// The host's end of a connection.
    pub(crate) fn host(&self) -> Session {
        Session::host(self.key.clone()).expect("OpenSSL has both suites")
    }

    /// The controller's end of a connection.
    pub(crate) fn controller(&self, knows_key: bool) -> ControllerEnd {
        let key = Key(knows_key.then(|| self.key.clone()));
        ControllerEnd::new(Session::controller(Arc::new(key)).expect("OpenSSL has both suites"))
    }
}

/// The only key of a controller, if it has one.
struct Key(Option<Candidate>);

impl KeyLookup for Key {
    fn find(&self, identity: &str) -> Option<Candidate> {
        self.0.clone().filter(|key| key.identity() == identity)
    }
}
