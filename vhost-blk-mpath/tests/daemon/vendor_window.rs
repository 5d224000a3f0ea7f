//! The vendor window (docs/qemu.md): what it says about policy and paths, and setting the policy through it.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use mpath_api::types::{ActOnPaths, AddPath, EventKind, PathAction, PathSelector, SetPolicy, SetSettings};
use mpath_config::{PolicyClass, PolicyKind};
use mpath_target::NamespaceConfig;
use vhost::VhostBackend;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost_user_blk::VendorWindow;
use vublk_bench::request::{Kind, Request, Status};

use crate::support::{
    Daemon, DaemonDirectory, Disk, NQN, PATIENCE, Target, eventually, own_address, program, set_policy,
};

/// The keep-alive timeout outlasts any time that a busy machine keeps the daemon waiting.
const FLAGS: &str = "--mpath-window --policy round-robin --keep-alive-tmo 60 --reconnect-delay 1";
const POLICY: u32 = 198;
/// The id of the condition `ok`.
const OK: u16 = 1;
const NONE: VhostUserConfigFlags = VhostUserConfigFlags::empty();

/// A front-end without a guest that knows the vendor window.
struct FrontEnd {
    messages: Frontend,
    channel: UnixStream,
    /// The window as it was read last.
    generation: u32,
}

impl FrontEnd {
    fn connect(socket: &Path) -> Self {
        let mut messages = Frontend::from_stream(UnixStream::connect(socket).unwrap(), 1);
        messages.set_owner().unwrap();
        messages.get_features().unwrap();
        messages.get_protocol_features().unwrap();
        let features = VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::REPLY_ACK;
        messages.set_protocol_features(features).unwrap();
        messages.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        let (channel, theirs) = UnixStream::pair().unwrap();
        channel.set_read_timeout(Some(PATIENCE)).unwrap();
        messages.set_backend_request_fd(&theirs.as_raw_fd()).unwrap();
        Self { messages, channel, generation: 0 }
    }

    fn space(&mut self) -> Vec<u8> {
        self.messages.get_config(0, 256, NONE, &[0; 256]).unwrap().1
    }

    fn condition(&mut self) -> u16 {
        VendorWindow::condition(&self.space()).expect("there is a window")
    }

    fn window(&mut self) -> VendorWindow {
        let window;
        (window, self.generation) = VendorWindow::find(&self.space()).expect("there is a window");
        window
    }

    /// The policy, and the numbers of paths in total, live and optimized.
    fn says(&mut self) -> (Option<PolicyKind>, [u16; 3]) {
        let VendorWindow { policy, paths_total, paths_live, paths_optimized } = self.window();
        let names =
            ["numa", "round-robin", "queue-depth", "adaptive", "pid", "latency", "latency-rr", "service-time", "bdp"];
        let name = usize::from(policy).checked_sub(1).map(|at| names[at]);
        (name.map(|name| name.parse().unwrap()), [paths_total, paths_live, paths_optimized])
    }

    fn set(&mut self, policy: u16) -> bool {
        self.messages.set_config(POLICY, NONE, &policy.to_le_bytes()).is_ok()
    }

    /// Waits for a change notice and reads the window. To be called when no notice is unread.
    fn news(&mut self) -> (Option<PolicyKind>, [u16; 3]) {
        let mut message = [0; 12];
        self.channel.read_exact(&mut message).unwrap_or_else(|error| panic!("not told: {error}"));
        assert_eq!(message[..4], 2_u32.to_ne_bytes(), "CONFIG_CHANGE_MSG");
        let before = self.generation;
        let said = self.says();
        assert_ne!(self.generation, before, "no change notice");
        said
    }

    /// Reads the window after each notice, as QEMU does, until it has this content. At least one notice must arrive.
    #[track_caller]
    fn is_told(&mut self, expected: (PolicyKind, [u16; 3])) {
        let expected = (Some(expected.0), expected.1);
        let mut said = self.news();
        while said != expected {
            eprintln!("told {said:?}, not yet {expected:?}");
            said = self.news();
        }
    }

    /// Like [`is_told`](Self::is_told), but the window may have this content already.
    fn shows_eventually(&mut self, expected: (PolicyKind, [u16; 3])) {
        if self.says() != (Some(expected.0), expected.1) {
            self.is_told(expected);
        }
    }

