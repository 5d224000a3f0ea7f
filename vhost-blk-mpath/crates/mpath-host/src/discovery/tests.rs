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

/// The discovery of a disk, and what it has had done.
struct Driver {
    now: Instant,
    discovery: Discovery<SocketAddr>,
    /// Where those that run lead, and whether they stay.
    sessions: Vec<(SessionId, SocketAddr, bool)>,
}

impl Driver {
    fn new(configured: &[&str]) -> Self {
        let now = Instant::now();
        let configured = configured.iter().map(|text| at(text));
        let discovery = Discovery::new(now, DISK.into(), RECONNECT_DELAY, configured, |_, peer| peer);
        let mut driver = Self { now, discovery, sessions: Vec::new() };
        assert_eq!(driver.act(), []);
        driver
    }

    /// Starts and ends sessions: what else is to be told.
    fn act(&mut self) -> Vec<Action<SocketAddr>> {
        let mut told = Vec::new();
        while let Some(action) = self.discovery.poll(self.now) {
            match action {
                Action::Start { session, source, stays } => self.sessions.push((session, source.address, stays)),
                Action::End { session } => self.sessions.retain(|(other, ..)| *other != session),
                other => told.push(other),
            }
        }
        told
    }

    /// The sessions, with whether they stay.
    fn asks(&self) -> Vec<(SocketAddr, bool)> {
        self.sessions.iter().map(|(_, address, stays)| (*address, *stays)).collect()
    }

    fn hear(&mut self, from: &str, news: SessionNews) -> Vec<Action<SocketAddr>> {
        let index = self.sessions.iter().position(|(_, address, _)| *address == at(from)).expect("a session");
        let session = self.sessions[index].0;
        if !matches!(news, SessionNews::Log { .. }) {
            self.sessions.remove(index);
        }
        self.discovery.heard(self.now, session, news);
        self.act()
    }

    fn log(&mut self, from: &str, generation: u64, entries: Vec<DiscoveryEntry>) -> Vec<Action<SocketAddr>> {
        let log = Box::new(DiscoveryLog { generation, entries, unreadable: vec![] });
        self.hear(from, SessionNews::Log { log, peer: at(from) })
    }

