//! The window in the configuration space (docs/qemu.md): what it says of policy and paths, and the policy that it sets.

use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use mpath_api::types::{AddPath, EventKind, PathAction, PathSelector, SetPolicy, SteerPaths};
use mpath_api::{PolicyClass, PolicyKind};
use mpath_target::NamespaceConfig;
use vhost::VhostBackend;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost_user_blk::Window;

use crate::support::{Daemon, NQN, PATIENCE, Place, Target, program, set_policy};

const FLAGS: &str = "--mpath-window --policy round-robin --keep-alive-tmo 1 --reconnect-delay 1";
const POLICY: u32 = 198;
const NONE: VhostUserConfigFlags = VhostUserConfigFlags::empty();

/// A front-end that knows of the window, without a guest.
struct FrontEnd {
    messages: Frontend,
    channel: UnixStream,
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
        Self { messages, channel }
    }

    fn space(&mut self) -> Vec<u8> {
        self.messages.get_config(0, 256, NONE, &[0; 256]).unwrap().1
    }

    fn window(&mut self) -> Window {
        Window::find(&self.space()).expect("there is a window").0
    }

    /// Policy, and paths total, live and optimized.
    fn says(&mut self) -> (Option<PolicyKind>, [u16; 3]) {
        let Window { policy, paths_total, paths_live, paths_optimized } = self.window();
        let names =
            ["numa", "round-robin", "queue-depth", "adaptive", "pid", "latency", "latency-rr", "service-time", "bdp"];
        let name = usize::from(policy).checked_sub(1).map(|at| names[at]);
        (name.map(|name| name.parse().unwrap()), [paths_total, paths_live, paths_optimized])
    }

    fn set(&mut self, policy: u16) -> bool {
        self.messages.set_config(POLICY, NONE, &policy.to_le_bytes()).is_ok()
    }

    /// Does what QEMU does, which reads again whenever it is told to, until the window says that.
    fn is_told(&mut self, expected: (PolicyKind, [u16; 3])) {
        let mut said = self.says();
        while said != (Some(expected.0), expected.1) {
            let mut message = [0; 12];
            self.channel.read_exact(&mut message).unwrap_or_else(|error| panic!("told last: {said:?}; {error}"));
            assert_eq!(message[..4], 2_u32.to_ne_bytes(), "CONFIG_CHANGE_MSG");
            said = self.says();
        }
    }
}

fn with_window() -> (Target, Daemon, FrontEnd) {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), FLAGS);
    let mut front_end = FrontEnd::connect(&daemon.socket());
    front_end.is_told((PolicyKind::RoundRobin, [2, 2, 2]));
    (target, daemon, front_end)
}

fn policy(daemon: &Daemon) -> String {
    daemon.status().disks[0].policy.to_string()
}

#[test]
fn the_policy_is_everybodys() {
    let (_target, daemon, mut front_end) = with_window();
    let paths = [2, 2, 2];
    for (id, kind) in (1..).zip([PolicyKind::Numa, PolicyKind::RoundRobin, PolicyKind::QueueDepth]) {
        assert!(front_end.set(id));
        assert_eq!((front_end.says(), policy(&daemon)), ((Some(kind), paths), kind.to_string()));
    }
    let events = daemon.api.events(0, 0).unwrap().events.into_iter();
    let set: Vec<_> = events.filter(|event| event.kind == EventKind::PolicySet).map(|event| event.message).collect();
    let by_front_end =
        ["numa", "round-robin", "queue-depth"].map(|name| format!("policy set to {name} by the front-end"));
    assert_eq!(set, by_front_end);

    // What is set elsewhere is told here.
    daemon.api.set_policy(&set_policy(PolicyKind::LatencyRr)).unwrap();
    front_end.is_told((PolicyKind::LatencyRr, paths));
    daemon.api.set_policy(&SetPolicy { class: Some(PolicyClass::Read), ..PolicyKind::Pid.into() }).unwrap();
    assert_eq!(front_end.says(), (None, paths));
    assert_eq!(policy(&daemon), "read: pid, write: latency-rr");

    // As by mpathctl: for reads and writes, and a policy that is in force keeps its parameters.
    let params = vec![("threshold".to_owned(), "2".to_owned())];
    daemon.api.set_policy(&SetPolicy { params, ..PolicyKind::LatencyRr.into() }).unwrap();
    assert!(front_end.set(7));
    assert_eq!(policy(&daemon), "latency-rr threshold=2");
    assert!(front_end.set(9) && front_end.set(7));
    assert_eq!(policy(&daemon), "latency-rr");

    let before = front_end.space();
    for id in [0, 10, u16::MAX] {
        assert!(!front_end.set(id), "{id}");
    }
    assert_eq!((front_end.space(), policy(&daemon)), (before, "latency-rr".into()));
    assert!(daemon.log().contains("no path policy has the id 10"), "{}", daemon.log());
}