    /// The number of notices so far, without reading the window.
    fn notice_count(&mut self) -> usize {
        self.channel.set_nonblocking(true).unwrap();
        let mut bytes = Vec::new();
        assert_eq!(self.channel.read_to_end(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
        self.channel.set_nonblocking(false).unwrap();
        bytes.len() / 12
    }
}

fn with_window() -> (Target, Daemon, FrontEnd) {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), FLAGS);
    let mut front_end = FrontEnd::connect(&daemon.socket());
    front_end.shows_eventually((PolicyKind::RoundRobin, [2, 2, 2]));
    eventually("the disk is ok", || front_end.condition() == OK);
    (target, daemon, front_end)
}

fn policy(daemon: &Daemon) -> String {
    daemon.status().disks[0].policy.to_string()
}

#[test]
fn the_policy_is_shared_by_all_front_ends() {
    let (_target, daemon, mut front_end) = with_window();
    let paths = [2, 2, 2];
    for (id, kind) in (1..).zip([PolicyKind::Numa, PolicyKind::RoundRobin, PolicyKind::QueueDepth]) {
        assert!(front_end.set(id));
        assert_eq!((front_end.notice_count(), front_end.says()), (1, (Some(kind), paths)));
        assert_eq!(policy(&daemon), kind.to_string());
    }
    let events = daemon.api.events(0).unwrap().events.into_iter();
    let set: Vec<_> = events.filter(|event| event.kind == EventKind::PolicySet).map(|event| event.message).collect();
    let [before, then @ ..] = &set[..] else { panic!("no event") };
    assert!(before.starts_with("policy set to numa by the front-end, was "), "{set:?}");
    let by_front_end = [("round-robin", "numa"), ("queue-depth", "round-robin")]
        .map(|(now, before)| format!("policy set to {now} by the front-end, was {before}"));
    assert_eq!(then, by_front_end);

    // A policy set elsewhere is reported here.
    daemon.api.set(&set_policy(PolicyKind::LatencyRr)).unwrap();
    front_end.is_told((PolicyKind::LatencyRr, paths));
    daemon.api.set(&SetPolicy { class: Some(PolicyClass::Read), ..PolicyKind::Pid.into() }.into()).unwrap();
    assert_eq!(front_end.news(), (None, paths));
    assert_eq!(policy(&daemon), "read: pid, write: latency-rr");

    // As with mpathctl: for reads and writes, and a policy in force keeps its parameters.
    let params = vec![("threshold".to_owned(), "2".to_owned())];
    daemon.api.set(&SetPolicy { params, ..PolicyKind::LatencyRr.into() }.into()).unwrap();
    front_end.is_told((PolicyKind::LatencyRr, paths));
    let before = front_end.space();
    assert!(front_end.set(7));
    assert_eq!(policy(&daemon), "latency-rr threshold=2");
    assert_eq!((front_end.notice_count(), front_end.space()), (0, before), "what it says is no other");
    assert!(front_end.set(9) && front_end.set(7));
    assert_eq!((front_end.notice_count(), policy(&daemon)), (1, "latency-rr".into()));

    let before = front_end.space();
    for id in [0, 10, u16::MAX] {
        assert!(!front_end.set(id), "{id}");
    }
    assert_eq!((front_end.space(), policy(&daemon), front_end.notice_count()), (before, "latency-rr".into(), 0));
    assert!(daemon.log().contains("no path policy has the id 10"), "{}", daemon.log());
}

#[test]
fn front_ends_learn_of_all_path_changes() {
    let (target, daemon, mut front_end) = with_window();
    let mut is_told = |paths| front_end.is_told((PolicyKind::RoundRobin, paths));
    let act = |path, action| {
        let path = PathSelector::Index(path);
        daemon.api.act_on_paths(&ActOnPaths { path, disk: None, all: false, action, force: false }).unwrap();
    };
    act(1, PathAction::Drain);
    is_told([2, 1, 1]);
    act(1, PathAction::Enable);
    is_told([2, 2, 2]);
    act(1, PathAction::Disable);
    is_told([2, 1, 1]);
    target.set(0, "ana=non-optimized");
    is_told([2, 1, 0]);
    act(1, PathAction::Enable);
    is_told([2, 2, 1]);
    target.set(0, "ana=inaccessible");
    is_told([2, 1, 1]);
    target.set(0, "ana=optimized");
    is_told([2, 2, 2]);
    // No operator is involved.
    target.stop_listener(0);
    is_told([2, 1, 1]);
    target.resume_listener(0).unwrap();
    is_told([2, 2, 2]);
    let paths = daemon.api.remove_path("disk0", &PathSelector::Index(1), false).unwrap();
    is_told([1, 1, 1]);
    daemon.api.add_path("disk0", &AddPath { address: paths[0].address.clone() }).unwrap();
    is_told([2, 2, 2]);
    // A path counts as soon as it is added. No target answers at this address.
    let silent = TcpListener::bind(own_address()).unwrap();
    let address = format!("tcp://{}", silent.local_addr().unwrap()).parse().unwrap();
    daemon.api.add_path("disk0", &AddPath { address }).unwrap();
    assert_eq!(front_end.notice_count(), 1);
    assert_eq!(front_end.says().1, [3, 2, 2]);
}

