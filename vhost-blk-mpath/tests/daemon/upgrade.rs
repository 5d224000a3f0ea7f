//! A daemon starts its program anew and hands over to it, while guests work.

use std::io::Write;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs, thread};

use mpath_api::client::{Client, ClientError};
use mpath_api::types::{ActOnPaths, EventKind, PathAction, PathSelector, Upgrade};
use mpath_api_server::socket::peer_pid;
use mpath_config::{Config, DiskConfig, SharerConfig};
use rustix::process::{Pid, Signal, kill_process};
use vublk_bench::request::Status;

use crate::daemon_replacement::ReplacedGuests;
use crate::support::{
    Daemon, DaemonDirectory, Disk, NQN, PATIENCE, Target, activated, disk, eventually, inherit_descriptor, own_address,
    program, sharer, socket_of, target_of,
};

/// A daemon that has taken over, and is no child of this process.
pub(crate) struct NextDaemon(u32);

impl NextDaemon {
    /// Has the daemon upgraded, and waits until the new process answers.
    pub(crate) fn of(daemon: &Daemon) -> Self {
        Self::upgraded(daemon, false)
    }

    /// The same with `--force`.
    pub(crate) fn by_force(daemon: &Daemon) -> Self {
        Self::upgraded(daemon, true)
    }

    fn upgraded(daemon: &Daemon, force: bool) -> Self {
        let Upgrade { pid, .. } = daemon.api.upgrade(force).unwrap();
        let next = Self(pid);
        eventually("the new process answers", || daemon.api.status().is_ok_and(|status| status.pid == pid));
        next
    }

    fn exists(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        // The first process of a container may not wait for orphans.
        !status.is_empty() && !status.contains("State:\tZ")
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_raw(self.0.cast_signed()).unwrap(), signal);
    }

    /// Ends it in order.
    pub(crate) fn end(self) {
        self.signal(Signal::TERM);
        eventually("the daemon ends", || !self.exists());
    }

    fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.0)).unwrap().count()
    }
}