#[test]
fn paths_that_change_are_told_of_whoever_changes_them() {
    let (target, daemon, mut front_end) = with_window();
    let mut is_told = |paths| front_end.is_told((PolicyKind::RoundRobin, paths));
    let steer = |path, action| {
        let path = PathSelector::Index(path);
        daemon.api.steer(&SteerPaths { path, disk: None, action, force: false }).unwrap();
    };
    steer(1, PathAction::Drain);
    is_told([2, 1, 1]);
    steer(1, PathAction::Enable);
    is_told([2, 2, 2]);
    steer(1, PathAction::Disable);
    is_told([2, 1, 1]);
    target.set(0, "ana=non-optimized");
    is_told([2, 1, 0]);
    steer(1, PathAction::Enable);
    is_told([2, 2, 1]);
    target.set(0, "ana=inaccessible");
    is_told([2, 1, 1]);
    target.set(0, "ana=optimized");
    is_told([2, 2, 2]);
    // Nobody here has a hand in that.
    target.stop_listener(0);
    is_told([2, 1, 1]);
    target.resume_listener(0).unwrap();
    is_told([2, 2, 2]);
    let paths = daemon.api.remove_path("disk0", &PathSelector::Index(1), false).unwrap();
    is_told([1, 1, 1]);
    daemon.api.add_path("disk0", &AddPath { address: paths[0].address.clone() }).unwrap();
    is_told([2, 2, 2]);
}

/// What the front-end sets, what the operator sets and what happens to paths are the matter of different threads.
#[test]
fn all_may_change_it_at_once() {
    let (_target, daemon, mut front_end) = with_window();
    let by_operator = || {
        for policy in PolicyKind::ALL.into_iter().cycle().take(100) {
            daemon.api.set_policy(&set_policy(policy)).unwrap();
        }
    };
    let of_paths = || {
        for action in [PathAction::Drain, PathAction::Enable].into_iter().cycle().take(100) {
            let path = PathSelector::Index(1);
            daemon.api.steer(&SteerPaths { path, disk: None, action, force: false }).unwrap();
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
    front_end.is_told((PolicyKind::Numa, [2, 2, 2]));
    assert_eq!(policy(&daemon), "numa");
}

#[test]
fn disks_that_share_paths_have_a_window_each_if_they_want_one() {
    let target =
        Target::with(2, |config| config.namespaces.extend([32, 16].map(|mib| NamespaceConfig::memory(mib << 20))));
    let place = Place::new();
    let paths = target.addrs().iter().map(|path| format!("tcp://{path}")).collect::<Vec<_>>().join(", ");
    let file = |name| place.file(name).display().to_string();
    let text = format!(
        "api: {}\ndisks:\n  - {{name: system, socket-path: {}, subsystem: '{NQN}', namespace: 1, paths: [{paths}], \
         policy: numa, mpath-window: true, share-paths-with: [{{name: data, socket-path: {}, namespace: 2, \
         mpath-window: true}}, {{name: backup, socket-path: {}, namespace: 3}}]}}\n",
        place.api().display(),
        file("system"),
        file("data"),
        file("backup")
    );
    fs::write(place.file("config.yaml"), text).unwrap();
    let mut command = program();
    command.arg("--config").arg(place.file("config.yaml"));
    let daemon = place.spawn(command).ready();
    let [mut system, mut data, mut backup] =
        ["system", "data", "backup"].map(|name| FrontEnd::connect(&daemon.place.file(name)));
    system.is_told((PolicyKind::Numa, [2, 2, 2]));
    data.is_told((PolicyKind::Numa, [2, 2, 2]));

    target.set(0, "ana=2:inaccessible");
    data.is_told((PolicyKind::Numa, [2, 1, 1]));
    assert_eq!(system.says(), (Some(PolicyKind::Numa), [2, 2, 2]), "its own namespace is as before");

    // The policy is that of the disk that has the paths, as for mpathctl.
    assert!(!data.set(2) && system.set(2));
    data.is_told((PolicyKind::RoundRobin, [2, 1, 1]));
    assert_eq!(system.says().0, Some(PolicyKind::RoundRobin));

    assert_eq!(backup.space()[60..], [0; 196]);
    assert!(!backup.set(2));
    assert!(daemon.status().disks.iter().map(|disk| disk.mpath_window).eq([true, true, false]));
}
