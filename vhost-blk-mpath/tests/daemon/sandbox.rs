//! Which threads of a daemon have given up system calls.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;

use crate::support::{Daemon, eventually, target_of};

/// The threads of the daemon that have a filter of system calls, and those that have none, by name.
fn threads(daemon: &Daemon) -> (Vec<String>, Vec<String>) {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.status().pid)).unwrap();
    // A thread may end meanwhile.
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let statuses: Vec<_> = statuses.collect();
    let value = |status: &str, key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().to_owned()
    };
    let named = |mode: &str| {
        let of_mode = statuses.iter().filter(|status| value(status, "Seccomp:") == mode);
        of_mode.map(|status| value(status, "Name:")).collect()
    };
    (named("2"), named("0"))
}

#[test]
fn threads_that_serve_guests_have_given_up_system_calls() {
    let target = target_of(1, 1, 8 << 20);
    let daemon = Daemon::start(&target.addrs(), "--io-threads 2");
    let mut front_end = UnixStream::connect(daemon.socket()).unwrap();
    // The thread waits for the rest of the message.
    front_end.write_all(&[0; 1]).unwrap();
    eventually("the front-end has its thread", || threads(&daemon).0.len() == 3);
    let (mut restricted, others) = threads(&daemon);
    restricted.sort();
    assert_eq!(restricted, ["io0", "io1", "vhost-user"]);
    let is_served = |name: &String| name.starts_with("io") || name == "vhost-user";
    assert!(!others.is_empty() && !others.iter().any(is_served), "{others:?}");
}
