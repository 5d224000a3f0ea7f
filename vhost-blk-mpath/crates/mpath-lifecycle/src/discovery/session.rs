//! Decides: a session with a discovery controller connects in time, and ends.
//!
//! A session with a discovery controller, from its attempt to connect to its last log.
//!
//! ```text
//!  Connecting ── connected ──▶ Connected: logs ── not persistent, or shut down ──▶ Finished
//!      └── no socket in time ──────┴── fails ──▶ Lost
//! ```

use monotonic::{Duration, Instant};
use nvme_tcp::host::{ConfigError, DiscoveryConfig, DiscoveryError, DiscoveryEvent, HostDiscovery, HostIdentity};
use nvme_tcp::wire::Nqn;

use super::controller::POLL_INTERVAL;
use super::{Peer, SessionEvent};
use crate::settings::{CONNECT_MAX, SHUTDOWN_MAX};

/// Why a session has failed by itself.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("no answer within {} s", CONNECT_MAX.as_secs())]
    ConnectTimeout,
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Config(#[from] ConfigError),
}

#[derive(Debug)]
enum Phase {
    /// The socket is being connected.
    Connecting {
        until: Instant,
    },
    Connected(Box<Connected>),
}

#[derive(Debug)]
struct Connected {
    host: HostDiscovery,
    peer: Peer,
}

/// The host's side of a session. The caller connects a socket at once, and [polls](Self::poll) after each call, before it
/// asks for [`next_timeout`](Self::next_timeout).
#[derive(Debug)]
pub struct Session {
    config: DiscoveryConfig,
    phase: Phase,
    /// When the log is read again, if the controller reports no changes.
    read_again_at: Option<Instant>,
    /// When the session ends although the controller has not answered the shutdown.
    shutdown_until: Option<Instant>,
    /// The last event, once the session is over.
    last: Option<SessionEvent>,
}

impl Session {
    /// A session whose socket is about to be connected. With a keep-alive timeout the connection is persistent and logs
    /// of changes follow. Without it the session ends once the log was read.
    #[must_use]
    pub fn new(now: Instant, host: HostIdentity, subnqn: Nqn, keep_alive_tmo: Option<Duration>) -> Self {
        Self {
            config: DiscoveryConfig { host, subnqn, keep_alive_tmo, command_timeout: CONNECT_MAX },
            phase: Phase::Connecting { until: now + CONNECT_MAX },
            read_again_at: None,
            shutdown_until: None,
            last: None,
        }
    }

    /// Reports that the socket is connected to `peer`.
    pub fn connected(&mut self, now: Instant, peer: Peer) {
        match HostDiscovery::new(self.config.clone(), now) {
            Ok(host) => self.phase = Phase::Connected(Box::new(Connected { host, peer })),
            Err(error) => self.check(Err(error.into())),
        }
    }

    /// Reports that the socket could not be connected, or has failed. During a shutdown that is an orderly end.
    pub fn failed(&mut self, error: String) {
        self.end(error, false);
    }

    /// Appends the bytes to be sent. They count as given to the socket.
    pub fn fill_tx(&mut self, out: &mut Vec<u8>) {
        if let Phase::Connected(connected) = &mut self.phase {
            connected.host.fill_tx(out);
        }
    }

