//! The program itself: what it prints and how it ends.
#![allow(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use common::{NQN, PATIENCE, connect, host_config};

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpath-target"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Kills what a failed assertion leaves behind.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn refused(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = program(args).output().unwrap();
    assert!(stdout.is_empty());
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn it_says_where_it_listens_and_ends_on_a_signal() {
    for signal in ["TERM", "INT"] {
        let args =
            ["--nqn", NQN, "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0,delay=1ms", "--namespace", "mem:1MiB"];
        let mut running = Running(program(&args).spawn().unwrap());
        let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
        let addrs = ["1", "2"].map(|port| {
            let line = lines.next().unwrap().unwrap();
            let (addr, rest) = line.strip_prefix("listening on ").unwrap().split_once(' ').unwrap();
            assert_eq!(rest, format!("nqn {NQN} port {port}"));
            addr.parse().unwrap()
        });
        let (_admin, mut queue, _) = connect(addrs[1], host_config());
        queue.write(0, &[5; 512], false).unwrap();
        let kill = Command::new("kill").args(["-s", signal, &running.0.id().to_string()]).status();
        assert!(kill.unwrap().success());
        let start = Instant::now();
        let status = loop {
            if let Some(status) = running.0.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < PATIENCE);
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        assert_eq!(status.code(), Some(0));
        assert!(lines.next().is_none());
    }
}

#[test]
fn bad_arguments_end_it_with_2_and_one_line() {
    for (args, word) in [
        (vec![], "--nqn"),
        (vec!["--nqn", NQN, "--listen", "127.0.0.1", "--namespace", "mem:1MiB"], "127.0.0.1"),
        (vec!["--nqn", NQN, "--listen", "127.0.0.1:0", "--namespace", "mem:1000"], "1000"),
    ] {
        let (code, message) = refused(&args);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.starts_with("mpath-target: ") && message.contains(word), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn what_cannot_be_used_ends_it_with_1_and_one_line() {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = busy.local_addr().unwrap().to_string();
    let args = ["--nqn", NQN, "--listen", &addr, "--namespace", "mem:1MiB"];
    let (code, message) = refused(&args);
    assert_eq!(code, Some(1));
    assert!(message.contains(&addr) && message.lines().count() == 1, "{message}");
    let args = ["--nqn", NQN, "--listen", "127.0.0.1:0", "--namespace", "file:/nonexistent/disk:1MiB"];
    let (code, message) = refused(&args);
    assert_eq!(code, Some(1));
    assert!(message.contains("/nonexistent/disk") && message.lines().count() == 1, "{message}");
}
