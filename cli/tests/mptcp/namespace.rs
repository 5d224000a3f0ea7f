//! Tests in network namespaces of their own, and a target's side in another one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use mptcp::supported;
use socket2::{Domain, Protocol, Socket, Type};

/// Set for tests that have a network namespace of their own, and so may change the network.
const INSIDE: &str = "MPTCP_TEST_HAS_A_NAMESPACE";

pub(crate) const PORT: u16 = 4420;

/// Prints why a test is skipped. Bypasses the test harness, which hides the output of a test that passes.
pub(crate) fn skipped(why: &str) {
    #[allow(clippy::explicit_write)]
    writeln!(std::io::stderr(), "SKIPPED: {}: {why}", std::thread::current().name().unwrap_or("a test")).unwrap();
}

pub(crate) fn must_be_inside() {
    assert!(std::env::var_os(INSIDE).is_some(), "this test is run by another one, in a namespace");
}

/// Runs the test of that name, which is ignored otherwise, in a network namespace of its own.
pub(crate) fn in_a_namespace(test: &str) {
    if let Err(why) = supported() {
        return skipped(&why.to_string());
    }
    let unshare = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "--"]).args(program).env(INSIDE, "1").stdin(Stdio::null());
        command
    };
    match unshare(&["sh", "-ec", "ip link add a0 type veth peer name b0; ip mptcp endpoint show; nsenter --version"])
        .output()
    {
        Err(error) => return skipped(&format!("unshare: {error}")),
        Ok(output) if !output.status.success() => {
            return skipped(&format!("no namespace with veth: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(_) => {}
    }
    let this = std::env::current_exe().unwrap();
    let run = unshare(&[this.to_str().unwrap(), "--exact", test, "--ignored"]).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
}

pub(crate) fn sh(script: &str) {
    let run = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(run.status.success(), "{script}: {}", String::from_utf8_lossy(&run.stderr));
}

/// Ended when dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The target's side: another network namespace. Its cards `b0` and `b1` are the other ends of `a0` and `a1` in this one.
pub(crate) struct Target(Running);

impl Target {
    pub(crate) fn new() -> Self {
        sh("ip link set lo up; ip link add a0 type veth peer name b0; ip link add a1 type veth peer name b1");
        let child = Command::new("unshare")
            .args(["--net", "--", "sh", "-ec", "ip link set lo up; echo there; exec sleep 60"])
            .stdout(Stdio::piped())
            .spawn();
        let mut target = Self(Running(child.unwrap()));
        let mut line = String::new();
        BufReader::new(target.0.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "there\n");
        let id = target.0.0.id();
        sh(&format!("ip link set b0 netns {id}; ip link set b1 netns {id}; ip link set a0 up; ip link set a1 up"));
        target.sh("ip link set b0 up; ip link set b1 up");
        target
    }

    pub(crate) fn nsenter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.0.0.id().to_string(), "--net", "--"]);
        command
    }

    pub(crate) fn sh(&self, script: &str) {
        let run = self.nsenter().args(["sh", "-ec", script]).output().unwrap();
        assert!(run.status.success(), "{script}: {}", String::from_utf8_lossy(&run.stderr));
    }

    /// Starts a process there that accepts MPTCP connections and takes all their data.
    pub(crate) fn listening(&self) -> Running {
        let this = std::env::current_exe().unwrap();
        let mut command = self.nsenter();
        command.arg(this).args(["--exact", "namespace::sink_in_a_namespace", "--ignored", "--nocapture"]);
        let mut sink = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(sink.0.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("listening")));
        sink
    }
}

#[test]
#[ignore = "listens everywhere: runs in a namespace, by other tests"]
fn sink_in_a_namespace() {
    must_be_inside();
    let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
    listener.bind(&SocketAddr::from(([0, 0, 0, 0], PORT)).into()).unwrap();
    listener.listen(8).unwrap();
    println!("listening");
    let mut buffer = vec![0; 1 << 16];
    // One after the other, until it is killed.
    loop {
        let (mut connection, _) = listener.accept().unwrap();
        while connection.read(&mut buffer).is_ok_and(|read| read > 0) {}
    }
}
