//! A session with a discovery controller on one connection, from its first byte to its last log.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nvme_tcp::host::{ConfigError, DiscoveryConfig, DiscoveryError, DiscoveryEvent, HostDiscovery, HostIdentity};
use nvme_tcp::wire::Nqn;

use super::SessionEvent;
use super::controller::POLL_INTERVAL;
use crate::settings::{CONNECT_MAX, SHUTDOWN_MAX};

/// The host's side of a connection to a discovery controller. The caller drives it like a [`HostDiscovery`] and
/// [polls](Self::poll) after each call, before it asks for [`next_timeout`](Self::next_timeout).
#[derive(Debug)]
pub struct Session {
    host: HostDiscovery,
    peer: SocketAddr,
    persistent: bool,
    /// When the log is read again, if the controller reports no changes.
    read_again_at: Option<Instant>,
    /// When the session ends although the controller has not answered the shutdown.
    shutdown_until: Option<Instant>,
    refuses_persistence: bool,
    is_over: bool,
}

impl Session {
    /// A session on a new connection to `peer`. With a keep-alive timeout the connection is persistent and logs of
    /// changes follow. Without it the session ends once the log was read.
    pub fn new(
        now: Instant,
        peer: SocketAddr,
        host: HostIdentity,
        subnqn: Nqn,
        keep_alive_tmo: Option<Duration>,
    ) -> Result<Self, ConfigError> {
        let config = DiscoveryConfig { host, subnqn, keep_alive_tmo, command_timeout: CONNECT_MAX };
        Ok(Self {
            host: HostDiscovery::new(config, now)?,
            peer,
            persistent: keep_alive_tmo.is_some(),
            read_again_at: None,
            shutdown_until: None,
            refuses_persistence: false,
            is_over: false,
        })
    }

    /// Appends the bytes to be sent. They count as given to the socket.
    pub fn fill_tx(&mut self, out: &mut Vec<u8>) {
        self.host.fill_tx(out);
    }

    /// Takes received bytes, split anywhere. After an error [`lost`](Self::lost) gives the event to report.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), DiscoveryError> {
        let outcome = self.host.receive(now, bytes);
        self.look_at(outcome)
    }

    /// See [`HostDiscovery::term_req`].
    #[must_use]
    pub fn term_req(&self) -> Option<Vec<u8>> {
        self.host.term_req()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        [self.host.next_timeout(), self.read_again_at, self.shutdown_until].into_iter().flatten().min()
    }

    /// Handles the passing of time. After an error [`lost`](Self::lost) gives the event to report.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), DiscoveryError> {
        if self.shutdown_until.take_if(|until| *until <= now).is_some() {
            self.is_over = true;
        }
        if self.read_again_at.take_if(|at| *at <= now).is_some() {
            self.host.reread(now);
        }
        let outcome = self.host.handle_timeout(now);
        self.look_at(outcome)
    }

    /// The next event. [`SessionEvent::Finished`] is the last: the connection can be closed.
    pub fn poll(&mut self, now: Instant) -> Option<SessionEvent> {
        let event = self.host.poll_event();
        if event.is_some() && !self.persistent {
            self.shutdown(now);
        }
        let is_blind = self.persistent && self.shutdown_until.is_none() && !self.host.receives_change_events();
        self.read_again_at = is_blind.then(|| self.read_again_at.unwrap_or(now + POLL_INTERVAL));
        match event {
            Some(DiscoveryEvent::Log(log)) => Some(SessionEvent::Log { log, peer: self.peer }),
            Some(DiscoveryEvent::ShutdownComplete) => Some(SessionEvent::Finished),
            None => self.is_over.then_some(SessionEvent::Finished),
        }
    }

    /// Begins the shutdown of the controller. [`SessionEvent::Finished`] follows, after [`SHUTDOWN_MAX`] at the
    /// latest.
    pub fn shutdown(&mut self, now: Instant) {
        if self.shutdown_until.is_none() {
            self.shutdown_until = Some(now + SHUTDOWN_MAX);
            self.host.shutdown(now);
        }
    }

    /// The event to report when the connection has failed with `error`. During a shutdown a failure is an orderly
    /// end.
    #[must_use]
    pub fn lost(&self, error: String) -> SessionEvent {
        if self.shutdown_until.is_some() || self.is_over {
            return SessionEvent::Finished;
        }
        SessionEvent::Lost { error, refuses_persistence: self.refuses_persistence }
    }

    fn look_at(&mut self, outcome: Result<(), DiscoveryError>) -> Result<(), DiscoveryError> {
        outcome.inspect_err(|error| self.refuses_persistence = error.rejects_keep_alive())
    }
}

