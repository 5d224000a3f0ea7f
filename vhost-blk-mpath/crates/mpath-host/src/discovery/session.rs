//! A session with a discovery controller, on a connection: from its first byte to its last log.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nvme_tcp::host::{ConfigError, DiscoveryConfig, DiscoveryError, DiscoveryEvent, HostDiscovery, HostIdentity};
use nvme_tcp::wire::Nqn;

use super::SessionNews;
use super::controller::ASK_AGAIN;
use crate::{CONNECT_MAX, LEAVE_MAX};

/// The host's side of a connection to a discovery controller. It is driven as a [`HostDiscovery`] is, and
/// [polled](Self::poll) after each call before [`next_timeout`](Self::next_timeout) is asked.
#[derive(Debug)]
pub struct Session {
    host: HostDiscovery,
    peer: SocketAddr,
    stays: bool,
    /// When the log is read again, if the controller does not tell of changes.
    read_again_at: Option<Instant>,
    /// It ends, whatever the controller says, at this time.
    leaves_until: Option<Instant>,
    refuses_to_stay: bool,
    is_over: bool,
}

impl Session {
    /// A session on a fresh connection to `peer`. With a keep-alive timeout the connection stays and news of changes follow;
    /// without, the session is over when the log was read.
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
            stays: keep_alive_tmo.is_some(),
            read_again_at: None,
            leaves_until: None,
            refuses_to_stay: false,
            is_over: false,
        })
    }

    /// Appends everything ready to leave. What is appended counts as handed to the socket.
    pub fn fill_tx(&mut self, out: &mut Vec<u8>) {
        self.host.fill_tx(out);
    }

    /// Takes bytes off the connection, broken anywhere. After an error [`lost`](Self::lost) says what it means.
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
        [self.host.next_timeout(), self.read_again_at, self.leaves_until].into_iter().flatten().min()
    }

    /// Time has come, or gone. After an error [`lost`](Self::lost) says what it means.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), DiscoveryError> {
        if self.leaves_until.take_if(|until| *until <= now).is_some() {
            self.is_over = true;
        }
        if self.read_again_at.take_if(|at| *at <= now).is_some() {
            self.host.reread(now);
        }
        let outcome = self.host.handle_timeout(now);
        self.look_at(outcome)
    }

    /// What it has to say next. [`SessionNews::Asked`] is the last: the connection can be closed.
    pub fn poll(&mut self, now: Instant) -> Option<SessionNews> {
        let event = self.host.poll_event();
        if event.is_some() && !self.stays {
            self.leave(now);
        }
        let is_blind = self.stays && self.leaves_until.is_none() && !self.host.receives_change_events();
        self.read_again_at = is_blind.then(|| self.read_again_at.unwrap_or(now + ASK_AGAIN));
        match event {
            Some(DiscoveryEvent::Log(log)) => Some(SessionNews::Log { log, peer: self.peer }),
            Some(DiscoveryEvent::ShutdownComplete) => Some(SessionNews::Asked),
            None => self.is_over.then_some(SessionNews::Asked),
        }
    }

    /// Tells the controller that the host leaves. [`SessionNews::Asked`] follows, after [`LEAVE_MAX`] at the latest.
    pub fn leave(&mut self, now: Instant) {
        if self.leaves_until.is_none() {
            self.leaves_until = Some(now + LEAVE_MAX);
            self.host.shutdown(now);
        }
    }

    /// What it means that the connection is over, for `error`. One that was being left owes nothing any more.
    #[must_use]
    pub fn lost(&self, error: String) -> SessionNews {
        if self.leaves_until.is_some() || self.is_over {
            return SessionNews::Asked;
        }
        SessionNews::Lost { error, refuses_to_stay: self.refuses_to_stay }
    }

    fn look_at(&mut self, outcome: Result<(), DiscoveryError>) -> Result<(), DiscoveryError> {
        outcome.inspect_err(|error| self.refuses_to_stay = error.rejects_keep_alive())
    }
}

#[cfg(test)]
mod tests {
    use nvme_tcp::target::{AdminReply, QueueLimits, Subsystem, TargetQueue};
    use nvme_tcp::wire::{AdminCommand, ConnectField, Status};

    use super::*;
    use crate::discovery::tests::{PATH, path};
    use crate::testing::settings;

    /// A session with this project's own discovery subsystem.
    struct Connection {
        now: Instant,
        session: Session,
        queue: TargetQueue,
        subsystem: Subsystem,
        /// The subsystem takes events to tell of, and does.
        tells: bool,
    }

    impl Connection {
        fn new(keep_alive_tmo: Option<Duration>) -> Self {
            let (now, host) = (Instant::now(), settings(1).controller.host);
            let peer = ([192, 0, 2, 1], 8009).into();
            let session = Session::new(now, peer, host, Nqn::discovery(), keep_alive_tmo).unwrap();
            let mut subsystem = Subsystem::discovery("1".into(), QueueLimits::default(), 1);
            subsystem.set_discovery_entries(vec![path(PATH)]);
            Self { now, session, queue: TargetQueue::new(QueueLimits::default()), subsystem, tells: true }
        }

