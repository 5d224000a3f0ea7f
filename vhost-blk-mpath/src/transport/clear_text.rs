//! Decides: the end of a connection before its first answer hints at TLS (`lost`).
//!
//! Ports that have answered in clear text: such a port does not require TLS.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpath_config::PathAddress;

use super::error::TransportError;

/// The most ports that are remembered. A subsystem has fewer paths at a time.
const PORTS_MAX: usize = 256;

/// The ports of a subsystem, or of its discovery controllers, that have answered in clear text.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClearTextPorts(Arc<Mutex<HashSet<PathAddress>>>);

impl ClearTextPorts {
    /// One of the ports.
    pub(super) fn port(&self, address: &PathAddress) -> ClearTextPort {
        ClearTextPort { ports: self.clone(), address: address.clone(), is_answered: false }
    }

    fn answered(&self) -> MutexGuard<'_, HashSet<PathAddress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The port of one connection in clear text.
#[derive(Debug)]
pub(super) struct ClearTextPort {
    ports: ClearTextPorts,
    address: PathAddress,
    /// Whether the controller has sent anything on this connection.
    is_answered: bool,
}

impl ClearTextPort {
    /// The controller has sent something.
    pub(super) fn answer(&mut self) {
        if std::mem::replace(&mut self.is_answered, true) {
            return;
        }
        let mut answered = self.ports.answered();
        if answered.len() >= PORTS_MAX {
            answered.clear();
        }
        answered.insert(self.address.clone());
    }

    /// The end of the connection. A port that requires TLS ends it before its first answer.
    pub(super) fn lost(&self, error: TransportError) -> TransportError {
        let works = self.is_answered || self.ports.answered().contains(&self.address);
        if works { error } else { TransportError::Unanswered(error.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_port_that_never_answered_in_clear_text_may_require_tls() {
        let (ports, other) = (ClearTextPorts::default(), "tcp://192.0.2.2".parse().unwrap());
        let hints = |port: &ClearTextPort| port.lost(TransportError::Closed).to_string().contains("requires TLS");
        let address = "tcp://192.0.2.1".parse().unwrap();
        let mut port = ports.port(&address);
        assert!(hints(&port));
        port.answer();
        assert!(!hints(&port), "it has answered");
        assert!(!hints(&ports.port(&address)), "an earlier connection was answered: the target restarts");
        assert!(hints(&ports.port(&other)), "another port");
        assert!(hints(&ClearTextPorts::default().port(&address)), "another subsystem");
    }
}