/// By the ids of docs/qemu.md. A front-end asks for the condition, and gets no notice of it.
#[test]
fn the_condition_is_shown_to_who_asks() {
    let (target, daemon, mut front_end) = with_window();
    let mut shows = |wanted| eventually(&format!("condition {wanted}"), || front_end.condition() == wanted);
    let (degraded, waiting, failing) = (2, 4, 6);
    target.set(0, "ana=inaccessible");
    shows(degraded);
    target.set(1, "ana=inaccessible");
    shows(waiting);
    (0..2).for_each(|listener| target.set(listener, "ana=optimized"));
    shows(OK);
    drop(front_end);
    let mut disk = Disk::connect_patiently(&daemon.socket());
    let beyond = Request { kind: Kind::Read, offset: 1 << 40, len: 4096 };
    assert_eq!(disk.run(beyond, &[0; 4096]), Status::IoError);
    drop(disk);
    front_end = FrontEnd::connect(&daemon.socket());
    eventually("the guest's error shows", || front_end.condition() == failing);
}

/// The front-end, the operator and path changes act on different threads.
#[test]
fn concurrent_changes_are_all_shown() {
    let (_target, daemon, mut front_end) = with_window();
    let by_operator = || {
        for policy in PolicyKind::ALL.into_iter().cycle().take(100) {
            daemon.api.set(&set_policy(policy)).unwrap();
        }
    };
    let of_paths = || {
        for action in [PathAction::Drain, PathAction::Enable].into_iter().cycle().take(100) {
            let path = PathSelector::Index(1);
            daemon.api.act_on_paths(&ActOnPaths { path, disk: None, all: false, action, force: false }).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(by_operator);
        scope.spawn(of_paths);
        for id in (1..10).cycle().take(300) {
            assert!(front_end.set(id));
            front_end.window();
        }
    });
    assert!(front_end.set(1));
    assert_eq!(front_end.says(), (Some(PolicyKind::Numa), [2, 2, 2]));
    assert_eq!(policy(&daemon), "numa");
}

/// The daemon with disks on the target's namespaces, given as entries of the configuration, and a front-end for each
/// name.
fn with_disks<const N: usize>(
    names: [&str; N],
    disks: impl FnOnce([String; N], &str) -> String,
) -> (Target, Daemon, [FrontEnd; N]) {
    let target =
        Target::with(2, |config| config.namespaces.extend([32, 16].map(|mib| NamespaceConfig::memory(mib << 20))));
    let place = DaemonDirectory::new();
    let paths = target.addrs().iter().map(|path| format!("tcp://{path}")).collect::<Vec<_>>().join(", ");
    let disk = |name| format!("name: {name}, socket-path: {}", place.file(name).display());
    let disks = disks(names.map(disk), &format!("subsystem: '{NQN}', paths: [{paths}]"));
    fs::write(place.file("config.yaml"), format!("api: {}\ndisks:\n{disks}", place.api().display())).unwrap();
    let mut command = program();
    command.arg("--config").arg(place.file("config.yaml"));
    let daemon = place.spawn(command).ready();
    let front_ends = names.map(|name| FrontEnd::connect(&daemon.place.file(name)));
    (target, daemon, front_ends)
}

