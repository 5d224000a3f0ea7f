//! The discovery controllers of a disk and what each of them has listed last.

use std::net::SocketAddr;
use std::time::SystemTime;

use mpath_api::PathAddress;
use mpath_api::types::{DiscoveryController, DiscoveryState};
use nvme_tcp::host::{DiscoveryLog, Referral, referrals, tcp_address};
use nvme_tcp::wire::{Nqn, SubsystemType};

use super::session::Source;
use crate::events::utc;

/// What is known of one discovery controller.
#[derive(Debug)]
struct Known {
    source: Source,
    /// Who refers to it; `None` of a configured one.
    referred_by: Option<PathAddress>,
    state: DiscoveryState,
    since: SystemTime,
    /// Its last log, and when it was read. It counts while the controller is lost, too.
    log: Option<(Box<DiscoveryLog>, SystemTime)>,
    /// Where the last connection led.
    peer: Option<SocketAddr>,
    last_error: Option<(String, SystemTime)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sources {
    known: Vec<Known>,
}

/// What has become of the set of discovery controllers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// To be asked from now on.
    pub(super) new: Vec<Source>,
    /// Nobody refers to them any more.
    pub(super) gone: Vec<Source>,
    /// There are more referrals than are followed.
    pub(super) cut: bool,
}

/// What the logs list of a subsystem.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) addresses: Vec<PathAddress>,
    /// One line for each record that is of no use, or could not be read.
    pub(super) skipped: Vec<String>,
}

/// What is new in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Novelty {
    /// The first one, or the first after the controller was lost.
    Connected,
    Changed,
    /// The same as before.
    None,
}

impl Known {
    fn new(source: Source, referred_by: Option<PathAddress>) -> Self {
        let since = SystemTime::now();
        let state = DiscoveryState::Connecting;
        Self { source, referred_by, state, since, log: None, peer: None, last_error: None }
    }

    fn set_state(&mut self, state: DiscoveryState) {
        if self.state != state {
            (self.state, self.since) = (state, SystemTime::now());
        }
    }
}

