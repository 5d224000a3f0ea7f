//! Discovery sessions of the project's own host.

use monotonic::{Duration, Instant};
use nvme_tcp::host::{DiscoveryConfig, DiscoveryEvent, HostDiscovery, HostIdentity};
use nvme_tcp::wire::{ConnectField, DiscoveryEntry, Nqn};

use super::discovery::entry;
use crate::{AdminReply, QueueLimits, Subsystem, TargetQueue};

fn config() -> DiscoveryConfig {
    DiscoveryConfig {
        host: HostIdentity { hostnqn: Nqn::new("nqn.2024-01.com.example:host1").unwrap(), hostid: [9; 16] },
        subnqn: Nqn::discovery(),
        keep_alive_tmo: Some(Duration::from_secs(10)),
        command_timeout: Duration::from_secs(6),
    }
}

fn entries(count: usize) -> Vec<DiscoveryEntry> {
    (0..count).map(|n| DiscoveryEntry { trsvcid: (4420 + n).to_string(), ..entry(1) }).collect()
}

/// A connection to a discovery subsystem, with a clock.
struct Connection {
    host: HostDiscovery,
    queue: TargetQueue,
    subsystem: Subsystem,
    now: Instant,
}

impl Connection {
    fn new(config: DiscoveryConfig) -> Self {
        let now = Instant::now();
        let subsystem = Subsystem::discovery("0123456789".into(), QueueLimits::default(), 1);
        let host = HostDiscovery::new(config, now).unwrap();
        Self { host, queue: TargetQueue::new(QueueLimits::default()), subsystem, now }
    }

    fn exchange(&mut self) {
        loop {
            let mut bytes = Vec::new();
            self.host.fill_tx(&mut bytes);
            self.queue.receive(&bytes).unwrap();
            while let Some(command) = self.queue.poll_command() {
                match self.queue.identity() {
                    None => match self.subsystem.connect(self.now, 1, &command) {
                        Ok(identity) => self.queue.accept(command.token, identity, None),
                        Err((status, result)) => self.queue.complete(command.token, status, result),
                    },
                    Some(identity) => match self.subsystem.admin(self.now, identity.cntlid, command) {
                        AdminReply::Done { token, status, result } => self.queue.complete(token, status, result),
                        AdminReply::Data { token, data } => {
                            self.queue.complete_with_data(token, data.len() as u32, |part, out| {
                                out.extend_from_slice(&data[part]);
                                Ok(())
                            });
                        }
                        AdminReply::Deferred => {}
                        other => panic!("{other:?}"),
                    },
                }
            }
            if let Some(identity) = self.queue.identity()
                && let Some((token, status, result)) = self.subsystem.poll_event(identity.cntlid)
            {
                self.queue.complete(token, status, result);
            }
            let answer = self.queue.pending().to_vec();
            self.queue.sent(answer.len());
            if bytes.is_empty() && answer.is_empty() {
                return;
            }
            self.host.receive(self.now, &answer).unwrap();
        }
    }

    fn ports(&mut self) -> Vec<String> {
        self.exchange();
        match (self.host.poll_event(), self.host.poll_event()) {
            (Some(DiscoveryEvent::Log(log)), None) => log.entries.into_iter().map(|entry| entry.trsvcid).collect(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn each_change_of_the_log_is_reported_and_the_session_persists() {
    let mut connection = Connection::new(config());
    assert_eq!(connection.ports(), [""; 0]);
    for count in [3, 200, 1] {
        connection.subsystem.set_discovery_entries(entries(count));
        let expected: Vec<_> = entries(count).into_iter().map(|entry| entry.trsvcid).collect();
        assert_eq!(connection.ports(), expected);
        let identity = connection.queue.identity().unwrap();
        for _ in 0..20 {
            connection.now += Duration::from_secs(1);
            if connection.host.next_timeout().is_some_and(|at| at <= connection.now) {
                connection.host.handle_timeout(connection.now).unwrap();
            }
            connection.exchange();
            assert!(!connection.subsystem.is_expired(identity.cntlid, connection.now));
        }
    }
}

#[test]
fn the_discovery_subsystem_refuses_other_nqns() {
    let subnqn = Nqn::new("nqn.other").unwrap();
    let mut connection = Connection::new(DiscoveryConfig { subnqn, ..config() });
    let mut bytes = Vec::new();
    connection.host.fill_tx(&mut bytes);
    connection.queue.receive(&bytes).unwrap();
    let answer = connection.queue.pending().to_vec();
    connection.queue.sent(answer.len());
    connection.host.receive(connection.now, &answer).unwrap();
    bytes.clear();
    connection.host.fill_tx(&mut bytes);
    connection.queue.receive(&bytes).unwrap();
    let command = connection.queue.poll_command().unwrap();
    let refused = connection.subsystem.connect(connection.now, 1, &command);
    assert_eq!(refused, Err(ConnectField::Subnqn.invalid()));
}