impl Drop for NextDaemon {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// The programs that daemons are upgraded to in turn: those of `DAEMON_BUILDS`, separated by colons.
fn builds() -> Vec<PathBuf> {
    let own = env!("CARGO_BIN_EXE_vhost-blk-mpath").to_owned();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    env::var("DAEMON_BUILDS").unwrap_or(own).split(':').map(|path| root.join(path)).collect()
}

/// Has the program be another one from now on. A copy of the file could still be open for writing in a process that another
/// test starts, and could not be executed then.
fn install(build: &Path, program: &Path) {
    let new = program.with_extension("new");
    symlink(build, &new).unwrap();
    fs::rename(new, program).unwrap();
}

/// Checks the times without service in this number of upgrades. A busy machine may take longer, so only a long run is
/// judged.
fn judge(mut pauses: Vec<Duration>, upgrades: usize) {
    pauses.sort();
    let (median, longest) = (pauses[pauses.len() / 2], pauses[pauses.len() - 1]);
    println!("{} times without service in {upgrades} upgrades: median {median:?}, longest {longest:?}", pauses.len());
    let limit = if upgrades > 5 { Duration::from_millis(200) } else { PATIENCE };
    assert!(longest < limit, "{longest:?}");
}

/// Two disks share their paths, one has its own, and one of these is mute. One socket is passed by socket activation.
#[test]
fn guests_go_on_over_many_upgrades() {
    let upgrades = env::var("UPGRADES").map_or(5, |count| count.parse().unwrap());
    let (builds, target, place) = (builds(), target_of(3, 2, 8 << 20), DaemonDirectory::new());
    let mute = TcpListener::bind(own_address()).unwrap();
    let queues = "4".parse().unwrap();
    let with_queues = |number| DiskConfig { queues, ..disk(&place, &target, number) };
    let sharer = SharerConfig { queues, ..sharer(&place, 1) };
    let shared = DiskConfig { share_paths_with: vec![sharer], ..with_queues(0) };
    let mut separate = with_queues(2);
    separate.paths.push(format!("tcp://{}", mute.local_addr().unwrap()).parse().unwrap());
    let sockets: Vec<_> = (0..3).map(|disk| socket_of(&place, disk)).collect();
    let passed = UnixListener::bind(&sockets[2]).unwrap();
    let program = place.file("program");
    install(&builds[0], &program);
    let configured = place.configured(vec![shared, separate]);
    let mut command = Command::new(&program);
    command.args(configured.get_args());
    let daemon = place.spawn(activated(&command, &[&passed])).answers();
    let guests = ReplacedGuests::start(sockets.iter().cloned());
    eventually("all guests are served", || daemon.status().disks.iter().all(|disk| disk.connected));
    let (mut earlier, mut open_files): (Option<NextDaemon>, Vec<usize>) = (None, Vec::new());
    for round in 1..=upgrades {
        install(&builds[round % builds.len()], &program);
        let next = NextDaemon::of(&daemon);
        guests.are_back(round);
        if let Some(earlier) = earlier.replace(next) {
            eventually("the earlier process is gone", || !earlier.exists());
        }
        open_files.push(earlier.as_ref().unwrap().open_files());
    }
    let (_, pauses) = guests.finish();
    judge(pauses, upgrades);
    // Connections that are being made come and go.
    assert!(open_files[upgrades - 1] < open_files[0] + 8, "{open_files:?}");
    earlier.take().unwrap().end();
    let own = [&sockets[0], &sockets[1], &daemon.place.api()];
    assert!(own.iter().all(|socket| !socket.exists()), "the last daemon removes them");
    assert!(sockets[2].exists(), "it belongs to another process");
    let record = |socket: &PathBuf| PathBuf::from(format!("{}.fence", socket.display()));
    assert!(sockets.iter().all(|socket| !record(socket).exists()));
}

/// The events that concern no disk.
fn of_the_daemon(daemon: &Daemon) -> Vec<(EventKind, String)> {
    let events = daemon.api.events(0).unwrap().events.into_iter();
    events.filter(|event| event.disk.is_none()).map(|event| (event.kind, event.message)).collect()
}

/// The upgrade is refused with these words, and the daemon goes on.
pub(crate) fn is_refused(daemon: &Daemon, words: &[&str]) {
    let before = daemon.status();
    let error = match daemon.api.upgrade(false) {
        Err(ClientError::Refused(error)) => error.message,
        other => panic!("{other:?}"),
    };
    for word in words {
        assert!(error.contains(word), "{word:?} is not in {error:?}");
    }
    assert!(daemon.log().contains("no upgrade: "), "{}", daemon.log());
    let events = of_the_daemon(daemon);
    let [.., begun, failed] = &events[..] else { panic!("{events:?}") };
    assert_eq!((begun.0, failed.0), (EventKind::UpgradeBegun, EventKind::UpgradeFailed));
    assert_eq!(failed.1, format!("no upgrade: {error}"));
    if !before.disks[0].connected {
        let mut disk = Disk::connect(&socket_of(&daemon.place, 0));
        assert_eq!((disk.write(0, 7), disk.read(0)), (Status::Ok, 7));
        drop(disk);
        eventually("the front-end has left", || !daemon.status().disks[0].connected);
    }
    let after = daemon.status();
    assert_eq!((after.pid, after.disks.len()), (before.pid, before.disks.len()));
}

#[test]
fn a_daemon_goes_on_if_the_next_one_cannot_serve() {
    let target = target_of(2, 2, 8 << 20);
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    let file = place.file("config.yaml");
    let daemon = place.spawn(command).ready();
    let config = fs::read_to_string(&file).unwrap();
    fs::write(&file, config.replace("\"namespace\":1", "\"namespace\":0")).unwrap();
    is_refused(&daemon, &["the new process does not take over", "namespace", "the daemon goes on"]);
    fs::write(&file, config.replace("\"namespace\":1", "\"namespace\":9")).unwrap();
    let [first, second] = target.addrs()[..] else { panic!("{:?}", target.addrs()) };
    let remedy = "enable or attach it on the target, or correct `namespace`";
    let why = format!("`namespace` 9 is not active on the controller; active: 1, 2; {remedy}");
    let paths = format!("tcp://{first} ({why}), tcp://{second} ({why});");
    is_refused(&daemon, &["disk disk-0: no path leads to its namespace", &paths, "--force"]);
    // Sockets that are not passed are created before the daemon ends.
    let group = Some("no-such-group".parse().unwrap());
    daemon.place.configured(vec![
        disk(&daemon.place, &target, 0),
        DiskConfig { socket_group: group, ..disk(&daemon.place, &target, 1) },
    ]);
    is_refused(&daemon, &["no-such-group", "unknown"]);
    // Another process has the place of the socket.
    let socket = socket_of(&daemon.place, 0);
    daemon.place.configured(vec![disk(&daemon.place, &target, 0)]);
    let moved = daemon.place.file("moved");
    fs::rename(&socket, &moved).unwrap();
    let other = UnixListener::bind(&socket).unwrap();
    let error = daemon.api.upgrade(false).unwrap_err().to_string();
    assert!(error.contains("another process listens on this vhost-user socket"), "{error}");
    assert!(socket.exists(), "it is not the daemon's");
    drop(other);
    fs::rename(&moved, &socket).unwrap();
    let version = daemon.status().version;
    let before = daemon.api.events(0).unwrap();
    let next = NextDaemon::of(&daemon);
    let takes_over = format!("process {} with version {version} takes over", next.0);
    let events = of_the_daemon(&daemon);
    let [.., begun, takes, took] = &events[..] else { panic!("{events:?}") };
    assert_eq!((begun.0, takes), (EventKind::UpgradeBegun, &(EventKind::Upgraded, takes_over.clone())));
    assert_eq!(took, &(EventKind::Upgraded, format!("took over from version {version}")));
    let after = daemon.api.events(0).unwrap();
    assert_eq!((&after.boot_id, &after.events[..before.events.len()]), (&before.boot_id, &before.events[..]));
    let by = after.events.iter().filter(|event| event.kind == EventKind::Upgraded).map(|event| event.by.as_ref()?.pid);
    assert_eq!(by.collect::<Vec<_>>(), [Some(std::process::id()); 2]);
    assert!(daemon.log().contains(&takes_over), "{}", daemon.log());
    next.end();
    assert!(!socket.exists());
}

#[test]
fn a_connected_front_end_keeps_its_disk() {
    let target = target_of(2, 1, 8 << 20);
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    let daemon = place.spawn(command).ready();
    let mut guest = Disk::connect(&socket_of(&daemon.place, 0));
    eventually("it is connected", || daemon.status().disks[0].connected);
    let place = &daemon.place;
    let own = disk(place, &target, 0);
    place.configured(vec![disk(place, &target, 1)]);
    is_refused(&daemon, &["a front-end is connected to", "disk-0", "has no disk with this socket"]);
    place.configured(vec![DiskConfig { namespace: "2".parse().ok(), ..own.clone() }]);
    is_refused(&daemon, &["namespace 1 of", "and the configuration has namespace 2 of", "--force"]);
    place.configured(vec![DiskConfig { read_only: true, ..own.clone() }]);
    is_refused(&daemon, &["writable", "read-only"]);
    let command = place.configured(vec![own]);
    let file = place.file("config.yaml");
    let config = fs::read_to_string(&file).unwrap();
    fs::write(&file, config.replace("/api.sock", "/api2.sock")).unwrap();
    is_refused(&daemon, &["the API's socket is now", "restart the daemon"]);
    drop(command);
    fs::write(&file, config).unwrap();
    assert_eq!((guest.write(0, 7), guest.read(0)), (Status::Ok, 7));
    drop(guest);
    NextDaemon::of(&daemon).end();
}

#[test]
fn a_socket_file_that_was_removed_is_created_again() {
    let target = target_of(1, 1, 8 << 20);
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    let daemon = place.spawn(command).ready();
    let socket = socket_of(&daemon.place, 0);
    fs::remove_file(&socket).unwrap();
    let next = NextDaemon::of(&daemon);
    assert_eq!(Disk::connect(&socket).write(0, 7), Status::Ok);
    next.end();
    assert!(!socket.exists());
}

/// The configuration has another socket for the same namespace, so no lock of the disk keeps the two apart.
#[test]
fn the_next_daemon_serves_only_when_the_earlier_process_is_gone() {
    let target = target_of(1, 1, 8 << 20);
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    let daemon = place.spawn(command).ready();
    let other = daemon.place.file("other.sock").to_str().unwrap().parse().unwrap();
    daemon.place.configured(vec![DiskConfig { socket_path: other, ..disk(&daemon.place, &target, 0) }]);
    // The end of the daemon waits for this request.
    let mut guest = Disk::connect(&socket_of(&daemon.place, 0));
    target.set(0, "hold=on");
    guest.submit_write(0, 0, 7);
    eventually("the write is there", || target.status()[0].held > 0);
    let next = NextDaemon(daemon.api.upgrade(true).unwrap().pid);
    daemon.signal(Signal::STOP);
    let client = Client::new(&daemon.place.api(), Duration::from_secs(1)).unwrap();
    for _ in 0..3 {
        assert!(client.status().is_err(), "it must not serve");
    }
    assert!(daemon.log().contains("ready to take over"));
    assert!(!daemon.log().contains("the earlier daemon has ended"));
    daemon.signal(Signal::CONT);
    target.set(0, "hold=off");
    eventually("the new process answers", || client.status().is_ok_and(|status| status.pid == next.0));
    next.end();
}

#[test]
fn the_end_of_the_daemon_ends_an_upgrade_under_way() {
    let target = target_of(1, 1, 8 << 20);
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    let daemon = place.spawn(command).ready();
    // The rehearsal gets no answer.
    target.set(0, "black-hole=mute");
    let (api, before) = (daemon.place.api(), target.connections(0));
    let upgrade = thread::spawn(move || Client::new(&api, PATIENCE).unwrap().upgrade(false));
    eventually("the new process connects", || target.connections(0) > before);
    let second = daemon.api.upgrade(false).unwrap_err().to_string();
    assert!(second.contains("another upgrade or a reload is under way"), "{second}");
    let reload = daemon.api.reload(false, false).unwrap_err().to_string();
    assert!(reload.contains("another reload or an upgrade is under way"), "{reload}");
    let (ended, place) = daemon.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(upgrade.join().unwrap().is_err());
    assert!(!ended.log.contains("ready to take over"), "{}", ended.log);
    assert!(!place.api().exists() && !socket_of(&place, 0).exists());
}

#[test]
fn an_upgrade_goes_on_without_its_client() {
    let target = target_of(1, 1, 8 << 20);
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    let daemon = place.spawn(command).ready();
    let before = daemon.status().pid;
    let ask_and_leave = || {
        let begun = daemon.log().matches("upgrade begun").count();
        let mut client = UnixStream::connect(daemon.place.api()).unwrap();
        client.write_all(b"POST /v1/upgrade HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").unwrap();
        eventually("the upgrade begins", || daemon.log().matches("upgrade begun").count() > begun);
    };
    // The rehearsal gets no answer.
    target.set(0, "black-hole=mute");
    ask_and_leave();
    let failed = |events: Vec<(EventKind, String)>| events.last().unwrap().0 == EventKind::UpgradeFailed;
    eventually("the failure is told", || failed(of_the_daemon(&daemon)));
    target.set(0, "black-hole=off");
    ask_and_leave();
    let mut next = None;
    eventually("the new process answers", || {
        next = daemon.api.status().ok().filter(|status| status.pid != before).map(|status| NextDaemon(status.pid));
        next.is_some()
    });
    next.unwrap().end();
}

#[test]
fn a_path_out_of_use_is_not_used_again_by_an_upgrade() {
    let target = target_of(1, 2, 8 << 20);
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    let daemon = place.spawn(command).ready();
    for (action, state) in [(PathAction::Drain, "draining"), (PathAction::Disable, "disabled")] {
        daemon
            .api
            .act_on_paths(&ActOnPaths { path: PathSelector::Index(1), disk: None, all: false, action, force: false })
            .unwrap();
        eventually("the path is out of use", || daemon.paths()[1].state.to_string() == state);
        let state = if state == "draining" { "drained" } else { state };
        is_refused(&daemon, &[&daemon.paths()[1].address.to_string(), state, "--force"]);
    }
    let next = NextDaemon(daemon.api.upgrade(true).unwrap().pid);
    eventually("the new process answers", || daemon.api.status().is_ok_and(|status| status.pid == next.0));
    next.end();
}

#[test]
fn a_path_that_is_disabled_during_an_upgrade_is_not_used_again() {
    let target = target_of(1, 2, 8 << 20);
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    let daemon = place.spawn(command).ready();
    // The rehearsal waits for answers.
    let before = target.connections(0);
    (0..2).for_each(|path| target.set(path, "black-hole=mute"));
    let api = daemon.place.api();
    let upgrade = thread::spawn(move || Client::new(&api, PATIENCE).unwrap().upgrade(false));
    eventually("the new process connects", || target.connections(0) > before);
    let disable =
        ActOnPaths { path: PathSelector::Index(1), disk: None, all: false, action: PathAction::Disable, force: false };
    daemon.api.act_on_paths(&disable).unwrap();
    (0..2).for_each(|path| target.set(path, "black-hole=off"));
    let error = upgrade.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("is disabled, and an upgrade would forget that"), "{error}");
}

