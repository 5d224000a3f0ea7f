//! Starting while something is missing.

use std::time::{Duration, Instant};

use crate::support::{Daemon, DaemonDirectory, NQN, Target, Verification, VerificationSetup, eventually, program};

#[test]
fn a_path_that_is_down_at_the_start_is_a_warning_and_comes_up_later() {
    let target = Target::start(2);
    target.stop_listener(1);
    let daemon = Daemon::start(&target.addrs(), "--reconnect-delay 1 --policy round-robin");
    assert!(daemon.is_live(0) && !daemon.is_live(1));
    let warned = format!("tcp://{}", target.addrs()[1]);
    let warning = daemon.log().lines().find(|line| line.contains("WARN") && line.contains(&warned)).map(str::to_owned);
    assert!(warning.is_some_and(|line| line.contains("Connection refused")), "{}", daemon.log());
    assert_eq!(daemon.paths()[1].last_error.as_deref(), Some("Connection refused (os error 111)"));

    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(500);
    assert_eq!(daemon.paths()[1].ios(), 0);
    target.resume_listener(1).unwrap();
    eventually("the second path comes up", || daemon.is_live(1));
    assert_eq!(daemon.paths()[1].unusable, None);
    eventually("it is used", || daemon.paths()[1].ios() > 100);
    verification.finish();
}

#[test]
fn connecting_waits_for_no_timer() {
    let (target, start) = (Target::start(2), Instant::now());
    let daemon = Daemon::start(&target.addrs(), "--keep-alive-tmo 60");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(daemon.status().disks[0].path_counts.usable, 2);
}

#[test]
fn a_path_to_another_namespace_stays_unused() {
    let (target, stranger) = (Target::start(1), Target::start(1));
    let daemon = Daemon::start(&[target.addrs()[0], stranger.addrs()[0]], "--policy round-robin");
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(500);
    verification.finish();
    let used: Vec<_> = daemon.paths().iter().map(|path| (path.state.to_string(), path.ios() > 0)).collect();
    // The first path decides the namespace.
    assert!(
        used == [("live".into(), true), ("refused".into(), false)]
            || used == [("refused".into(), false), ("live".into(), true)],
        "{used:?}"
    );
}

#[test]
fn two_daemons_do_not_share_sockets() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "");
    let command = daemon.place.command(&target.addrs(), "");
    let second = DaemonDirectory::new();
    second.refused(command).says(4, &["API socket", daemon.place.api().to_str().unwrap()]);
    assert_eq!(daemon.status().disks[0].path_counts.usable, 1);
    // A second daemon started by mistake must not count as a front-end.
    let again = DaemonDirectory::new();
    let mut command = program();
    command.arg("--api").arg(again.api()).arg("--socket-path").arg(daemon.socket()).args(["--subsystem", NQN]);
    command.arg(format!("--path=tcp://{}", target.addrs()[0]));
    let socket = daemon.socket();
    again.refused(command).says(4, &[socket.to_str().unwrap(), "another process listens on this vhost-user socket"]);
    std::thread::sleep(Duration::from_millis(300));
    let events = daemon.api.events(0, 0).unwrap().events;
    assert!(events.iter().all(|event| event.path.is_some()), "{events:?}");
}
