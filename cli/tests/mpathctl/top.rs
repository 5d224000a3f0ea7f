//! `mpathctl top` in a terminal.

use std::os::unix::process::ExitStatusExt;

use crate::daemon::Daemon;
use crate::fake::Fake;
use crate::terminal::Terminal;

fn top(daemon: &Daemon, env: &[(&str, &str)]) -> Terminal {
    let terminal = Terminal::start(daemon, &["top", "--interval", "100ms"], (24, 80), env);
    terminal.wait_for("127.0.0.1:4421");
    terminal
}

#[test]
fn disks_are_watched_and_changed_by_keys() {
    let daemon = Daemon::start();
    let mut top = top(&daemon, &[]);
    top.wait("the alternate screen", vt100::Screen::alternate_screen);
    for part in ["disk0    degraded", "disk1    ok", "lost: Connection refused", "burst-credit", "path-live"] {
        top.wait_for(part);
    }
    // The policy above in the list.
    top.type_keys("p");
    top.wait_for("> round-robin");
    top.type_keys("k\r");
    top.wait_for("disk0: policy set to numa");
    top.wait_for("Paths of disk0: numa");
    assert_eq!(daemon.run(&["policy", "get", "--disk", "disk0"]), "DISK   POLICY\ndisk0  numa\n");
    // Latency is the first kind.
    top.type_keys("i\r");
    top.wait_for("inject set 0 --latency 30ms --for 60s");
    top.type_keys("\r");
    top.wait_for("latency 30ms (60 s left)");
    assert_eq!(daemon.run(&["inject", "list"]).lines().count(), 2);
    top.type_keys("c");
    top.wait_for("injections cleared: 1");
    top.wait_without("latency 30ms (");
    // The other path is lost.
    top.type_keys("d");
    top.wait_for("No usable path is left");
    top.type_keys("n");
    top.wait_without("No usable path is left");
    top.type_keys("dy");
    top.wait_for("4420      draining");
    top.type_keys("e");
    top.wait_for("4420      live");
    top.type_keys("?");
    top.wait_for("drop its association");
    top.type_keys("?");
    top.wait_without("drop its association");
    top.resize(40, 140);
    top.wait_for("SCHEDULER");
    top.type_keys("q");
    assert!(top.ended().success());
    top.is_restored();
}

#[test]
fn a_refusal_is_told_and_the_view_goes_on() {
    let daemon = Daemon::start();
    let top = top(&daemon, &[]);
    // Path 1 counts as disabled.
    top.type_keys("\tjr");
    top.wait_for("reset disk0 path 1");
    top.type_keys("y");
    top.wait_for("error: ");
    top.type_keys("k");
    top.wait_without("error: ");
}

#[test]
fn the_view_goes_on_when_the_daemon_is_back() {
    let daemon = Daemon::start();
    let top = top(&daemon, &[]);
    let dir = daemon.stop();
    top.wait_for("NO ANSWER for ");
    top.wait_for("error: no daemon listens on ");
    assert!(top.contents().contains("127.0.0.1:4421"));
    let _daemon = Daemon::start_in(dir, Fake { boot_id: "second", ..Fake::new() });
    top.wait_without("NO ANSWER");
}

#[test]
fn a_signal_leaves_the_terminal_in_order() {
    let daemon = Daemon::start();
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let mut top = top(&daemon, &[]);
        top.signal(name);
        assert_eq!(top.ended().signal(), Some(number));
        top.is_restored();
    }
}

#[test]
fn colours_are_left_out_on_request() {
    let daemon = Daemon::start();
    for (env, has_colours) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        assert_eq!(top(&daemon, env).has_colours(), has_colours, "{env:?}");
    }
}

#[test]
fn without_a_terminal_there_is_one_clear_error() {
    let (code, stderr) = Daemon::start().fail(&["top"]);
    assert_eq!((code, stderr.lines().count()), (2, 1));
    assert!(stderr.starts_with("mpathctl: top needs a terminal; "), "{stderr}");
}
