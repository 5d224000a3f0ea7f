//! The transports of a path's connections, and their local addresses.

use std::io::Write;
use std::net::{IpAddr, TcpListener};

use mpath_api::types::{EventKind, Path, PathState, SubflowState};
use mpath_config::address::Transport;
use vublk_bench::request::Status;

use crate::metrics::Scrape;
use crate::support::{Daemon, DaemonDirectory, Disk, Target, Verification, VerificationSetup, eventually, own_address};

/// Whether this host has MPTCP. If not, a test is skipped, and says so past the test runner's capture.
pub(crate) fn has_mptcp() -> bool {
    let supported = mptcp::supported();
    if let Err(why) = &supported {
        let mut stderr = std::io::stderr();
        writeln!(stderr, "SKIPPED: {}: {why}", std::thread::current().name().unwrap_or("a test")).unwrap();
    }
    supported.is_ok()
}

/// The flags of a daemon with these paths.
fn flags(paths: &[String]) -> String {
    paths.iter().flat_map(|path| ["--path=", path, " "]).collect()
}

fn start(paths: &[String], more: &str) -> Daemon {
    Daemon::start(&[], &format!("{} {more}", flags(paths)))
}

#[test]
fn a_disk_over_mptcp_and_over_what_falls_back_to_tcp() {
    if !has_mptcp() {
        return;
    }
    let target = Target::with(2, |config| config.listeners[0].transport = Transport::Mptcp);
    let paths: Vec<_> = target.addrs().iter().map(|address| format!("mptcp://{address}")).collect();
    let daemon = start(&paths, "--policy round-robin");
    let verification =
        Verification::start(&daemon.socket(), VerificationSetup { flush: false, ..VerificationSetup::default() });
    verification.goes_on(1000);
    // The path is lost and comes back under load.
    target.set(0, "reset=all");
    let lost = || daemon.api.events(0).unwrap().events.iter().any(|event| event.kind == EventKind::PathLost);
    eventually("it is back", || lost() && daemon.is_live(0));
    verification.goes_on(300);
    verification.finish();
    for path in daemon.paths() {
        assert_eq!((path.transport, path.state), (Transport::Mptcp, PathState::Live));
        assert!(path.write.ios > 0, "{path:?}");
    }
    // The second target does not support MPTCP, which API, metrics and log report. The kernel is polled once a
    // second, so its state may be from before the load.
    let moved =
        |path: &Path| path.subflows().any(|(connection, of)| connection.queue == 1 && of.bytes_sent > Some(1 << 16));
    eventually("the kernel has been asked after the load", || daemon.paths().iter().all(moved));
    let paths = daemon.paths();
    let [with, without] = [0, 1].map(|path: usize| &paths[path]);
    assert_eq!((with.connections.len(), with.fallbacks(), with.established()), (2, 0, Some(2)), "{with:?}");
    assert_eq!((without.connections.len(), without.fallbacks()), (2, 2), "{without:?}");
    let events = daemon.api.events(0).unwrap().events;
    let fallbacks = events.iter().filter(|event| event.kind == EventKind::MptcpFallback);
    let of = fallbacks.map(|event| event.path.as_ref().unwrap().index).collect::<Vec<_>>();
    assert_eq!(of, [1], "{events:?}");
    let metrics = Scrape::of(&daemon);
    let fallbacks = paths.iter().map(|path| {
        let series = format!("path_fallback_connections{{disk=\"disk0\",path=\"{}\"}}", path.address);
        metrics.get(&series).to_string()
    });
    assert_eq!(fallbacks.collect::<Vec<_>>(), ["0", "2"]);
}

#[test]
fn tcp_connections_are_shown_with_what_the_kernel_knows_of_them() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "--io-threads 2");
    let verification =
        Verification::start(&daemon.socket(), VerificationSetup { flush: false, ..VerificationSetup::default() });
    verification.goes_on(1000);
    verification.finish();
    let moved = |path: &Path| {
        let of_queue = |queue| path.subflows().find(|(connection, _)| connection.queue == queue).map(|(_, of)| of);
        [1, 2].iter().all(|queue| of_queue(*queue).is_some_and(|of| of.bytes_sent > Some(1 << 16)))
    };
    eventually("the kernel has been asked after the load", || moved(&daemon.paths()[0]));
    let path = &daemon.paths()[0];
    assert_eq!(path.connections.iter().map(|connection| connection.queue).collect::<Vec<_>>(), [0, 1, 2], "{path:?}");
    assert_eq!((path.fallbacks(), path.established(), &path.connections_error), (0, Some(3), &None));
    for (connection, of) in path.subflows() {
        assert_eq!((connection.subflows_max, connection.subflows.len()), (None, 1));
        assert_eq!((of.state, of.remote), (SubflowState::Established, target.addrs()[0]));
        assert!(of.rtt_us > Some(0) && of.cwnd_segments > Some(0) && of.mss_bytes > Some(500), "{of:?}");
        assert!(of.bytes_retransmitted.is_some() && of.retransmitted_segments.is_some(), "{of:?}");
    }
    let metrics = Scrape::of(&daemon);
    let of_path = format!("disk=\"disk0\",path=\"{}\"", path.address);
    assert_eq!(metrics.get(&format!("path_subflows{{{of_path}}}")).to_string(), "3");
    let local = path.connections[0].subflows[0].local.ip();
    let series = format!("{{{of_path},local=\"{local}\",remote=\"{}\"}}", target.addrs()[0]);
    for metric in ["subflow_rtt_seconds", "subflow_cwnd_bytes", "subflow_sent_bytes", "subflow_received_bytes"] {
        assert!(metrics.get(&format!("{metric}{series}")) > 0.0, "{metric}");
    }
}

/// A kernel or an administrator may disable it. Neither target nor host require MPTCP.
#[test]
fn a_target_for_mptcp_takes_plain_tcp() {
    if !has_mptcp() {
        return;
    }
    let target = Target::with(1, |config| config.listeners[0].transport = Transport::Mptcp);
    let daemon = Daemon::start(&target.addrs(), "");
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!((disk.write(0, 7), disk.read(0)), (Status::Ok, 7));
}

#[test]
fn connections_use_the_configured_local_address() {
    if !has_mptcp() {
        return;
    }
    for transport in ["tcp", "mptcp"] {
        let listener = TcpListener::bind(own_address()).unwrap();
        let from = own_address().ip();
        let path = format!("{transport}://{}?host-traddr={from}&host-iface=lo", listener.local_addr().unwrap());
        let place = DaemonDirectory::new();
        let command = place.command(&[], &flags(&[path]));
        let _daemon = place.spawn(command);
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), from);
    }
}

#[test]
fn a_missing_local_address_or_interface_is_named() {
    let target = Target::start(1);
    let address = target.addrs()[0];
    let not_ours: IpAddr = "192.0.2.1".parse().unwrap();
    for (option, words) in [
        (format!("host-traddr={not_ours}"), ["host-traddr 192.0.2.1", "`ip address`"]),
        ("host-iface=none0".into(), ["host-iface none0", "`ip link`"]),
    ] {
        let place = DaemonDirectory::new();
        let refused =
            place.refused(place.command(&[], &(flags(&[format!("tcp://{address}?{option}")]) + "--wait-for=any")));
        refused.says(3, &words);
    }
    assert_eq!(target.connections(0), 0);
}