#[test]
fn sockets_of_disks_that_are_not_configured_any_more_are_removed() {
    let target = target_of(2, 1, 8 << 20);
    let place = DaemonDirectory::new();
    let disks = [0, 1].map(|number| disk(&place, &target, number));
    let command = place.configured(disks.to_vec());
    let daemon = place.spawn(command).ready();
    daemon.place.configured(disks[..1].to_vec());
    let next = NextDaemon::of(&daemon);
    eventually("the socket is removed", || !socket_of(&daemon.place, 1).exists());
    assert_eq!(Disk::connect(&socket_of(&daemon.place, 0)).write(0, 7), Status::Ok);
    next.end();
}

#[test]
fn a_daemon_with_a_passed_front_end_cannot_be_upgraded() {
    let target = target_of(1, 1, 8 << 20);
    let place = DaemonDirectory::new();
    let passed = UnixListener::bind(place.socket()).unwrap();
    let mut command = program();
    command.arg("--fd").arg(passed.as_raw_fd().to_string()).arg("--api").arg(place.api());
    command.args(["--subsystem", NQN, "--path", &format!("tcp://{}", target.addrs()[0])]);
    inherit_descriptor(&mut command, &passed);
    let daemon = place.spawn(command).ready();
    let error = daemon.api.upgrade(true).unwrap_err().to_string();
    assert!(error.contains("started with --fd"), "{error}");
}