#[cfg(test)]
mod tests {
    use nvme_tcp::target::{QueueLimits, Subsystem};
    use nvme_tcp::wire::ConnectField;

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
            let peer = ([192, 0, 2, 1], 8009).into();
            let session = Session::new(now, peer, host, Nqn::discovery(), keep_alive_tmo).unwrap();
            let mut target = AdminTarget::new(Subsystem::discovery("1".into(), QueueLimits::default(), 1));
            target.subsystem.set_discovery_entries(vec![path(PATH)]);
            Self { now, session, target }
        }

        /// Moves bytes in both directions until none are left. Returns the events of the session.
        fn exchange(&mut self) -> Result<Vec<SessionEvent>, DiscoveryError> {
            let mut events = Vec::new();
            loop {
                events.extend(self.session.poll(self.now));
                let mut bytes = Vec::new();
                self.session.fill_tx(&mut bytes);
                let answer = self.target.exchange(self.now, &bytes);
                if bytes.is_empty() && answer.is_empty() {
                    return Ok(events);
                }
                self.session.receive(self.now, &answer)?;
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
        let events = connection.exchange().unwrap();
        assert_eq!(events.iter().map(records).collect::<Vec<_>>(), [1]);
        connection.target.subsystem.set_discovery_entries(Vec::new());
        let events = connection.exchange().unwrap();
        assert_eq!(events.iter().map(records).collect::<Vec<_>>(), [0]);
        connection.session.shutdown(connection.now);
        assert!(matches!(connection.exchange().unwrap()[..], [SessionEvent::Finished]));
    }

    #[test]
    fn a_session_that_is_not_persistent_ends_after_its_log() {
        let mut connection = Connection::new(None);
        let events = connection.exchange().unwrap();
        assert!(matches!(events[..], [SessionEvent::Log { .. }, SessionEvent::Finished]), "{events:?}");
    }

    #[test]
    fn a_controller_that_reports_no_changes_is_polled() {
        let mut connection = Connection::new(Some(POLL_INTERVAL * 10));
        connection.target.accepts_event_requests = false;
        connection.exchange().unwrap();
        connection.target.subsystem.set_discovery_entries(Vec::new());
        assert!(connection.exchange().unwrap().is_empty());
        connection.now += POLL_INTERVAL;
        assert_eq!(connection.session.next_timeout(), Some(connection.now));
        connection.session.handle_timeout(connection.now).unwrap();
        let events = connection.exchange().unwrap();
        assert_eq!(events.iter().map(records).collect::<Vec<_>>(), [0]);
        assert_eq!(connection.session.next_timeout(), Some(connection.now + POLL_INTERVAL));
    }

    #[test]
    fn a_shutdown_ends_the_session_whatever_the_controller_does() {
        let mut connection = Connection::new(Some(Duration::from_secs(5)));
        connection.exchange().unwrap();
        assert!(matches!(
            connection.session.lost("reset".into()),
            SessionEvent::Lost { refuses_persistence: false, .. }
        ));
        connection.session.shutdown(connection.now);
        assert!(matches!(connection.session.lost("reset".into()), SessionEvent::Finished));
        connection.now += SHUTDOWN_MAX;
        assert_eq!(connection.session.next_timeout(), Some(connection.now));
        connection.session.handle_timeout(connection.now).unwrap();
        assert!(matches!(connection.session.poll(connection.now), Some(SessionEvent::Finished)));
    }

    #[test]
    fn a_refused_persistent_connection_is_recognised() {
        let mut connection = Connection::new(Some(Duration::from_secs(5)));
        let mut bytes = Vec::new();
        connection.session.fill_tx(&mut bytes);
        let queue = &mut connection.target.queue;
        queue.receive(&bytes).unwrap();
        connection.session.receive(connection.now, queue.pending()).unwrap();
        queue.sent(queue.pending().len());
        bytes.clear();
        connection.session.fill_tx(&mut bytes);
        queue.receive(&bytes).unwrap();
        let connect = queue.poll_command().unwrap();
        let (status, result) = ConnectField::Kato.invalid();
        queue.complete(connect.token, status, result);
        connection.session.receive(connection.now, queue.pending()).unwrap_err();
        assert!(matches!(
            connection.session.lost("refused".into()),
            SessionEvent::Lost { refuses_persistence: true, .. }
        ));
    }
}