        /// Moves bytes until there are none: what the session says meanwhile.
        fn exchange(&mut self) -> Result<Vec<SessionNews>, DiscoveryError> {
            let mut news = Vec::new();
            loop {
                news.extend(self.session.poll(self.now));
                let mut bytes = Vec::new();
                self.session.fill_tx(&mut bytes);
                self.queue.receive(&bytes).unwrap();
                self.answer();
                let answer = self.queue.pending().to_vec();
                self.queue.sent(answer.len());
                if bytes.is_empty() && answer.is_empty() {
                    return Ok(news);
                }
                self.session.receive(self.now, &answer)?;
            }
        }

        fn answer(&mut self) {
            while let Some(command) = self.queue.poll_command() {
                let Some(identity) = self.queue.identity() else {
                    let identity = self.subsystem.connect(self.now, 1, &command).unwrap();
                    self.queue.accept(command.token, identity);
                    continue;
                };
                if !self.tells && AdminCommand::parse(&command.sqe) == Ok(AdminCommand::AsyncEventRequest) {
                    self.queue.complete(command.token, Status::INVALID_OPCODE, 0);
                    continue;
                }
                match self.subsystem.admin(self.now, identity.cntlid, command) {
                    AdminReply::Done { token, status, result } => self.queue.complete(token, status, result),
                    AdminReply::Data { token, data } => {
                        self.queue.complete_with_data(token, data.len() as u32, |offset, part| {
                            part.copy_from_slice(&data[offset as usize..][..part.len()]);
                            Ok(())
                        });
                    }
                    AdminReply::Shutdown { token } => self.queue.complete(token, Status::SUCCESS, 0),
                    AdminReply::Deferred => {}
                    AdminReply::ResetController { .. } => panic!("nobody asked for that"),
                }
            }
            if let Some(identity) = self.queue.identity()
                && let Some((token, status, result)) = self.subsystem.poll_event(identity.cntlid)
            {
                self.queue.complete(token, status, result);
            }
        }
    }

    fn records(news: &SessionNews) -> usize {
        let SessionNews::Log { log, .. } = news else { panic!("{news:?}") };
        log.records()
    }

    #[test]
    fn one_that_stays_hears_of_changes_and_leaves_in_order() {
        let mut connection = Connection::new(Some(Duration::from_secs(5)));
        let news = connection.exchange().unwrap();
        assert_eq!(news.iter().map(records).collect::<Vec<_>>(), [1]);
        connection.subsystem.set_discovery_entries(Vec::new());
        let news = connection.exchange().unwrap();
        assert_eq!(news.iter().map(records).collect::<Vec<_>>(), [0]);
        connection.session.leave(connection.now);
        assert!(matches!(connection.exchange().unwrap()[..], [SessionNews::Asked]));
    }

    #[test]
    fn one_that_does_not_stay_is_over_when_its_log_was_read() {
        let mut connection = Connection::new(None);
        let news = connection.exchange().unwrap();
        assert!(matches!(news[..], [SessionNews::Log { .. }, SessionNews::Asked]), "{news:?}");
    }

    #[test]
    fn a_controller_that_does_not_tell_of_changes_is_asked_again() {
        let mut connection = Connection::new(Some(ASK_AGAIN * 10));
        connection.tells = false;
        connection.exchange().unwrap();
        connection.subsystem.set_discovery_entries(Vec::new());
        assert!(connection.exchange().unwrap().is_empty());
        connection.now += ASK_AGAIN;
        assert_eq!(connection.session.next_timeout(), Some(connection.now));
        connection.session.handle_timeout(connection.now).unwrap();
        let news = connection.exchange().unwrap();
        assert_eq!(news.iter().map(records).collect::<Vec<_>>(), [0]);
        assert_eq!(connection.session.next_timeout(), Some(connection.now + ASK_AGAIN));
    }

    #[test]
    fn one_that_is_being_left_is_over_whatever_the_controller_does() {
        let mut connection = Connection::new(Some(Duration::from_secs(5)));
        connection.exchange().unwrap();
        assert!(matches!(connection.session.lost("reset".into()), SessionNews::Lost { refuses_to_stay: false, .. }));
        connection.session.leave(connection.now);
        assert!(matches!(connection.session.lost("reset".into()), SessionNews::Asked));
        connection.now += LEAVE_MAX;
        assert_eq!(connection.session.next_timeout(), Some(connection.now));
        connection.session.handle_timeout(connection.now).unwrap();
        assert!(matches!(connection.session.poll(connection.now), Some(SessionNews::Asked)));
    }

    #[test]
    fn a_controller_that_keeps_no_connections_says_so() {
        let mut connection = Connection::new(Some(Duration::from_secs(5)));
        let mut bytes = Vec::new();
        connection.session.fill_tx(&mut bytes);
        connection.queue.receive(&bytes).unwrap();
        connection.session.receive(connection.now, connection.queue.pending()).unwrap();
        connection.queue.sent(connection.queue.pending().len());
        bytes.clear();
        connection.session.fill_tx(&mut bytes);
        connection.queue.receive(&bytes).unwrap();
        let connect = connection.queue.poll_command().unwrap();
        let (status, result) = ConnectField::Kato.invalid();
        connection.queue.complete(connect.token, status, result);
        connection.session.receive(connection.now, connection.queue.pending()).unwrap_err();
        assert!(matches!(connection.session.lost("refused".into()), SessionNews::Lost { refuses_to_stay: true, .. }));
    }
}