    /// Takes received bytes, split anywhere.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) {
        if let Phase::Connected(connected) = &mut self.phase {
            let outcome = connected.host.receive(now, bytes);
            self.check(outcome.map_err(SessionError::from));
        }
    }

    /// See [`HostDiscovery::term_req`].
    #[must_use]
    pub fn term_req(&self) -> Option<Vec<u8>> {
        if let Phase::Connected(connected) = &self.phase { connected.host.term_req() } else { None }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let of_phase = match &self.phase {
            Phase::Connecting { until } => Some(*until),
            Phase::Connected(connected) => connected.host.next_timeout(),
        };
        [of_phase, self.read_again_at, self.shutdown_until].into_iter().flatten().min()
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.shutdown_until.is_some_and(|until| until <= now) {
            self.last.get_or_insert(SessionEvent::Finished);
        }
        let outcome = match &mut self.phase {
            Phase::Connecting { until } if *until <= now => Err(SessionError::ConnectTimeout),
            Phase::Connecting { .. } => Ok(()),
            Phase::Connected(connected) => {
                let host = &mut connected.host;
                if self.read_again_at.take_if(|at| *at <= now).is_some() {
                    host.reread(now);
                }
                host.handle_timeout(now).map_err(SessionError::from)
            }
        };
        self.check(outcome);
    }

    /// The next event. After [`SessionEvent::Finished`] or [`SessionEvent::Lost`] the caller closes the socket.
    pub fn poll(&mut self, now: Instant) -> Option<SessionEvent> {
        let is_persistent = self.config.keep_alive_tmo.is_some();
        let Phase::Connected(connected) = &mut self.phase else { return self.last.take() };
        let Connected { host, peer } = &mut **connected;
        let (event, peer) = (host.poll_event(), *peer);
        let is_blind = is_persistent && self.shutdown_until.is_none() && !host.receives_change_events();
        self.read_again_at = is_blind.then(|| self.read_again_at.unwrap_or(now + POLL_INTERVAL));
        if event.is_some() && !is_persistent {
            self.shutdown(now);
        }
        match event {
            Some(DiscoveryEvent::Log(log)) => Some(SessionEvent::Log { log, peer }),
            Some(DiscoveryEvent::ShutdownComplete) => Some(SessionEvent::Finished),
            None => self.last.take(),
        }
    }

    /// Ends the session in order. [`SessionEvent::Finished`] follows, after [`SHUTDOWN_MAX`] at the latest.
    pub fn shutdown(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Connecting { .. } => _ = self.last.get_or_insert(SessionEvent::Finished),
            Phase::Connected(connected) if self.shutdown_until.is_none() => {
                self.shutdown_until = Some(now + SHUTDOWN_MAX);
                connected.host.shutdown(now);
            }
            Phase::Connected(_) => {}
        }
    }

    fn check(&mut self, outcome: Result<(), SessionError>) {
        if let Err(error) = outcome {
            let refuses_persistence = matches!(&error, SessionError::Discovery(error) if error.rejects_keep_alive());
            self.end(error.to_string(), refuses_persistence);
        }
    }

    fn end(&mut self, error: String, refuses_persistence: bool) {
        let is_ordered = self.shutdown_until.is_some();
        let lost = SessionEvent::Lost { error, refuses_persistence };
        self.last.get_or_insert(if is_ordered { SessionEvent::Finished } else { lost });
    }
}

#[cfg(test)]
mod tests {
    use nvme_tcp::wire::ConnectField;
    use nvme_tcp_target::{QueueLimits, Subsystem};

    use super::*;
    use crate::discovery::tests::{PATH, path};
    use crate::testing::{AdminTarget, settings};

    /// A session with this project's own discovery subsystem.
    struct Connection {
        now: Instant,
        session: Session,
        target: AdminTarget,
    }

    impl Connection {
        fn new(keep_alive_tmo: Option<Duration>) -> Self {
            let (now, host) = (Instant::now(), settings(1).controller.host);
            let mut session = Session::new(now, host, Nqn::discovery(), keep_alive_tmo);
            session.connected(now, Peer { address: ([192, 0, 2, 1], 8009).into(), tls_suite: None });
            let mut target = AdminTarget::new(Subsystem::discovery("1".into(), QueueLimits::default(), 1));
            target.subsystem.set_discovery_entries(vec![path(PATH)]);
            Self { now, session, target }
        }

        /// Moves bytes in both directions until none are left. Returns the events of the session.
        fn exchange(&mut self) -> Vec<SessionEvent> {
            let mut events = Vec::new();
            loop {
                events.extend(self.session.poll(self.now));
                let mut bytes = Vec::new();
                self.session.fill_tx(&mut bytes);
                let answer = self.target.exchange(self.now, &bytes);
                if bytes.is_empty() && answer.is_empty() {
                    return events;
                }
                self.session.receive(self.now, &answer);
            }
        }
    }

    fn records(event: &SessionEvent) -> usize {
        let SessionEvent::Log { log, .. } = event else { panic!("{event:?}") };
        log.records()
    }