    fn lost(&mut self, from: &str, error: &str, refuses_to_stay: bool) -> Vec<Action<SocketAddr>> {
        self.hear(from, SessionNews::Lost { error: error.into(), refuses_to_stay })
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
    [Action::Read { at: at(from), was_lost, records, generation }]
}

fn lost(from: &str, error: &str) -> [Action<SocketAddr>; 1] {
    [Action::Lost { at: at(from), error: error.into() }]
}

#[test]
fn referrals_come_and_go_with_the_logs() {
    let mut driver = Driver::new(&[A]);
    assert!(driver.discovery.is_any_untried());
    assert_eq!(driver.log(A, 1, vec![path(PATH), refers(B)]), read(A, true, 2, 1));
    assert_eq!(driver.asks(), [(at(A), true), (at(B), true)]);
    // B refers back to A, to itself and to C.
    assert_eq!(driver.log(B, 1, vec![refers(A), refers(B), refers(C), path("192.0.2.9:4421")]), read(B, true, 4, 1));
    assert_eq!(driver.asks(), [(at(A), true), (at(B), true), (at(C), true)]);
    assert!(driver.discovery.is_any_untried());
    driver.log(C, 1, vec![refers(B), path(PATH), path("192.0.2.9:4422")]);
    assert_eq!(driver.asks().len(), 3);
    assert!(!driver.discovery.is_any_untried());
    let expected = [PATH, "192.0.2.9:4421", "192.0.2.9:4422"].map(at);
    assert_eq!(driver.discovery.listed(), expected);
    let by: Vec<_> = driver.discovery.controllers().iter().map(|controller| controller.referred_by).collect();
    assert_eq!(by, [None, Some(at(A)), Some(at(A))]);
    // B and C refer to each other, but nobody leads there any more.
    let (of_b, ..) = driver.sessions[1];
    assert_eq!(driver.log(A, 2, vec![path(PATH)]), read(A, false, 1, 2));
    assert_eq!(driver.asks(), [(at(A), true)]);
    assert_eq!(driver.discovery.listed(), expected[..1]);
    // What B still says is not heard, even when it is asked again.
    driver.log(A, 3, vec![path(PATH), refers(B)]);
    let log = Box::new(DiscoveryLog { generation: 9, entries: vec![path("192.0.2.9:4429")], unreadable: vec![] });
    driver.discovery.heard(driver.now, of_b, SessionNews::Log { log, peer: at(B) });
    assert_eq!(driver.act(), []);
    assert_eq!(driver.discovery.listed(), expected[..1]);
}

#[test]
fn what_a_lost_controller_listed_still_counts() {
    let mut driver = Driver::new(&[A, B]);
    assert_eq!(driver.lost(B, "refused", false), lost(B, "refused"));
    assert!(driver.discovery.is_any_untried());
    driver.log(A, 1, vec![path(PATH), refers(C)]);
    assert_eq!(driver.lost(A, "gone", false), lost(A, "gone"));
    assert_eq!(driver.discovery.listed(), [at(PATH)]);
    assert_eq!(driver.asks(), [(at(C), true)], "who A referred to");
    assert_eq!(driver.states(), [ControllerState::Lost, ControllerState::Connecting, ControllerState::Connecting]);
    assert_eq!(driver.discovery.controllers()[0].last_error, Some(("gone".into(), driver.now)));
    // The same again is not told again.
    driver.pass(RECONNECT_DELAY);
    assert_eq!(driver.lost(B, "refused", false), []);
    // It comes back with the same log.
    assert_eq!(driver.log(A, 1, vec![path(PATH), refers(C)]), read(A, true, 2, 1));
    assert_eq!(driver.log(A, 1, vec![path(PATH), refers(C)]), []);
    assert_eq!(driver.discovery.controllers()[0].last_error, None);
}

#[test]
fn what_is_of_no_use_is_told() {
    let mut driver = Driver::new(&[A]);
    let mut rdma = path(PATH);
    rdma.transport = TransportType::RDMA;
    let mut foreign = rdma.clone();
    foreign.subnqn = "nqn.other".parse().unwrap();
    let mut referral = refers(B);
    referral.treq = 1;
    let told =
        driver.log(A, 1, vec![rdma, foreign, referral, path("192.0.2.9:4421"), path("192.0.2.9:4421")]).split_off(1);
    let lines = [
        "192.0.2.1:8009: path to 192.0.2.9 4420: transport RDMA is not supported",
        "192.0.2.1:8009: referral to 192.0.2.2 8009: a secure channel (TLS) is required, which is not supported",
    ];
    assert_eq!(told, lines.map(|line| Action::Useless(line.into())));
    assert_eq!(driver.discovery.listed(), [at("192.0.2.9:4421")]);
    assert_eq!(driver.asks(), [(at(A), true)]);
}

#[test]
fn a_configured_controller_is_nobodys_referral() {
    let mut driver = Driver::new(&[A, B]);
    driver.log(A, 1, vec![refers(B)]);
    assert_eq!(driver.asks(), [(at(A), true), (at(B), true)]);
    assert_eq!(driver.discovery.controllers()[1].referred_by, None);
    driver.log(A, 2, vec![]);
    assert_eq!(driver.asks().len(), 2);
}

#[test]
fn who_is_lost_is_asked_again_and_who_is_silent_is_given_up() {
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
    assert_eq!(driver.discovery.next_timeout(), None, "one that stays says when it changes, or is lost");
}

#[test]
fn a_controller_that_keeps_no_connections_is_polled() {
    let mut driver = Driver::new(&[A]);
    assert_eq!(driver.lost(A, "KATO", true), []);
    assert_eq!(driver.asks(), [(at(A), false)]);
    driver.log(A, 1, vec![]);
    driver.hear(A, SessionNews::Asked);
    assert_eq!((driver.states(), driver.asks()), (vec![ControllerState::Polled], vec![]));
    assert_eq!(driver.pass(ASK_AGAIN / 2), []);
    assert_eq!(driver.asks(), []);
    driver.pass(ASK_AGAIN / 2);
    assert_eq!(driver.asks(), [(at(A), false)]);
    // Whatever comes after a loss may keep them.
    assert_eq!(driver.lost(A, "KATO", true), lost(A, "KATO"));
    driver.pass(RECONNECT_DELAY);
    assert_eq!((driver.states(), driver.asks()), (vec![ControllerState::Lost], vec![(at(A), true)]));
}

/// The discovered path 0, usable.
fn have(leaving: bool) -> Have<SocketAddr> {
    Have { path: PathId(0), address: at(PATH), discovered: true, usable: true, leaving }
}

fn nothing() -> Changes<SocketAddr> {
    Changes { add: vec![], remove: vec![], keep: None }
}

/// Lists the path or not, in a new log: whether a path is added.
fn lists(driver: &mut Driver, generation: u64, listed: bool, have: &[Have<SocketAddr>]) -> bool {
    driver.log(A, generation, if listed { vec![path(PATH)] } else { vec![] });
    let changes = driver.discovery.changes(driver.now, have);
    assert_eq!(changes, Changes { add: changes.add.clone(), ..nothing() });
    !changes.add.is_empty()
}

#[test]
fn what_the_operator_removes_comes_back_only_when_listed_anew() {
    let mut driver = Driver::new(&[A]);
    assert!(lists(&mut driver, 1, true, &[]), "new");
    driver.discovery.operator_removes(at(PATH));
    assert!(!lists(&mut driver, 2, true, &[have(true)]), "nothing is to be done while it leaves");
    assert!(!lists(&mut driver, 3, true, &[]), "the operator has removed it");
    assert!(!lists(&mut driver, 4, false, &[]));
    assert!(lists(&mut driver, 5, true, &[]), "listed anew");
    assert!(!lists(&mut driver, 6, true, &[have(false)]));
    // Discovery has had it removed itself.
    assert!(!lists(&mut driver, 7, false, &[have(true)]));
    assert!(!lists(&mut driver, 8, true, &[have(true)]));
    assert!(lists(&mut driver, 9, true, &[]));
}

/// The operator may add a path to an address and remove it again before discovery looks.
#[test]
fn a_path_that_discovery_never_saw_does_not_come_back_either() {
    let mut driver = Driver::new(&[A]);
    assert!(!lists(&mut driver, 1, true, &[have(true)]));
    driver.discovery.operator_removes(at(PATH));
    assert_eq!(driver.discovery.changes(driver.now, &[]), nothing());
}

#[test]
fn a_path_that_the_operator_removes_before_it_is_listed_is_added() {
    let mut driver = Driver::new(&[A]);
    driver.discovery.operator_removes(at(PATH));
    assert!(!lists(&mut driver, 1, false, &[]));
    assert!(lists(&mut driver, 2, true, &[]));
}

#[test]
fn what_cannot_be_done_yet_is_looked_at_again() {
    let mut driver = Driver::new(&[A]);
    driver.log(A, 1, vec![]);
    let mut changes = |have: &[Have<SocketAddr>]| {
        let changes = driver.discovery.changes(driver.now, have);
        (changes, driver.discovery.next_timeout().map(|at| at - driver.now))
    };
    let keeps = Changes { keep: Some(PathId(0)), ..nothing() };
    assert_eq!(changes(&[have(false)]), (keeps.clone(), Some(LOOK_AGAIN)));
    assert_eq!(changes(&[have(false)]), (nothing(), Some(LOOK_AGAIN)), "told once");
    let other = Have { path: PathId(1), address: at(B), discovered: false, ..have(false) };
    assert_eq!(changes(&[have(false), other.clone()]), (Changes { remove: vec![PathId(0)], ..nothing() }, None));
    assert_eq!(changes(&[have(false)]), (keeps, Some(LOOK_AGAIN)), "told anew");
    assert_eq!(changes(&[have(true), other]), (nothing(), Some(LOOK_AGAIN)));
    assert_eq!(changes(&[]), (nothing(), None));
    driver.discovery.not_removed(driver.now);
    assert_eq!(driver.discovery.next_timeout(), Some(driver.now + LOOK_AGAIN));
}

#[test]
fn what_is_not_let_in_is_added_later() {
    let mut driver = Driver::new(&[A]);
    driver.log(A, 1, vec![path(PATH)]);
    let adds = Changes { add: vec![at(PATH)], ..nothing() };
    assert_eq!(driver.discovery.changes(driver.now, &[]), adds);
    driver.discovery.not_added(driver.now);
    assert_eq!(driver.discovery.next_timeout(), Some(driver.now + LOOK_AGAIN));
    assert_eq!(driver.discovery.changes(driver.now, &[]), adds);
}
