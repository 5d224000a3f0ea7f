//! Test helpers: the target, in this process or another, on an address of its own.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;

use mpath_target::{ListenerConfig, NamespaceConfig, TargetConfig, TargetServer};
use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};
use vublk_bench::process::Managed;

use super::{PATIENCE, own_address};

pub(crate) const NQN: &str = "nqn.2014-08.org.example:daemon-tests";
const NAMESPACE_BYTES: u64 = 64 << 20;

/// An address that refuses connections as long as the socket is kept: it is bound and does not listen.
pub(crate) fn refusing_address() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // A target can listen there later, although a process being started still has this socket open.
    socket.set_reuse_address(true).unwrap();
    socket.bind(&own_address().into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

pub(crate) struct Target(TargetServer);

impl Target {
    /// One namespace of 64 MiB behind this many listeners.
    pub(crate) fn start(listeners: usize) -> Self {
        Self::with(listeners, |_| {})
    }

    pub(crate) fn with(listeners: usize, change: impl FnOnce(&mut TargetConfig)) -> Self {
        let mut config = TargetConfig::new(NQN);
        let address = own_address();
        config.listeners = vec![ListenerConfig::new(address); listeners];
        config.namespaces = vec![NamespaceConfig::memory(NAMESPACE_BYTES)];
        change(&mut config);
        Self(TargetServer::start(config).unwrap())
    }

    /// Leaves all fences to time.
    pub(crate) fn fail_cross_resets(&self) {
        (0..self.addrs().len()).for_each(|listener| self.set(listener, "cross-reset=fail"));
    }

    /// Changes the behaviour of a listener, by settings as `mpath-target ctl` takes them.
    pub(crate) fn set(&self, listener: usize, settings: &str) {
        let settings: Vec<_> = settings.split_whitespace().map(|setting| setting.parse().unwrap()).collect();
        self.0.apply(listener, &settings).unwrap();
    }
}

impl Deref for Target {
    type Target = TargetServer;
    fn deref(&self) -> &TargetServer {
        &self.0
    }
}

/// The variable that tells a [`TargetProcess`] its namespace file.
const NAMESPACE_FILE: &str = "DAEMON_TESTS_NAMESPACE_FILE";
const LISTENING: &str = "listening on ";

/// A target in its own process, which can be stopped and continued. Several of them serve one file as one namespace.
pub(crate) struct TargetProcess {
    process: Managed,
    pub(crate) address: SocketAddr,
}

impl TargetProcess {
    /// This very program, told to run [`target_process`].
    pub(crate) fn start(folder: &Path, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "support::target::target_process", "--ignored", "--nocapture"]);
        command.env(NAMESPACE_FILE, folder.join("namespace"));
        let mut process = Managed::spawn(name, command, folder).unwrap();
        let address = process.wait_for_line(PATIENCE, |line| line.strip_prefix(LISTENING)?.parse().ok()).unwrap();
        Self { process, address }
    }

    /// Its kernel continues to acknowledge data.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.pid().cast_signed()).unwrap(), signal).unwrap();
    }
}

impl Drop for TargetProcess {
    fn drop(&mut self) {
        // A stopped process cannot end.
        self.go_on();
    }
}

#[test]
#[ignore = "no test: the program of TargetProcess"]
fn target_process() {
    let Some(file) = std::env::var_os(NAMESPACE_FILE) else { return };
    let mut config = TargetConfig::new(NQN);
    config.listeners = vec![ListenerConfig::new(own_address())];
    config.namespaces = vec![NamespaceConfig::file(file, NAMESPACE_BYTES)];
    let server = TargetServer::start(config).unwrap();
    // Ends the line that the test runner has begun.
    println!("\n{LISTENING}{}", server.addrs()[0]);
    loop {
        std::thread::park();
    }
}