    #[test]
    fn a_persistent_session_reports_changes_and_ends_in_order() {
        let mut connection = Connection::new(Some(Duration::from_secs(5)));
        let events = connection.exchange();
        assert_eq!(events.iter().map(records).collect::<Vec<_>>(), [1]);
        connection.target.subsystem.set_discovery_entries(Vec::new());
        let events = connection.exchange();
        assert_eq!(events.iter().map(records).collect::<Vec<_>>(), [0]);
        connection.session.shutdown(connection.now);
        assert!(matches!(connection.exchange()[..], [SessionEvent::Finished]));
    }

    #[test]
    fn a_session_that_is_not_persistent_ends_after_its_log() {
        let mut connection = Connection::new(None);
        let events = connection.exchange();
        assert!(matches!(events[..], [SessionEvent::Log { .. }, SessionEvent::Finished]), "{events:?}");
    }

    #[test]
    fn a_controller_that_reports_no_changes_is_polled() {
        let mut connection = Connection::new(Some(POLL_INTERVAL * 10));
        connection.target.accepts_event_requests = false;
        connection.exchange();
        connection.target.subsystem.set_discovery_entries(Vec::new());
        assert!(connection.exchange().is_empty());
        connection.now += POLL_INTERVAL;
        assert_eq!(connection.session.next_timeout(), Some(connection.now));
        connection.session.handle_timeout(connection.now);
        let events = connection.exchange();
        assert_eq!(events.iter().map(records).collect::<Vec<_>>(), [0]);
        assert_eq!(connection.session.next_timeout(), Some(connection.now + POLL_INTERVAL));
    }

    #[test]
    fn a_shutdown_ends_the_session_whatever_the_controller_does() {
        let mut connection = Connection::new(Some(Duration::from_secs(5)));
        connection.exchange();
        connection.session.shutdown(connection.now);
        connection.now += SHUTDOWN_MAX;
        assert_eq!(connection.session.next_timeout(), Some(connection.now));
        connection.session.handle_timeout(connection.now);
        assert!(matches!(connection.session.poll(connection.now), Some(SessionEvent::Finished)));
    }

    #[test]
    fn a_connection_that_fails_is_lost_unless_the_session_shuts_down() {
        for is_shutting_down in [false, true] {
            let mut connection = Connection::new(Some(Duration::from_secs(5)));
            connection.exchange();
            if is_shutting_down {
                connection.session.shutdown(connection.now);
            }
            connection.session.failed("reset".into());
            let event = connection.session.poll(connection.now);
            let is_lost = matches!(event, Some(SessionEvent::Lost { refuses_persistence: false, .. }));
            let has_finished = matches!(event, Some(SessionEvent::Finished));
            assert_eq!((is_lost, has_finished), (!is_shutting_down, is_shutting_down), "{event:?}");
        }
    }

    #[test]
    fn a_session_without_a_socket_in_time_is_lost_and_can_be_ended() {
        let (now, host) = (Instant::now(), settings(1).controller.host);
        let new = || Session::new(now, host.clone(), Nqn::discovery(), None);
        let mut session = new();
        assert_eq!(session.next_timeout(), Some(now + CONNECT_MAX));
        session.handle_timeout(now);
        assert!(session.poll(now).is_none());
        session.handle_timeout(now + CONNECT_MAX);
        let event = session.poll(now + CONNECT_MAX);
        assert!(
            matches!(&event, Some(SessionEvent::Lost { error, .. }) if error == "no answer within 5 s"),
            "{event:?}"
        );
        let mut session = new();
        session.shutdown(now);
        assert!(matches!(session.poll(now), Some(SessionEvent::Finished)));
    }

    #[test]
    fn a_refused_persistent_connection_is_recognised() {
        let mut connection = Connection::new(Some(Duration::from_secs(5)));
        let mut bytes = Vec::new();
        connection.session.fill_tx(&mut bytes);
        let queue = &mut connection.target.queue;
        queue.receive(&bytes).unwrap();
        connection.session.receive(connection.now, queue.pending());
        queue.sent(queue.pending().len());
        bytes.clear();
        connection.session.fill_tx(&mut bytes);
        queue.receive(&bytes).unwrap();
        let connect = queue.poll_command().unwrap();
        let (status, result) = ConnectField::Kato.invalid();
        queue.complete(connect.token, status, result);
        connection.session.receive(connection.now, queue.pending());
        let event = connection.session.poll(connection.now);
        assert!(matches!(event, Some(SessionEvent::Lost { refuses_persistence: true, .. })), "{event:?}");
    }
}