impl Sources {
    /// Those that are configured.
    pub(super) fn new(configured: impl IntoIterator<Item = PathAddress>) -> Self {
        let source = |address| Source { address, subnqn: Nqn::discovery() };
        Self { known: configured.into_iter().map(|address| Known::new(source(address), None)).collect() }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Source> {
        self.known.iter().map(|known| &known.source)
    }

    /// Whether the first attempt to ask one of them is not over.
    pub(super) fn any_untried(&self) -> bool {
        self.known.iter().any(|known| known.state == DiscoveryState::Connecting && known.last_error.is_none())
    }

    /// What went wrong, by address; nothing of those that have given a log.
    pub(super) fn failures(&self) -> impl Iterator<Item = (&PathAddress, &str)> {
        let never = self.known.iter().filter(|known| known.log.is_none());
        never.filter_map(|known| known.last_error.as_ref().map(|(error, _)| (&known.source.address, error.as_str())))
    }

    /// Takes a log over; `None` if the controller is not asked any more.
    pub(super) fn on_log(
        &mut self,
        source: &Source,
        log: Box<DiscoveryLog>,
        peer: SocketAddr,
        stays: bool,
    ) -> Option<Novelty> {
        let known = self.find(source)?;
        let novelty = match (known.state, &known.log) {
            (DiscoveryState::Connecting | DiscoveryState::Lost, _) | (_, None) => Novelty::Connected,
            (_, Some((last, _))) if **last == *log => Novelty::None,
            _ => Novelty::Changed,
        };
        known.set_state(if stays { DiscoveryState::Connected } else { DiscoveryState::Polled });
        known.log = Some((log, SystemTime::now()));
        known.peer = Some(peer);
        known.last_error = None;
        Some(novelty)
    }

    /// Notes a failure; whether it is another one than the last, which would be repeated otherwise.
    pub(super) fn on_lost(&mut self, source: &Source, error: String) -> bool {
        let Some(known) = self.find(source) else { return false };
        let news = known.last_error.as_ref().is_none_or(|(last, _)| *last != error);
        known.set_state(if known.log.is_some() { DiscoveryState::Lost } else { DiscoveryState::Connecting });
        known.last_error = Some((error, SystemTime::now()));
        news
    }

    fn find(&mut self, source: &Source) -> Option<&mut Known> {
        self.known.iter_mut().find(|known| known.source == *source)
    }

    /// Follows the referrals of the logs there are.
    pub(super) fn follow(&mut self) -> Moved {
        let configured = || self.known.iter().filter(|known| known.referred_by.is_none());
        let own: Vec<_> = configured().filter_map(|known| known.peer).collect();
        let (mut wanted, mut moved): (Vec<(Source, PathAddress)>, _) = (Vec::new(), Moved::default());
        for first in configured() {
            let Some((log, _)) = &first.log else { continue };
            // What it leads to is connected in the same way as it.
            let source = |referral: &Referral| Source {
                address: first.source.address.with_peer(referral.address),
                subnqn: referral.subnqn.clone(),
            };
            let log_of = |referral: &Referral| {
                let known = self.known.iter().find(|known| known.source == source(referral))?;
                known.log.as_ref().map(|(log, _)| &**log)
            };
            let found = referrals(log, &own, log_of);
            moved.cut |= found.cut;
            for referral in &found.found {
                let source = source(referral);
                let is_configured = configured().any(|known| known.source == source);
                if !is_configured && !wanted.iter().any(|(other, _)| *other == source) {
                    wanted.push((source, first.source.address.clone()));
                }
            }
        }
        let stays =
            |known: &Known| known.referred_by.is_none() || wanted.iter().any(|(source, _)| *source == known.source);
        moved.gone = self.known.extract_if(.., |known| !stays(known)).map(|known| known.source).collect();
        for (source, by) in wanted {
            if self.find(&source).is_none() {
                moved.new.push(source.clone());
                self.known.push(Known::new(source, Some(by)));
            }
        }
        moved
    }

    /// The addresses of `subsystem`, each once, in the order of controllers and records.
    pub(super) fn listed(&self, subsystem: &str) -> Listed {
        let mut listed = Listed::default();
        for known in &self.known {
            let Some((log, _)) = &known.log else { continue };
            let by = &known.source.address;
            let unreadable = log.unreadable.iter().map(|(at, error)| format!("{by}: record {at}: {error}"));
            listed.skipped.extend(unreadable);
            let of_use = |kind| matches!(kind, SubsystemType::NVM | SubsystemType::REFERRAL);
            for entry in log.entries.iter().filter(|entry| of_use(entry.subsystem)) {
                let is_path = entry.subsystem == SubsystemType::NVM;
                if is_path && entry.subnqn.as_str() != subsystem {
                    continue;
                }
                match tcp_address(entry) {
                    Ok(address) if is_path => {
                        let address = by.with_peer(address);
                        if !listed.addresses.contains(&address) {
                            listed.addresses.push(address);
                        }
                    }
                    Ok(_) => {}
                    Err(error) => {
                        let (traddr, trsvcid) = (&entry.traddr, &entry.trsvcid);
                        let what = if is_path { "path" } else { "referral" };
                        listed.skipped.push(format!("{by}: {what} to {traddr} {trsvcid}: {error}"));
                    }
                }
            }
        }
        listed
    }

    /// For the API.
    pub(super) fn shown(&self, disk: &str) -> Vec<DiscoveryController> {
        let show = |known: &Known| {
            let (log, read_at) = known.log.as_ref().map(|(log, at)| (log, utc(*at))).unzip();
            let (last_error, last_error_at) =
                known.last_error.as_ref().map(|(text, at)| (text.clone(), utc(*at))).unzip();
            DiscoveryController {
                disk: disk.into(),
                address: known.source.address.clone(),
                subnqn: known.source.subnqn.to_string(),
                referred_by: known.referred_by.clone(),
                state: known.state,
                since: utc(known.since),
                generation: log.map(|log| log.generation),
                records: log.map(|log| log.records() as u32),
                read_at,
                last_error,
                last_error_at,
            }
        };
        self.known.iter().map(show).collect()
    }
}

#[cfg(test)]
mod tests {
    use nvme_tcp::wire::{AddressFamily, CNTLID_ANY, DiscoveryEntry, SecurityType, TransportType};

    use super::*;

    const DISK: &str = "nqn.disk";

    fn entry(subsystem: SubsystemType, subnqn: &str, address: &str) -> DiscoveryEntry {
        let address: SocketAddr = address.parse().unwrap();
        DiscoveryEntry {
            transport: TransportType::TCP,
            family: AddressFamily::IPV4,
            subsystem,
            treq: 0,
            port_id: 1,
            cntlid: CNTLID_ANY,
            admin_queue_entries: 32,
            eflags: 0,
            trsvcid: address.port().to_string(),
            subnqn: subnqn.parse().unwrap(),
            traddr: address.ip().to_string(),
            security: SecurityType::NONE,
        }
    }

    fn path(address: &str) -> DiscoveryEntry {
        entry(SubsystemType::NVM, DISK, address)
    }

    fn refers(address: &str) -> DiscoveryEntry {
        entry(SubsystemType::REFERRAL, Nqn::discovery().as_str(), address)
    }

    fn address(text: &str) -> PathAddress {
        format!("tcp://{text}").parse().unwrap()
    }

    fn at(text: &str) -> Source {
        Source { address: address(text), subnqn: Nqn::discovery() }
    }

    fn give(sources: &mut Sources, from: &str, generation: u64, entries: Vec<DiscoveryEntry>) -> Option<Novelty> {
        let log = DiscoveryLog { generation, entries, unreadable: vec![] };
        sources.on_log(&at(from), Box::new(log), from.parse().unwrap(), true)
    }