/// A service manager would otherwise take the end of the first process for the end of the service.
#[test]
fn a_service_manager_learns_which_process_serves() {
    let target = target_of(1, 1, 8 << 20);
    let place = DaemonDirectory::new();
    let manager = UnixDatagram::bind(place.file("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = place.configured(vec![disk(&place, &target, 0)]);
    command.env("NOTIFY_SOCKET", place.file("notify"));
    let daemon = place.spawn(command).ready();
    let told = || {
        let mut text = [0; 256];
        let bytes = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..bytes]).trim().to_owned()
    };
    assert_eq!(told(), "READY=1");
    let next = NextDaemon::of(&daemon);
    assert_eq!([told(), told()], [format!("MAINPID={}", next.0), "READY=1".into()]);
    next.signal(Signal::TERM);
    assert_eq!(told(), "STOPPING=1");
    next.end();
}

#[test]
fn the_api_socket_that_only_reads_stays() {
    let target = Target::start(1);
    let place = DaemonDirectory::new();
    let socket = place.file("read.sock");
    let command = place.command(&target.addrs(), &format!("--api-read-only {}", socket.display()));
    let daemon = place.spawn(command).ready();
    let inode = || fs::metadata(&socket).unwrap().ino();
    let before = inode();
    let next = NextDaemon::of(&daemon);
    let reader = Client::new(&socket, PATIENCE).unwrap();
    assert_eq!((reader.status().unwrap().pid, inode()), (next.0, before));
    // A client that gets no answer names the process that hangs.
    assert_eq!(peer_pid(&UnixStream::connect(&socket).unwrap()), Some(next.0));
    next.end();
    assert!(!socket.exists());
}

/// Everyone may connect to such a socket.
#[test]
fn a_socket_that_only_reads_stays_and_does_not_become_the_api() {
    let target = target_of(1, 1, 8 << 20);
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0)]);
    let file = place.file("config.yaml");
    let api = Config::load(&file).unwrap();
    let read_only = Config { api_read_only: place.file("read.sock").to_str().unwrap().parse().ok(), ..api.clone() };
    let write = |config: &Config| fs::write(&file, serde_json::to_string(config).unwrap()).unwrap();
    write(&read_only);
    let daemon = place.spawn(command).ready();
    write(&api);
    is_refused(&daemon, &["read.sock is the running daemon's API socket that only reads", "add `api-read-only: "]);
    write(&Config { api: read_only.api_read_only.unwrap(), ..api });
    is_refused(&daemon, &["read.sock is the read-only API socket of the running daemon", "as API socket"]);
    assert!(daemon.api.upgrade(true).is_err(), "not by force either");
}
