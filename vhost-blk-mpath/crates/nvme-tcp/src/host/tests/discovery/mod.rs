//! Discovery sessions with a scripted controller.

mod controller;
mod referrals;
mod session;

use monotonic::{Duration, Instant};

use super::{Dice, host_identity};
use crate::host::{DiscoveryConfig, DiscoveryError, DiscoveryEvent, DiscoveryLog, HostDiscovery};
use crate::wire::{
    AddressFamily, CNTLID_ANY, DiscoveryEntry, DiscoveryHeader, Nqn, SecurityType, SubsystemType, TransportType,
};
use controller::Controller;

const KATO: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(6);

fn config() -> DiscoveryConfig {
    DiscoveryConfig {
        host: host_identity(),
        subnqn: Nqn::discovery(),
        keep_alive_tmo: Some(KATO),
        command_timeout: TIMEOUT,
    }
}

fn entry(subsystem: SubsystemType, subnqn: &str, address: &str) -> DiscoveryEntry {
    let address: std::net::SocketAddr = address.parse().unwrap();
    DiscoveryEntry {
        transport: TransportType::TCP,
        family: if address.is_ipv4() { AddressFamily::IPV4 } else { AddressFamily::IPV6 },
        subsystem,
        treq: 0,
        port_id: 1,
        cntlid: CNTLID_ANY,
        admin_queue_entries: 32,
        eflags: 0,
        trsvcid: address.port().to_string(),
        subnqn: Nqn::new(subnqn).unwrap(),
        traddr: address.ip().to_string(),
        security: SecurityType::NONE,
    }
}

fn entries(count: usize) -> Vec<DiscoveryEntry> {
    (0..count).map(|n| entry(SubsystemType::NVM, "nqn.disk", &format!("192.0.2.1:{}", 4420 + n))).collect()
}

/// The bytes of a log page.
fn page(generation: u64, entries: &[DiscoveryEntry]) -> Vec<u8> {
    let mut page = DiscoveryHeader { generation, records: entries.len() as u64 }.emit().to_vec();
    page.extend(entries.iter().flat_map(DiscoveryEntry::emit));
    page
}

/// Both ends of a connection, with a clock.
struct Session {
    host: HostDiscovery,
    controller: Controller,
    now: Instant,
    dice: Dice,
}

impl Session {
    fn with(config: DiscoveryConfig, change: impl FnOnce(&mut Controller)) -> Self {
        let now = Instant::now();
        let mut controller = Controller::new(page(1, &entries(2)));
        change(&mut controller);
        Self { host: HostDiscovery::new(config, now).unwrap(), controller, now, dice: Dice(1) }
    }

    /// Exchanges bytes until there are none. The clock stands still.
    fn exchange(&mut self) -> Result<(), DiscoveryError> {
        loop {
            let mut bytes = Vec::new();
            self.host.fill_tx(&mut bytes);
            self.controller.receive(&bytes);
            if bytes.is_empty() && self.controller.out.is_empty() {
                return Ok(());
            }
            let mut answer = std::mem::take(&mut self.controller.out);
            while !answer.is_empty() {
                let rest = answer.split_off(1 + self.dice.below(answer.len()));
                self.host.receive(self.now, &answer)?;
                answer = rest;
            }
        }
    }

    /// Advances the clock by `time`.
    fn pass(&mut self, time: Duration) -> Result<(), DiscoveryError> {
        let end = self.now + time;
        self.exchange()?;
        while let Some(at) = self.host.next_timeout().filter(|&at| at <= end) {
            assert!(at >= self.now, "a timeout in the past would spin");
            self.now = at;
            self.host.handle_timeout(at)?;
            self.exchange()?;
        }
        self.now = end;
        Ok(())
    }

    /// The log that arrives within a second, as the only event.
    fn log(&mut self) -> DiscoveryLog {
        self.pass(Duration::from_secs(1)).unwrap();
        match (self.host.poll_event(), self.host.poll_event()) {
            (Some(DiscoveryEvent::Log(log)), None) => *log,
            other => panic!("{other:?}"),
        }
    }

    fn failure(&mut self) -> DiscoveryError {
        let error = self.pass(Duration::from_secs(60)).unwrap_err();
        assert_eq!(self.host.receive(self.now, &[]), Err(error.clone()), "the error is permanent");
        assert_eq!((self.host.next_timeout(), self.host.receives_change_events()), (None, false));
        error
    }
}
