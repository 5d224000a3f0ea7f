//! The forms of the log.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use mpath_config::DiskConfig;
use rustix::process::Signal;
use serde_json::Value;
use vublk_bench::request::Status;

use crate::support::{Daemon, DaemonDirectory, Disk, Target, disk, eventually, target_of};

/// A daemon that thinks that its log file is the journal.
fn in_journal(target: &Target, flags: &str) -> Daemon {
    let place = DaemonDirectory::new();
    let log = File::create(place.file("daemon.log")).unwrap().metadata().unwrap();
    let mut command = place.command(&target.addrs(), flags);
    command.env("JOURNAL_STREAM", format!("{}:{}", log.dev(), log.ino()));
    place.spawn(command)
}

#[test]
fn lines_for_the_journal_have_a_priority_and_no_time() {
    let target = Target::start(2);
    target.stop_listener(1);
    let daemon = in_journal(&target, "").ready();
    eventually("a path is down", || daemon.log().contains("path down"));
    let (ended, _place) = daemon.end(Signal::TERM);
    for line in ended.log.lines() {
        let level = if line.starts_with("<6>") { "INFO" } else { "WARN" };
        assert!(line.starts_with("<6>") || line.starts_with("<4>"), "{line}");
        assert_eq!(line[3..].split_whitespace().next(), Some(level), "{line}");
    }
    assert!(ended.log.contains("<4> WARN path down: Connection refused"), "{}", ended.log);
    // A variable that a parent process has left is for another stderr.
    let place = DaemonDirectory::new();
    let mut command = place.command(&target.addrs(), "");
    command.env("JOURNAL_STREAM", "9:12345");
    let daemon = place.spawn(command).ready();
    assert!(daemon.log().starts_with("20"), "a time: {}", daemon.log());
}

#[test]
fn a_daemon_that_does_not_start_says_so_in_the_form_of_the_log() {
    let target = Target::start(1);
    let (ended, _place) = in_journal(&target, "--api-owner no-such-user").ends();
    assert!(ended.log.lines().last().unwrap().starts_with("<3>vhost-blk-mpath: "), "{}", ended.log);
    let place = DaemonDirectory::new();
    let (_, log) = place.fails(place.command(&target.addrs(), "--log-format json --api-owner no-such-user"));
    let line: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("no-such-user"), "{line}");
}

#[test]
fn a_json_log_has_an_object_a_line() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "--log-format json");
    let (ended, place) = daemon.end(Signal::TERM);
    let lines: Vec<Value> = ended.log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let served = lines.iter().find(|line| line["message"] == "front-ends are served").unwrap();
    assert_eq!((served["level"].as_str(), served["disk"].as_str()), (Some("INFO"), Some("disk0")));
    assert_eq!(served["socket"].as_str(), place.socket().to_str());
    assert!(served["timestamp"].is_string());
    assert_eq!(fs::read_to_string(place.file("daemon.log")).unwrap(), ended.log);
}

/// All that an operator needs when a guest does not connect, a path does not come up, or a client is refused.
#[test]
fn debug_shows_the_handshake_the_steps_of_paths_and_api_requests() {
    let target = Target::start(1);
    let place = DaemonDirectory::new();
    let mut command = place.command(&target.addrs(), "");
    command.env("RUST_LOG", "debug");
    let daemon = place.spawn(command).ready();
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(0, 1), Status::Ok);
    drop(disk);
    eventually("the front-end is gone", || !daemon.status().disks[0].connected);
    let (ended, _place) = daemon.end(Signal::TERM);
    let path = format!("path=tcp://{}", target.addrs()[0]);
    let uid = format!("uid={}", rustix::process::getuid().as_raw());
    for words in [
        &["features negotiated", "features=0x"][..],
        &["guest memory mapped", "guest_address=0x", "bytes="],
        &["queue started", "queue=0", "size="],
        &["queue stopped", "queue=0"],
        &["path connects queue 0", "disk=\"disk0\"", &path],
        &["connected", "qid=1", &path],
        &["path records its association with controller", &path],
        &["path state changed", "from=connecting to=live", &path],
        &["API request", "method=GET", "route=\"/v1/status\"", "status=200", "elapsed_us=", &uid],
    ] {
        let is_such = |line: &str| line.contains("DEBUG") && words.iter().all(|word| line.contains(word));
        assert!(ended.log.lines().any(is_such), "no line with {words:?} in {}", ended.log);
    }
}

#[test]
fn lines_that_repeat_without_end_are_left_out() {
    let (target, place) = (target_of(1, 1, 8 << 20), DaemonDirectory::new());
    let configured = disk(&place, &target, 0);
    let command = place.configured(vec![configured.clone()]);
    let daemon = place.spawn(command).ready();
    // Each of these settings is a line of each reload.
    let _ = daemon.place.configured(vec![DiskConfig {
        read_only: true,
        queues: "2".parse().unwrap(),
        queue_size: "32".parse().unwrap(),
        poll_us: "auto".parse().unwrap(),
        hdr_digest: true,
        data_digest: true,
        keep_alive_tmo: "7".parse().unwrap(),
        reconnect_delay: "9".parse().unwrap(),
        io_timeout: "8s".parse().unwrap(),
        shared_write_cache: true,
        ..configured
    }]);
    for _ in 0..101 {
        let reload = daemon.api.reload(false, false).unwrap_or_else(|error| panic!("{error}: {}", daemon.log()));
        assert_eq!(reload.not_live.len(), 10);
    }
    let logged = |text: &str| daemon.log().matches(text).count();
    assert_eq!(logged("not applied: disk `disk-0`: "), 1000);
    let (ended, _place) = daemon.end(Signal::TERM);
    assert!(ended.log.contains("ending: "), "other lines are there: {}", ended.log);
}
