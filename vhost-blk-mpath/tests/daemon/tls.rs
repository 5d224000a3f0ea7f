//! Paths over TLS: data, path loss, and everything that must be refused.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use mpath_api::types::{DiscoveryState, PathState};
use mpath_config::address::Transport;
use nvme_tls::psk::{ConfiguredPsk, RetainedHash};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;
use vublk_bench::request::Status;

use crate::support::{Daemon, DaemonDirectory, Disk, Target, Verification, VerificationSetup, eventually, own_address};
use crate::transport::has_mptcp;

const FLAGS: &str = "--policy round-robin --keep-alive-tmo 60 --reconnect-delay 1";

fn psk(hash: RetainedHash, byte: u8) -> ConfiguredPsk {
    let bytes = if hash == RetainedHash::Sha384 { 48 } else { 32 };
    ConfiguredPsk::new(hash, &vec![byte; bytes]).unwrap()
}

/// Writes a key file that only its owner may read.
fn write_key(file: &Path, key: &ConfiguredPsk) {
    fs::write(file, format!("{}\n", key.to_interchange().as_str())).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A daemon that has the key and may have no path.
fn start(paths: &[SocketAddr], key: &ConfiguredPsk, more: &str) -> Daemon {
    let place = DaemonDirectory::new();
    let file = place.file("disk.key");
    write_key(&file, key);
    let flags = format!("{FLAGS} --wait-for none --tls-key-file {} {more}", file.display());
    let command = place.command(paths, &flags);
    place.spawn(command).answers()
}

fn target(listeners: usize, key: &ConfiguredPsk) -> Target {
    Target::with(listeners, |config| config.tls_key = Some(key.clone()))
}

fn unflushed() -> VerificationSetup {
    VerificationSetup { flush: false, ..VerificationSetup::default() }
}

/// The error of the first path, once there is one.
fn error(daemon: &Daemon) -> String {
    eventually("the path fails", || daemon.paths().first().is_some_and(|path| path.last_error.is_some()));
    assert!(!daemon.is_live(0));
    daemon.paths()[0].last_error.clone().unwrap()
}

#[test]
fn a_disk_over_tls_verifies_and_survives_the_loss_of_paths() {
    for (hash, lost) in [(RetainedHash::None, 0), (RetainedHash::Sha256, 1), (RetainedHash::Sha384, 0)] {
        let key = psk(hash, 7);
        let target = target(2, &key);
        let daemon = start(&target.addrs(), &key, "--io-threads 2 --data-digest").ready();
        let verification = Verification::start(&daemon.socket(), unflushed());
        verification.goes_on(500);
        target.set(lost, "reset=all");
        eventually("the loss is noticed", || daemon.paths()[lost].losses > 0);
        verification.goes_on(200);
        eventually("the path is back", || daemon.is_live(lost));
        verification.goes_on(500);
        verification.finish();
        let suite = if hash == RetainedHash::Sha384 { "TLS_AES_256_GCM_SHA384" } else { "TLS_AES_128_GCM_SHA256" };
        for path in daemon.paths() {
            assert_eq!(path.tls_suite.as_deref(), Some(suite));
            assert!(path.write.ios > 0 && path.read.ios > 0, "{path:?}");
        }
    }
}

#[test]
fn tls_over_mptcp_verifies() {
    if !has_mptcp() {
        return;
    }
    let key = psk(RetainedHash::Sha384, 9);
    let target = Target::with(2, |config| {
        config.tls_key = Some(key.clone());
        config.listeners[0].transport = Transport::Mptcp;
    });
    let [mptcp, tcp] = [0, 1].map(|path: usize| target.addrs()[path]);
    let daemon = start(&[], &key, &format!("--path mptcp://{mptcp} --path tcp://{tcp}")).ready();
    let verification = Verification::start(&daemon.socket(), unflushed());
    verification.goes_on(1000);
    verification.finish();
    for path in daemon.paths() {
        assert!(path.write.ios > 0 && path.tls_suite.is_some(), "{path:?}");
    }
}

/// Another key, a target in clear text, and a host in clear text: none of them ever carries data.
#[test]
fn what_does_not_match_is_refused() {
    let key = psk(RetainedHash::Sha256, 1);
    let with_key = target(1, &key);
    let other = start(&with_key.addrs(), &psk(RetainedHash::Sha256, 2), "");
    let why = error(&other);
    assert!(why.contains("none of the 6 TLS identities") && why.contains("disk.key"), "{why}");

    let clear = Target::start(1);
    let daemon = start(&clear.addrs(), &key, "");
    let why = error(&daemon);
    assert!(why.contains("clear text in place of TLS"), "{why}");

    let daemon = DaemonDirectory::new();
    let command = daemon.command(&with_key.addrs(), &format!("{FLAGS} --wait-for none"));
    let daemon = daemon.spawn(command).answers();
    let why = error(&daemon);
    assert!(why.contains("requires TLS, set tls-key-file"), "{why}");
}

type Spoil = fn(&Path);

#[test]
fn a_key_file_that_is_wrong_names_itself() {
    let key = psk(RetainedHash::Sha256, 1);
    let target = target(1, &key);
    let daemon = start(&target.addrs(), &key, "");
    eventually("the path is live", || daemon.is_live(0));
    let file = daemon.place.file("disk.key");
    let cases: [(Spoil, &str); 6] = [
        (|file| fs::set_permissions(file, fs::Permissions::from_mode(0o640)).unwrap(), "chmod 0600"),
        (|file| fs::write(file, "NVMeTLSkey-1:01:AAAA:\n").unwrap(), "tls-key-file"),
        (|file| fs::write(file, vec![b'x'; 5000]).unwrap(), "4096 bytes"),
        (|file| fs::remove_file(file).unwrap(), "No such file"),
        (|file| fs::remove_file(file).and_then(|()| fs::create_dir(file)).unwrap(), "not a regular file"),
        // Opening a pipe must not wait for a writer.
        (
            |file| fs::remove_file(file).map(|()| mkfifoat(CWD, file, Mode::RUSR | Mode::WUSR)).unwrap().unwrap(),
            "not a regular file",
        ),
    ];
    for (spoil, word) in cases {
        spoil(&file);
        target.set(0, "reset=all");
        let says = || daemon.paths()[0].last_error.clone().is_some_and(|error| error.contains(word));
        eventually(word, || says() && !daemon.is_live(0));
        if file.is_dir() {
            fs::remove_dir(&file).unwrap();
        } else if file.exists() {
            fs::remove_file(&file).unwrap();
        }
        write_key(&file, &key);
        eventually("the mended file is used", || daemon.is_live(0));
    }
    for secret in ["AAAA", &key.to_interchange()[16..40]] {
        assert!(!daemon.log().contains(secret), "a secret in the log");
    }
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
}

/// Copies bytes between a host and a target, and keeps them.
pub(crate) fn tapped(target: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let tap = Arc::clone(&seen);
    std::thread::spawn(move || {
        for host in listener.incoming().flatten() {
            let controller = TcpStream::connect(target).unwrap();
            for (mut from, mut to) in [(&host, &controller), (&controller, &host)]
                .map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()))
            {
                let tap = Arc::clone(&tap);
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 64 << 10];
                    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
                        tap.lock().unwrap().extend_from_slice(&buffer[..bytes]);
                        if to.write_all(&buffer[..bytes]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (address, seen)
}

/// Discovery over TLS, with a key of its own. The records say that the ports require TLS.
#[test]
fn paths_are_discovered_over_tls_and_never_in_clear_text() {
    let (key, of_discovery) = (psk(RetainedHash::Sha256, 3), psk(RetainedHash::Sha384, 4));
    let target = Target::with(2, |config| {
        config.tls_key = Some(key.clone());
        config.discovery = Some(SocketAddr::new(own_address().ip(), 8009));
        config.discovery_tls_key = Some(of_discovery.clone());
    });
    let at = target.discovery_addr().unwrap();
    let keys = tempfile::tempdir().unwrap();
    let [right, wrong] = [("right.key", &of_discovery), ("wrong.key", &key)].map(|(name, key)| {
        write_key(&keys.path().join(name), key);
        keys.path().join(name).display().to_string()
    });
    let discovers = |more: &str| start(&[], &key, &format!("--discovery tcp://{at} {more}"));
    let daemon = discovers(&format!("--discovery-tls-key-file {right}")).ready();
    eventually("both paths are live", || daemon.is_live(0) && daemon.is_live(1));
    assert!(daemon.paths().iter().all(|path| path.tls_suite.is_some()));
    let [controller] = &daemon.status().discovery[..] else { panic!("one discovery controller") };
    let suite = controller.tls_suite.as_deref();
    assert_eq!((controller.state, suite), (DiscoveryState::Connected, Some("TLS_AES_256_GCM_SHA384")));

    let refuses = |daemon: &Daemon, reasons: &[&str]| {
        let is_named = |error: &str| reasons.iter().all(|reason| error.contains(reason));
        // A busy machine may run out of the time for a connection before all identities were tried.
        eventually(&format!("discovery fails with {reasons:?}"), || {
            daemon.status().discovery[0].last_error.as_deref().is_some_and(is_named)
        });
        assert!(daemon.paths().is_empty());
    };
    let daemon = discovers(&format!("--discovery-tls-key-file {wrong}"));
    refuses(&daemon, &["TLS identities of discovery-tls-key-file", "wrong.key"]);
    let named =
        format!(": there is no path; discovery controller tcp://{at}: the controller accepts none of the 6 TLS");
    let health = || daemon.status().disks.remove(0).health;
    eventually("so it says", || health().reasons.iter().any(|reason| reason.message.contains(&named)));
    refuses(&discovers(""), &["for a discovery controller discovery-tls-key-file"]);
}

/// A log in clear text may list ports that require TLS, and a daemon without a key uses none of them.
#[test]
fn a_record_that_requires_tls_needs_a_key() {
    let key = psk(RetainedHash::Sha256, 6);
    let target = Target::with(2, |config| {
        config.tls_key = Some(key.clone());
        config.listeners[1].is_clear_text = true;
        config.discovery = Some(SocketAddr::new(own_address().ip(), 8009));
    });
    let daemon = Daemon::start(&[], &format!("{FLAGS} --discovery tcp://{}", target.discovery_addr().unwrap()));
    assert_eq!(
        daemon.paths().iter().map(|path| path.address.to_string()).collect::<Vec<_>>(),
        [format!("tcp://{}", target.addrs()[1])]
    );
    let said = format!("cannot use the path to {} ", target.addrs()[0].ip());
    let log = daemon.log();
    assert!(log.contains(&said) && log.contains("the record requires TLS; set tls-key-file"), "{log}");
    let without_key = "its log lists ports that require TLS (1); set tls-key-file";
    assert_eq!(daemon.status().discovery[0].last_error.as_deref(), Some(without_key));
    let events = daemon.api.events(0).unwrap().events;
    assert!(events.iter().any(|event| event.message.ends_with(without_key)), "{events:?}");
}

#[test]
fn no_byte_of_user_data_and_no_command_is_in_clear() {
    let contains =
        |seen: &Arc<Mutex<Vec<u8>>>, bytes: &[u8]| seen.lock().unwrap().windows(bytes.len()).any(|w| w == bytes);
    let key = psk(RetainedHash::Sha256, 5);
    for encrypted in [false, true] {
        let target = Target::with(1, |config| config.tls_key = encrypted.then(|| key.clone()));
        let (address, seen) = tapped(target.addrs()[0]);
        let daemon = if encrypted { start(&[address], &key, "") } else { Daemon::start(&[address], FLAGS) };
        let daemon = daemon.ready();
        let mut disk = Disk::connect(&daemon.socket());
        assert_eq!(disk.write(4096, 0xa7), Status::Ok);
        assert_eq!(disk.read(4096), 0xa7);
        assert_eq!(daemon.paths()[0].state, PathState::Live);
        // Without TLS the tap sees data and names: so the tap works.
        for clear in [&[0xa7; 64][..], b"nqn.2014-08.org.example:daemon-tests"] {
            let is_name_in_handshake = encrypted && clear.starts_with(b"nqn");
            assert_eq!(contains(&seen, clear), !encrypted || is_name_in_handshake);
        }
    }
}
