use std::cell::Cell;
use std::hash::Hasher;

use nvme_tcp::wire::{AddressFamily, CNTLID_ANY, DiscoveryEntry, SecurityType, SubsystemType, TransportType};

use super::*;

const DISK: &str = "nqn.disk";
const RECONNECT_DELAY: Duration = Duration::from_secs(2);

const A: &str = "192.0.2.1:8009";
const B: &str = "192.0.2.2:8009";
const C: &str = "192.0.2.3:8009";
pub(super) const PATH: &str = "192.0.2.9:4420";

fn entry(subsystem: SubsystemType, subnqn: &str, address: &str) -> DiscoveryEntry {
    let address = at(address);
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

pub(super) fn path(address: &str) -> DiscoveryEntry {
    entry(SubsystemType::NVM, DISK, address)
}

fn refers(address: &str) -> DiscoveryEntry {
    entry(SubsystemType::REFERRAL, Nqn::discovery().as_str(), address)
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn peer(text: &str) -> Peer {
    Peer { address: at(text), tls_suite: None }
}

/// The discovery of a disk, and the sessions that it has started.
struct Driver {
    now: Instant,
    discovery: Discovery<SocketAddr>,
    /// The running sessions with their addresses, and whether they are persistent.
    sessions: Vec<(SessionId, SocketAddr, bool)>,
}

impl Driver {
    fn new(configured: &[&str]) -> Self {
        Self::with_tls(configured, TlsUse::default())
    }

    fn with_tls(configured: &[&str], tls: TlsUse) -> Self {
        let now = Instant::now();
        let configured = configured.iter().map(|text| at(text));
        let discovery = Discovery::new(now, DISK.into(), tls, RECONNECT_DELAY, configured, reachable, vec![]);
        let mut driver = Self { now, discovery, sessions: Vec::new() };
        assert_eq!(driver.act(), []);
        driver
    }

    /// Starts and ends sessions. Returns the actions that report something.
    fn act(&mut self) -> Vec<Action<SocketAddr>> {
        let mut reported = Vec::new();
        while let Some(action) = self.discovery.poll(self.now) {
            match action {
                Action::Start { session, source, persistent } => {
                    self.sessions.push((session, source.address, persistent));
                }
                Action::End { session } => self.sessions.retain(|(other, ..)| *other != session),
                other => reported.push(other),
            }
        }
        self.discovery.first_logs_are_done(self.now);
        reported
    }

    /// The addresses of the running sessions, and whether they are persistent.
    fn asks(&self) -> Vec<(SocketAddr, bool)> {
        self.sessions.iter().map(|(_, address, persistent)| (*address, *persistent)).collect()
    }

    fn hear(&mut self, from: &str, event: SessionEvent) -> Vec<Action<SocketAddr>> {
        let index = self.sessions.iter().position(|(_, address, _)| *address == at(from)).expect("a session");
        let session = self.sessions[index].0;
        if !matches!(event, SessionEvent::Log { .. }) {
            self.sessions.remove(index);
        }
        self.discovery.session_event(self.now, session, event);
        self.act()
    }

    fn log(&mut self, from: &str, generation: u64, entries: Vec<DiscoveryEntry>) -> Vec<Action<SocketAddr>> {
        let log = Box::new(DiscoveryLog { generation, entries, unreadable: vec![] });
        self.hear(from, SessionEvent::Log { log, peer: peer(from) })
    }

    fn lost(&mut self, from: &str, error: &str, refuses_persistence: bool) -> Vec<Action<SocketAddr>> {
        self.hear(from, SessionEvent::Lost { error: error.into(), refuses_persistence })
    }

    fn pass(&mut self, time: Duration) -> Vec<Action<SocketAddr>> {
        self.now += time;
        self.act()
    }

    fn states(&self) -> Vec<ControllerState> {
        self.discovery.controllers().iter().map(|controller| controller.state).collect()
    }
}

fn read(from: &str, was_lost: bool, records: usize, generation: u64) -> [Action<SocketAddr>; 1] {
    [Action::LogChanged { at: at(from), was_lost, records, generation }]
}

fn lost(from: &str, error: &str) -> [Action<SocketAddr>; 1] {
    [Action::Lost { at: at(from), error: error.into() }]
}

#[test]
fn referrals_come_and_go_with_the_logs() {
    let mut driver = Driver::new(&[A]);
    assert!(!driver.discovery.first_logs_are_done(driver.now));
    assert_eq!(driver.log(A, 1, vec![path(PATH), refers(B)]), read(A, true, 2, 1));
    assert_eq!(driver.asks(), [(at(A), true), (at(B), true)]);
    // B refers back to A, to itself and to C.
    assert_eq!(driver.log(B, 1, vec![refers(A), refers(B), refers(C), path("192.0.2.9:4421")]), read(B, true, 4, 1));
    assert_eq!(driver.asks(), [(at(A), true), (at(B), true), (at(C), true)]);
    assert!(!driver.discovery.first_logs_are_done(driver.now));
    driver.log(C, 1, vec![refers(B), path(PATH), path("192.0.2.9:4422")]);
    assert_eq!(driver.asks().len(), 3);
    assert!(driver.discovery.first_logs_are_done(driver.now));
    let expected = [PATH, "192.0.2.9:4421", "192.0.2.9:4422"].map(at);
    assert_eq!(driver.discovery.listed(), expected);
    let by: Vec<_> = driver.discovery.controllers().iter().map(|controller| controller.referred_by).collect();
    assert_eq!(by, [None, Some(at(A)), Some(at(A))]);
    // B and C refer to each other, but no configured controller leads there any more.
    let (of_b, ..) = driver.sessions[1];
    assert_eq!(driver.log(A, 2, vec![path(PATH)]), read(A, false, 1, 2));
    assert_eq!(driver.asks(), [(at(A), true)]);
    assert_eq!(driver.discovery.listed(), expected[..1]);
    // Later events of B's old session are ignored, even when B is asked again.
    driver.log(A, 3, vec![path(PATH), refers(B)]);
    let log = Box::new(DiscoveryLog { generation: 9, entries: vec![path("192.0.2.9:4429")], unreadable: vec![] });
    driver.discovery.session_event(driver.now, of_b, SessionEvent::Log { log, peer: peer(B) });
    assert_eq!(driver.act(), []);
    assert_eq!(driver.discovery.listed(), expected[..1]);
}

#[test]
fn the_last_log_of_a_lost_controller_counts() {
    let mut driver = Driver::new(&[A, B]);
    assert_eq!(driver.lost(B, "refused", false), lost(B, "refused"));
    assert!(!driver.discovery.first_logs_are_done(driver.now));
    driver.log(A, 1, vec![path(PATH), refers(C)]);
    assert_eq!(driver.lost(A, "gone", false), lost(A, "gone"));
    assert_eq!(driver.discovery.listed(), [at(PATH)]);
    assert_eq!(driver.asks(), [(at(C), true)], "A's referral stays");
    assert_eq!(driver.states(), [ControllerState::Lost, ControllerState::Connecting, ControllerState::Connecting]);
    assert_eq!(driver.discovery.controllers()[0].last_error, Some(("gone".into(), driver.now)));
    // The same error is not reported again.
    driver.pass(RECONNECT_DELAY);
    assert_eq!(driver.lost(B, "refused", false), []);
    // A comes back with the same log.
    assert_eq!(driver.log(A, 1, vec![path(PATH), refers(C)]), read(A, true, 2, 1));
    assert_eq!(driver.log(A, 1, vec![path(PATH), refers(C)]), []);
    assert_eq!(driver.discovery.controllers()[0].last_error, None);
}

#[test]
fn unusable_records_are_reported() {
    let mut driver = Driver::new(&[A]);
    let mut rdma = path(PATH);
    rdma.transport = TransportType::RDMA;
    let mut foreign = rdma.clone();
    foreign.subnqn = "nqn.other".parse().unwrap();
    let reported = driver.log(A, 1, vec![rdma, foreign, path("192.0.2.9:4421"), path("192.0.2.9:4421")]).split_off(1);
    let line = "192.0.2.1:8009: cannot use the path to 192.0.2.9 4420: transport RDMA is not supported";
    assert_eq!(reported, [Action::Warn(line.into())]);
    assert_eq!(driver.discovery.listed(), [at("192.0.2.9:4421")]);
}

#[test]
fn records_that_require_tls_count_only_with_a_key() {
    for (paths, discovery) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut driver = Driver::with_tls(&[A], TlsUse { paths, discovery });
        let requires = |entry| DiscoveryEntry { treq: DiscoveryEntry::TREQ_REQUIRED, ..entry };
        let reported = driver.log(A, 1, vec![requires(path(PATH)), requires(refers(B)), path(C)]).split_off(1);
        let unusable = [
            (paths, "the path to 192.0.2.9 4420: the record requires TLS; set tls-key-file"),
            (discovery, "the referral to 192.0.2.2 8009: the record requires TLS; set discovery-tls-key-file"),
        ];
        let unusable = unusable.iter().filter(|(has_tls, _)| !has_tls);
        let lines = unusable.map(|(_, line)| Action::Warn(format!("192.0.2.1:8009: cannot use {line}")));
        assert_eq!(reported, lines.collect::<Vec<_>>());
        assert_eq!(driver.discovery.controllers()[0].paths_without_key, usize::from(!paths));
        let listed = if paths { vec![at(PATH), at(C)] } else { vec![at(C)] };
        assert_eq!((driver.discovery.listed(), driver.asks().len()), (listed, 1 + usize::from(discovery)));
    }
}

#[test]
fn a_configured_controller_is_not_treated_as_a_referral() {
    let mut driver = Driver::new(&[A, B]);
    driver.log(A, 1, vec![refers(B)]);
    assert_eq!(driver.asks(), [(at(A), true), (at(B), true)]);
    assert_eq!(driver.discovery.controllers()[1].referred_by, None);
    driver.log(A, 2, vec![]);
    assert_eq!(driver.asks().len(), 2);
}

#[test]
fn a_lost_controller_is_asked_again_and_a_silent_session_is_ended() {
    let mut driver = Driver::new(&[A]);
    driver.lost(A, "refused", false);
    assert_eq!((driver.pass(RECONNECT_DELAY / 2), driver.asks()), (vec![], vec![]));
    assert_eq!(driver.discovery.next_timeout(), Some(driver.now + RECONNECT_DELAY / 2));
    assert_eq!((driver.pass(RECONNECT_DELAY / 2), driver.asks()), (vec![], vec![(at(A), true)]));
    assert_eq!(driver.discovery.next_timeout(), Some(driver.now + FIRST_LOG_MAX));
    assert_eq!(driver.pass(FIRST_LOG_MAX / 2), []);
    assert_eq!(driver.pass(FIRST_LOG_MAX / 2), lost(A, "no discovery log within 10 s"));
    assert_eq!(driver.asks(), []);
    driver.pass(RECONNECT_DELAY);
    driver.log(A, 1, vec![]);
    assert_eq!(driver.discovery.next_timeout(), None, "a persistent connection reports changes");
}

#[test]
fn the_wait_for_first_logs_has_a_limit() {
    let mut driver = Driver::new(&[A, B]);
    driver.log(A, 1, vec![refers(C)]);
    driver.pass(FIRST_LOG_MAX / 2);
    driver.lost(B, "refused", false);
    assert!(!driver.discovery.first_logs_are_done(driver.now), "C was not asked for its full time");
    let until = driver.now + FIRST_LOG_MAX / 2;
    assert!(driver.discovery.next_timeout().is_some_and(|at| at <= until));
    assert!(driver.discovery.first_logs_are_done(until));
    // Controllers that are found later do not count.
    driver.log(A, 2, vec![refers(B)]);
    assert!(driver.discovery.first_logs_are_done(until));
}

#[test]
fn a_controller_without_persistent_connections_is_polled() {
    let mut driver = Driver::new(&[A]);
    assert_eq!(driver.lost(A, "KATO", true), []);
    assert_eq!(driver.asks(), [(at(A), false)]);
    driver.log(A, 1, vec![]);
    driver.hear(A, SessionEvent::Finished);
    assert_eq!((driver.states(), driver.asks()), (vec![ControllerState::Polled], vec![]));
    assert_eq!(driver.pass(POLL_INTERVAL / 2), []);
    assert_eq!(driver.asks(), []);
    driver.pass(POLL_INTERVAL / 2);
    assert_eq!(driver.asks(), [(at(A), false)]);
    // After a loss, whatever answers may accept persistent connections.
    assert_eq!(driver.lost(A, "KATO", true), lost(A, "KATO"));
    driver.pass(RECONNECT_DELAY);
    assert_eq!((driver.states(), driver.asks()), (vec![ControllerState::Lost], vec![(at(A), true)]));
}

#[test]
fn a_controller_that_ends_connections_after_its_log_is_polled() {
    let mut driver = Driver::new(&[A]);
    driver.log(A, 1, vec![]);
    assert_eq!(driver.lost(A, "closed", false), lost(A, "closed"));
    driver.pass(RECONNECT_DELAY);
    driver.log(A, 1, vec![]);
    let said = driver.lost(A, "closed", false);
    assert!(matches!(&said[..], [Action::Warn(line)] if line.contains("keeps no connection")), "{said:?}");
    assert_eq!(driver.states(), [ControllerState::Polled]);
    for _ in 0..3 {
        assert_eq!(driver.pass(POLL_INTERVAL), []);
        assert_eq!(driver.asks(), [(at(A), false)]);
        assert_eq!(driver.log(A, 1, vec![]), []);
        assert_eq!(driver.hear(A, SessionEvent::Finished), []);
    }
    // A connection that has lasted is lost as before.
    let mut driver = Driver::new(&[A]);
    for was_lost in [true, true, true] {
        assert_eq!(driver.log(A, 1, vec![]), read(A, was_lost, 0, 1));
        driver.pass(Duration::from_secs(11));
        driver.lost(A, "reset", false);
        assert_eq!(driver.states(), [ControllerState::Lost]);
        driver.pass(RECONNECT_DELAY);
    }
}

fn left(by: &str, paths: &[&str]) -> SavedLog<SocketAddr> {
    let paths = paths.iter().map(|path| at(path)).collect();
    SavedLog { address: at(by), subnqn: Nqn::discovery().to_string(), paths }
}

/// A discovery whose daemon finds these logs of an earlier one.
fn with_left(configured: &[&str], left: Vec<SavedLog<SocketAddr>>) -> Driver {
    let now = Instant::now();
    let configured = configured.iter().map(|text| at(text));
    let tls = TlsUse::default();
    let discovery = Discovery::new(now, DISK.into(), tls, RECONNECT_DELAY, configured, reachable, left);
    let mut driver = Driver { now, discovery, sessions: Vec::new() };
    assert_eq!(driver.act(), []);
    driver
}

fn reachable(_: &SocketAddr, peer: SocketAddr) -> Option<SocketAddr> {
    let is_link_local = matches!(peer.ip(), std::net::IpAddr::V6(ip) if ip.is_unicast_link_local());
    (!is_link_local).then_some(peer)
}

#[test]
fn what_an_earlier_daemon_discovered_counts_until_the_log_is_read() {
    const OTHER: &str = "192.0.2.9:4421";
    let mut driver = with_left(&[A], vec![left(A, &[PATH, OTHER])]);
    assert_eq!(driver.discovery.listed(), [at(PATH), at(OTHER)]);
    driver.lost(A, "refused", false);
    assert_eq!(driver.discovery.changes(driver.now, &[known(false)]).remove, [], "nothing was read");
    assert_eq!(driver.discovery.to_save(), [left(A, &[PATH, OTHER])]);
    driver.pass(RECONNECT_DELAY);
    driver.log(A, 1, vec![path(OTHER)]);
    assert_eq!((driver.discovery.listed(), driver.discovery.to_save()), (vec![at(OTHER)], vec![left(A, &[OTHER])]));
    let other = KnownPath { path: PathId(1), address: at(OTHER), ..known(false) };
    assert_eq!(driver.discovery.changes(driver.now, &[known(false), other]).remove, [PathId(0)]);
}

/// The second controller is known from a referral of the first.
#[test]
fn what_a_referred_controller_listed_counts_until_it_is_heard_or_not_referred_to() {
    for is_referred in [true, false] {
        let mut driver = with_left(&[A], vec![left(B, &[PATH])]);
        assert_eq!(driver.discovery.listed(), [at(PATH)]);
        driver.log(A, 1, if is_referred { vec![refers(B)] } else { vec![] });
        assert_eq!(driver.discovery.listed(), if is_referred { vec![at(PATH)] } else { vec![] });
        if is_referred {
            driver.log(B, 1, vec![]);
            assert_eq!((driver.discovery.listed(), driver.discovery.to_save()), (vec![], vec![]));
        }
    }
}

#[test]
fn at_most_as_many_paths_are_saved_as_a_disk_has() {
    let mut driver = Driver::new(&[A]);
    driver.log(A, 1, (1..1000).map(|port| path(&format!("192.0.2.9:{port}"))).collect());
    let saved = driver.discovery.to_save();
    assert_eq!(saved.iter().map(|log| log.paths.len()).collect::<Vec<_>>(), [mpath_core::MAX_PATHS]);
}

#[test]
fn a_link_local_address_without_an_interface_is_left_out() {
    let mut driver = Driver::new(&[A]);
    let link_local = |kind, nqn| DiscoveryEntry { family: AddressFamily::IPV6, ..entry(kind, nqn, "[fe80::1]:4420") };
    let records = vec![
        link_local(SubsystemType::NVM, DISK),
        link_local(SubsystemType::REFERRAL, Nqn::discovery().as_str()),
        path(PATH),
    ];
    let said = driver.log(A, 1, records);
    let is_said = |what: &str| {
        said.iter()
            .any(|action| matches!(action, Action::Warn(line) if line.contains(what) && line.contains("host-iface")))
    };
    assert!(is_said("path") && is_said("referral"), "{said:?}");
    assert_eq!((driver.discovery.listed(), driver.discovery.controllers().len()), (vec![at(PATH)], 1));
}

/// The discovered, usable path 0.
fn known(leaving: bool) -> KnownPath<SocketAddr> {
    KnownPath { path: PathId(0), address: at(PATH), discovered: true, usable: true, leaving }
}

fn nothing() -> Changes<SocketAddr> {
    Changes { add: vec![], remove: vec![], keep: None, take_back: vec![] }
}

/// Gives a new log that lists the path or not. Returns whether a path is added.
fn lists(driver: &mut Driver, generation: u64, listed: bool, known: &[KnownPath<SocketAddr>]) -> bool {
    driver.log(A, generation, if listed { vec![path(PATH)] } else { vec![] });
    let changes = driver.discovery.changes(driver.now, known);
    let Changes { add, take_back, .. } = &changes;
    assert_eq!(changes, Changes { add: add.clone(), take_back: take_back.clone(), ..nothing() });
    !changes.add.is_empty()
}

#[test]
fn a_path_removed_by_the_operator_returns_only_when_listed_again() {
    let mut driver = Driver::new(&[A]);
    assert!(lists(&mut driver, 1, true, &[]), "new");
    driver.discovery.operator_removes(at(PATH));
    assert!(!lists(&mut driver, 2, true, &[known(true)]), "nothing is to be done while it leaves");
    assert!(!lists(&mut driver, 3, true, &[]), "the operator has removed it");
    assert!(!lists(&mut driver, 4, false, &[]));
    assert!(lists(&mut driver, 5, true, &[]), "listed again");
    assert!(!lists(&mut driver, 6, true, &[known(false)]));
    // Discovery has removed it itself.
    assert!(!lists(&mut driver, 7, false, &[known(true)]));
    assert!(!lists(&mut driver, 8, true, &[known(true)]));
    assert!(lists(&mut driver, 9, true, &[]));
}

/// The operator may add a path to an address and remove it again before discovery compares.
#[test]
fn a_removed_path_that_discovery_never_saw_does_not_return() {
    let mut driver = Driver::new(&[A]);
    assert!(!lists(&mut driver, 1, true, &[known(true)]));
    driver.discovery.operator_removes(at(PATH));
    assert_eq!(driver.discovery.changes(driver.now, &[]), nothing());
}

#[test]
fn only_a_removal_by_discovery_is_taken_back_when_the_path_is_listed_again() {
    let mut driver = Driver::new(&[A]);
    let mut taken_back = |generation, listed| {
        driver.log(A, generation, if listed { vec![path(PATH)] } else { vec![] });
        driver.discovery.changes(driver.now, &[known(true)]).take_back
    };
    assert!(taken_back(1, false).is_empty());
    assert_eq!(taken_back(2, true), [PathId(0)]);
    driver.discovery.operator_removes(at(PATH));
    assert!(driver.discovery.changes(driver.now, &[known(true)]).take_back.is_empty());
}

#[test]
fn a_path_removed_before_it_is_listed_is_added() {
    let mut driver = Driver::new(&[A]);
    driver.discovery.operator_removes(at(PATH));
    assert!(!lists(&mut driver, 1, false, &[]));
    assert!(lists(&mut driver, 2, true, &[]));
}

#[test]
fn changes_that_cannot_be_made_yet_are_tried_again() {
    let mut driver = Driver::new(&[A]);
    driver.log(A, 1, vec![]);
    let mut changes = |known: &[KnownPath<SocketAddr>]| {
        let changes = driver.discovery.changes(driver.now, known);
        (changes, driver.discovery.next_timeout().map(|at| at - driver.now))
    };
    let keeps = Changes { keep: Some(PathId(0)), ..nothing() };
    assert_eq!(changes(&[known(false)]), (keeps.clone(), Some(RECHECK_INTERVAL)));
    assert_eq!(changes(&[known(false)]), (nothing(), Some(RECHECK_INTERVAL)), "reported once");
    let other = KnownPath { path: PathId(1), address: at(B), discovered: false, ..known(false) };
    assert_eq!(changes(&[known(false), other.clone()]), (Changes { remove: vec![PathId(0)], ..nothing() }, None));
    assert_eq!(changes(&[known(false)]), (keeps, Some(RECHECK_INTERVAL)), "reported again");
    assert_eq!(changes(&[known(true), other]), (nothing(), Some(RECHECK_INTERVAL)));
    assert_eq!(changes(&[]), (nothing(), None));
    driver.discovery.not_removed(driver.now);
    assert_eq!(driver.discovery.next_timeout(), Some(driver.now + RECHECK_INTERVAL));
}

#[test]
fn a_path_that_failed_to_be_added_is_tried_again() {
    let mut driver = Driver::new(&[A]);
    driver.log(A, 1, vec![path(PATH)]);
    let adds = Changes { add: vec![at(PATH)], ..nothing() };
    assert_eq!(driver.discovery.changes(driver.now, &[]), adds);
    driver.discovery.not_added(driver.now);
    assert_eq!(driver.discovery.next_timeout(), Some(driver.now + RECHECK_INTERVAL));
    assert_eq!(driver.discovery.changes(driver.now, &[]), adds);
}

thread_local! {
    static COMPARISONS: Cell<usize> = const { Cell::new(0) };
}

/// An address that counts how often it is compared.
#[derive(Debug, Clone)]
struct Compared(SocketAddr);

impl Hash for Compared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Compared {
    fn eq(&self, other: &Self) -> bool {
        COMPARISONS.set(COMPARISONS.get() + 1);
        self.0 == other.0
    }
}

impl Eq for Compared {}

impl Display for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The control thread compares them, and has to send keep-alives meanwhile.
#[test]
fn long_logs_are_not_compared_record_by_record() {
    const RECORDS: u16 = 1000;
    let now = Instant::now();
    let with_peer = |_: &Compared, peer| Some(Compared(peer));
    let configured = [A, B].map(|text| Compared(at(text)));
    let mut discovery =
        Discovery::new(now, DISK.into(), TlsUse::default(), RECONNECT_DELAY, configured, with_peer, vec![]);
    for (number, from) in [A, B].into_iter().enumerate() {
        let Some(Action::Start { session, .. }) = discovery.poll(now) else { panic!("it asks {from}") };
        let entries = (1..=RECORDS).map(|port| path(&format!("192.0.2.{}:{port}", 9 + number))).collect();
        let log = Box::new(DiscoveryLog { generation: 1, entries, unreadable: vec![] });
        discovery.session_event(now, session, SessionEvent::Log { log, peer: peer(from) });
    }
    let known: Vec<_> = (1..=64)
        .map(|port| KnownPath {
            path: PathId(port),
            address: Compared(format!("192.0.2.9:{port}").parse().unwrap()),
            discovered: true,
            usable: true,
            leaving: false,
        })
        .collect();
    COMPARISONS.set(0);
    let changes = discovery.changes(now, &known);
    assert_eq!((changes.add.len(), changes.remove, changes.keep), (2 * usize::from(RECORDS) - 64, vec![], None));
    assert!(COMPARISONS.get() < 10 * usize::from(RECORDS), "{}", COMPARISONS.get());
}
