//! `vublk-bench` against the reference back-end: a good disk passes, a disk without memory does not, and each exit
//! status means what the manual says. Needs `qemu-storage-daemon` (Debian: qemu-system-common).

// Helpers of tests fail a test by panicking, too.
#![allow(clippy::unwrap_used)]

use patience::eventually;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use tempfile::TempDir;
use vublk_bench::process::Managed;

struct Disk {
    daemon: Managed,
    directory: TempDir,
}

/// A disk of 32 MiB with two queues; its socket appears some time later.
fn disk(blockdev: &str) -> Disk {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let mut command = Command::new("qemu-storage-daemon");
    command.args(["--blockdev", &blockdev.replace("IMAGE", image.to_str().unwrap())]);
    command.arg("--export").arg(format!(
        "type=vhost-user-blk,id=e,node-name=disk,writable=on,num-queues=2,addr.type=unix,addr.path={}",
        directory.path().join("socket").display()
    ));
    let daemon = Managed::spawn("qemu-storage-daemon", command, directory.path());
    Disk { daemon: daemon.expect("qemu-storage-daemon is installed"), directory }
}

fn good_disk() -> Disk {
    disk("driver=file,node-name=disk,filename=IMAGE,discard=unmap")
}

fn bench(directory: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vublk-bench"));
    command.arg("--socket-path").arg(directory.join("socket"));
    command.args(arguments.split_whitespace()).args(["-o", "json"]).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn a_good_disk_is_verified_twice_and_measured() {
    let disk = good_disk();
    for _ in 0..2 {
        let output = bench(disk.directory.path(), "--rw verify --queues 2 --bs 32k --time 1s");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let verify = &json(&output)["verify"];
        for (count, least) in [("blocks_written", 50), ("blocks_verified", 50), ("blocks_read_back", 50)] {
            assert!(verify[count].as_u64() > Some(least), "{count} in {verify}");
        }
        assert_eq!(verify["blocks_read_back"], verify["known_blocks"]);
    }
    let output = bench(disk.directory.path(), "--rw randrw --queues 2 --time 500ms --seed 7");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = json(&output);
    assert_eq!((&report["seed"], &report["config"]["iodepth"]), (&7.into(), &32.into()));
    for class in ["read", "write"] {
        assert!(report["total"][class]["latency_us"]["p99.9"].as_f64() > Some(0.0), "{report}");
    }
    assert_eq!(report["queues"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_disk_that_forgets_is_found_out() {
    for (read_zeroes, expected) in [("on", "zeroes"), ("off", "nothing: the read buffer was not written")] {
        let forgetful = disk(&format!("driver=null-co,node-name=disk,size=33554432,read-zeroes={read_zeroes}"));
        let output = bench(forgetful.directory.path(), "--rw verify --bs 8k --time 300ms");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let verify = &json(&output)["verify"];
        assert!(verify["miscompares"].as_u64() > Some(0), "{verify}");
        assert_eq!(verify["first_miscompares"][0]["got"], expected);
    }
}

#[test]
fn requests_of_a_dead_back_end_are_lost_and_named() {
    let Disk { daemon, directory } = good_disk();
    let image = directory.path().join("image");
    let killer = thread::spawn(move || {
        eventually("something is written", || fs::metadata(&image).unwrap().blocks() > 0);
        drop(daemon);
    });
    let output = bench(directory.path(), "--rw randwrite --iodepth 4 --time 300s");
    killer.join().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let failures = &json(&output)["failures"];
    assert!(failures["fatal"][0]["reason"].as_str().is_some_and(|why| why.contains("closed the connection")));
    assert_eq!(failures["lost"][0]["request"]["kind"], "write", "{failures}");
}

#[test]
fn bad_options_and_missing_back_ends_are_told_apart() {
    let disk = good_disk();
    for (arguments, message) in [
        ("--rw bogus", "invalid value 'bogus'"),
        ("--rw read --time 0", "must be longer than 0"),
        ("--rw read --queues 3", "--queues 3, but the back-end offers 2"),
        ("--rw read --size 64MiB", "lie inside the disk"),
    ] {
        let output = bench(disk.directory.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(message), "{arguments}: {output:?}");
    }
    let nobody = tempfile::tempdir().unwrap();
    let output = bench(nobody.path(), "--rw read --connect-timeout 100ms");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("No such file"), "{output:?}");
}