#[test]
fn windows_of_disks_with_separate_paths_are_independent() {
    let (_target, daemon, [mut first, mut second]) = with_disks(["first", "second"], |[first, second], paths| {
        format!(
            "  - {{{first}, namespace: 1, {paths}, policy: numa, mpath-window: true}}\n\
             \x20 - {{{second}, namespace: 2, {paths}, policy: pid, mpath-window: true}}\n"
        )
    });
    let policies = || daemon.status().disks.iter().map(|disk| disk.policy.to_string()).collect::<Vec<_>>();
    let all = [2, 2, 2];
    first.shows_eventually((PolicyKind::Numa, all));
    second.shows_eventually((PolicyKind::Pid, all));

    assert!(second.set(9));
    assert_eq!((policies(), first.notice_count()), (vec!["numa".into(), "bdp".into()], 0));
    assert_eq!(first.says(), (Some(PolicyKind::Numa), all));
    second.is_told((PolicyKind::Bdp, all));
    assert!(first.set(2));
    assert_eq!((policies(), second.notice_count()), (vec!["round-robin".into(), "bdp".into()], 0));
    assert_eq!(second.says(), (Some(PolicyKind::Bdp), all));
    first.is_told((PolicyKind::RoundRobin, all));

    // A window that changes all the time, read or not, does not delay the other's notices.
    let act = |disk: &str, action| {
        let path = PathSelector::Index(1);
        daemon
            .api
            .act_on_paths(&ActOnPaths { path, disk: Some(disk.into()), all: false, action, force: false })
            .unwrap();
    };
    for reads in [false, true] {
        for kind in [PolicyKind::Numa, PolicyKind::Latency].into_iter().cycle().take(50) {
            daemon.api.set(&SetSettings::from(kind).of("first")).unwrap();
            if reads {
                first.is_told((kind, all));
            }
        }
        assert_eq!(second.notice_count(), 0);
        for (action, live) in [(PathAction::Drain, 1), (PathAction::Enable, 2)] {
            act("second", action);
            assert_eq!((second.notice_count(), second.says()), (1, (Some(PolicyKind::Bdp), [2, live, live])));
        }
        assert_eq!(first.notice_count(), usize::from(!reads));
        assert_eq!(first.says(), (Some(PolicyKind::Latency), all));
    }
}

/// The path gets no new requests from the answer on, and stays until nothing is outstanding.
#[test]
fn a_path_that_is_being_removed_is_not_live() {
    let (target, daemon, [mut system, data]) = with_disks(["system", "data"], |[system, data], paths| {
        format!(
            "  - {{{system}, namespace: 1, {paths}, policy: numa, mpath-window: true, share-paths-with: \
             [{{{data}, namespace: 2}}]}}\n"
        )
    });
    system.shows_eventually((PolicyKind::Numa, [2, 2, 2]));
    drop(data);
    let mut disk = Disk::connect_patiently(&daemon.place.file("data"));
    target.set(0, "hold=on");
    disk.submit_write(1, 0, 1);
    eventually("the write is held", || target.status()[0].held == 1);
    daemon.api.remove_path("system", &PathSelector::Index(0), false).unwrap();
    assert_eq!((system.notice_count(), system.says()), (1, (Some(PolicyKind::Numa), [2, 1, 1])));
    target.set(0, "hold=off");
    assert_eq!((disk.answer(PATIENCE), disk.flush()), (Some((1, Status::Ok)), Status::Ok));
    system.is_told((PolicyKind::Numa, [1, 1, 1]));
}

#[test]
fn disks_that_share_paths_each_have_a_vendor_window_if_enabled() {
    let names = ["system", "data", "backup"];
    let (target, daemon, [mut system, mut data, mut backup]) = with_disks(names, |[system, data, backup], paths| {
        format!(
            "  - {{{system}, namespace: 1, {paths}, policy: numa, mpath-window: true, share-paths-with: \
             [{{{data}, namespace: 2, mpath-window: true}}, {{{backup}, namespace: 3}}]}}\n"
        )
    });
    system.shows_eventually((PolicyKind::Numa, [2, 2, 2]));
    data.shows_eventually((PolicyKind::Numa, [2, 2, 2]));

    target.set(0, "ana=2:inaccessible");
    data.is_told((PolicyKind::Numa, [2, 1, 1]));
    assert_eq!(system.says(), (Some(PolicyKind::Numa), [2, 2, 2]), "its own namespace is as before");
    assert_eq!(system.notice_count(), 0);

    // The policy belongs to the disk that owns the paths, as for mpathctl.
    for id in [1, 2, 10] {
        assert!(!data.set(id), "{id}");
    }
    assert_eq!((policy(&daemon), data.notice_count(), system.notice_count()), ("numa".into(), 0, 0));
    assert_eq!(data.says(), (Some(PolicyKind::Numa), [2, 1, 1]), "the connection is kept");
    assert!(daemon.log().contains("belongs to another disk, whose paths this one shares"), "{}", daemon.log());
    assert!(system.set(2));
    data.is_told((PolicyKind::RoundRobin, [2, 1, 1]));
    system.is_told((PolicyKind::RoundRobin, [2, 2, 2]));

    assert_eq!(backup.space()[60..], [0; 196]);
    assert!(!backup.set(2));
    assert!(daemon.status().disks.iter().map(|disk| disk.mpath_window).eq([true, true, false]));
}