    const A: &str = "192.0.2.1:8009";
    const B: &str = "192.0.2.2:8009";
    const C: &str = "192.0.2.3:8009";

    #[test]
    fn referrals_come_and_go_with_the_logs() {
        let mut sources = Sources::new([address(A)]);
        assert!(sources.any_untried());
        assert_eq!(give(&mut sources, A, 1, vec![path("192.0.2.9:4420"), refers(B)]), Some(Novelty::Connected));
        assert_eq!(sources.follow(), Moved { new: vec![at(B)], ..Moved::default() });
        assert_eq!(sources.follow(), Moved::default());
        // B refers back to A, to itself and to C.
        assert_eq!(
            give(&mut sources, B, 1, vec![refers(A), refers(B), refers(C), path("192.0.2.9:4421")]),
            Some(Novelty::Connected)
        );
        assert_eq!(sources.follow(), Moved { new: vec![at(C)], ..Moved::default() });
        give(&mut sources, C, 1, vec![refers(B), path("192.0.2.9:4420"), path("192.0.2.9:4422")]);
        assert_eq!(sources.follow(), Moved::default());
        assert!(!sources.any_untried());
        let expected = ["192.0.2.9:4420", "192.0.2.9:4421", "192.0.2.9:4422"].map(address);
        assert_eq!(sources.listed(DISK).addresses, expected);
        let by: Vec<_> = sources.shown("d").into_iter().map(|shown| shown.referred_by).collect();
        assert_eq!(by, [None, Some(address(A)), Some(address(A))]);
        // B and C refer to each other, but nobody leads there any more.
        assert_eq!(give(&mut sources, A, 2, vec![path("192.0.2.9:4420")]), Some(Novelty::Changed));
        assert_eq!(sources.follow(), Moved { gone: vec![at(B), at(C)], ..Moved::default() });
        assert_eq!(sources.listed(DISK).addresses, expected[..1]);
        assert_eq!(give(&mut sources, B, 3, vec![]), None, "what it still says is not heard");
    }

    #[test]
    fn what_a_lost_controller_listed_still_counts() {
        let mut sources = Sources::new([address(A), address(B)]);
        assert!(sources.on_lost(&at(B), "refused".into()) && !sources.on_lost(&at(B), "refused".into()));
        assert!(sources.any_untried());
        assert_eq!(sources.failures().collect::<Vec<_>>(), [(&address(B), "refused")]);
        give(&mut sources, A, 1, vec![path("192.0.2.9:4420"), refers(C)]);
        sources.follow();
        assert!(sources.on_lost(&at(A), "gone".into()));
        assert_eq!(sources.follow(), Moved::default());
        assert_eq!(sources.listed(DISK).addresses, [address("192.0.2.9:4420")]);
        let shown = sources.shown("d");
        assert_eq!((shown[0].state, shown[0].generation, shown[0].records), (DiscoveryState::Lost, Some(1), Some(2)));
        assert_eq!((shown[0].last_error.as_deref(), shown[1].state), (Some("gone"), DiscoveryState::Connecting));
        // It comes back with the same log.
        assert_eq!(give(&mut sources, A, 1, vec![path("192.0.2.9:4420"), refers(C)]), Some(Novelty::Connected));
        assert_eq!(give(&mut sources, A, 1, vec![path("192.0.2.9:4420"), refers(C)]), Some(Novelty::None));
    }

    #[test]
    fn what_is_of_no_use_is_told() {
        let mut sources = Sources::new([address(A)]);
        let mut rdma = path("192.0.2.9:4420");
        rdma.transport = TransportType::RDMA;
        let mut foreign = rdma.clone();
        foreign.subnqn = "nqn.other".parse().unwrap();
        let mut referral = refers(B);
        referral.treq = 1;
        give(&mut sources, A, 1, vec![rdma, foreign, referral, path("192.0.2.9:4421"), path("192.0.2.9:4421")]);
        let listed = sources.listed(DISK);
        assert_eq!(listed.addresses, [address("192.0.2.9:4421")]);
        assert_eq!(
            listed.skipped,
            [
                "tcp://192.0.2.1:8009: path to 192.0.2.9 4420: transport RDMA is not supported",
                "tcp://192.0.2.1:8009: referral to 192.0.2.2 8009: a secure channel (TLS) is required, which is not supported",
            ]
        );
        assert_eq!(sources.follow(), Moved::default());
    }

    #[test]
    fn a_configured_controller_is_nobodys_referral() {
        let mut sources = Sources::new([address(A), address(B)]);
        give(&mut sources, A, 1, vec![refers(B)]);
        assert_eq!(sources.follow(), Moved::default());
        assert_eq!(sources.shown("d")[1].referred_by, None);
    }
}
