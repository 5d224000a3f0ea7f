//! Paths with in-band authentication (DH-HMAC-CHAP), which may generate the keys of TLS (secure channel concatenation): data, path
//! loss, and everything that must be refused.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mpath_api::types::AuthenticatedSides;
use mpath_config::DiskConfig;
use mpath_config::address::Transport;
use nvme_auth::{Concatenation, DhGroup, Hash, Secret};
use nvme_tls::psk::{ConfiguredPsk, RetainedHash};
use vublk_bench::request::Status;

use crate::support::{
    Daemon, DaemonDirectory, Disk, Target, Verification, VerificationSetup, disk, eventually, socket_of,
};
use crate::tls::tapped;
use crate::transport::has_mptcp;
use crate::upgrade::NextDaemon;

const FLAGS: &str = "--policy round-robin --keep-alive-tmo 60 --reconnect-delay 1";

fn secret(byte: u8) -> Secret {
    Secret::new(Some(Hash::Sha256), &[byte; 32]).unwrap()
}

/// Writes a file that only its owner may read.
fn write(file: &Path, text: &str) {
    fs::write(file, format!("{text}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A daemon that has these secrets and may have no path.
fn start(paths: &[SocketAddr], host: Option<u8>, controller: Option<u8>, more: &str) -> Daemon {
    let place = DaemonDirectory::new();
    let mut flags = format!("{FLAGS} --wait-for none {more}");
    for (flag, byte) in [("dhchap-secret-file", host), ("dhchap-ctrl-secret-file", controller)] {
        let Some(byte) = byte else { continue };
        let file = place.file(flag);
        write(&file, &secret(byte).to_text());
        flags = format!("{flags} --{flag} {}", file.display());
    }
    let command = place.command(paths, &flags);
    place.spawn(command).answers()
}

fn target(listeners: usize, host: u8, controller: Option<u8>) -> Target {
    Target::with(listeners, |config| {
        config.authentication = Some(mpath_target::authentication(secret(host), controller.map(secret)));
    })
}

fn unflushed() -> VerificationSetup {
    VerificationSetup { flush: false, ..VerificationSetup::default() }
}

/// The error of the first path, once there is one. The path carries no data.
fn error(daemon: &Daemon) -> String {
    eventually("the path fails", || daemon.paths().first().is_some_and(|path| path.last_error.is_some()));
    let path = &daemon.paths()[0];
    assert!(!daemon.is_live(0) && path.authentication.is_none());
    assert_eq!((path.read.ios, path.write.ios), (0, 0));
    path.last_error.clone().unwrap()
}

/// Verifies a disk under load, while each path is lost once.
fn verify(daemon: &Daemon, target: &Target, sides: AuthenticatedSides, hash: &str, group: &str) {
    let verification = Verification::start(&daemon.socket(), unflushed());
    for lost in [0, 1] {
        verification.goes_on(300);
        target.set(lost, "reset=all");
        eventually("the loss is noticed", || daemon.paths()[lost].losses > 0);
        verification.goes_on(200);
        eventually("the path is back", || daemon.is_live(lost));
    }
    verification.goes_on(300);
    verification.finish();
    for path in daemon.paths() {
        let shown = path.authentication.as_ref().unwrap();
        assert_eq!((shown.sides, shown.hash.as_str(), shown.dh_group.as_str()), (sides, hash, group));
        assert!(path.write.ios > 0 && path.read.ios > 0, "{path:?}");
    }
}

#[test]
fn an_authenticated_disk_verifies_and_survives_the_loss_of_paths() {
    for (controller, sides) in [(None, AuthenticatedSides::Host), (Some(2), AuthenticatedSides::Bidirectional)] {
        let target = target(2, 1, Some(2));
        let daemon = start(&target.addrs(), Some(1), controller, "--io-threads 2 --data-digest").ready();
        verify(&daemon, &target, sides, "SHA-256", "ffdhe2048");
        let shown = daemon.paths()[0].authentication.clone().unwrap().to_string();
        assert!(daemon.log().contains(&format!("; {shown}")), "the event names the authentication");
    }
}

#[test]
fn authentication_and_tls_go_together() {
    let key = ConfiguredPsk::new(RetainedHash::Sha256, &[7; 32]).unwrap();
    let target = Target::with(2, |config| {
        let authentication = mpath_target::authentication(secret(1), Some(secret(2)));
        let (hashes, groups) = (vec![Hash::Sha512], vec![DhGroup::Null]);
        config.authentication = Some(nvme_tcp::Authentication { hashes, groups, ..authentication });
        config.tls_key = Some(key.clone());
    });
    let keys = tempfile::tempdir().unwrap();
    let file = keys.path().join("disk.key");
    write(&file, &key.to_interchange());
    let daemon = start(&target.addrs(), Some(1), Some(2), &format!("--tls-key-file {}", file.display())).ready();
    verify(&daemon, &target, AuthenticatedSides::Bidirectional, "SHA-512", "null");
    assert!(daemon.paths().iter().all(|path| path.tls_suite.is_some()));
}

/// A target that takes clear text for the authentication alone. Its listeners are for MPTCP if this host has it.
fn concatenating_target(listeners: usize, host: u8, controller: Option<u8>, hash: Hash, group: DhGroup) -> Target {
    let transport = if has_mptcp() { Transport::Mptcp } else { Transport::Tcp };
    Target::with(listeners, |config| {
        config.authentication = Some(nvme_tcp::Authentication {
            hashes: vec![hash],
            groups: vec![group],
            concatenation: Concatenation::NewTlsPsk,
            ..mpath_target::authentication(secret(host), controller.map(secret))
        });
        config.listeners.iter_mut().for_each(|listener| listener.transport = transport);
    })
}

#[test]
fn a_disk_with_generated_keys_verifies_and_survives_the_loss_of_paths() {
    for (controller, sides, hash, group, suite) in [
        (None, AuthenticatedSides::Host, Hash::Sha256, DhGroup::Ffdhe2048, "TLS_AES_128_GCM_SHA256"),
        (Some(2), AuthenticatedSides::Bidirectional, Hash::Sha384, DhGroup::Ffdhe3072, "TLS_AES_256_GCM_SHA384"),
    ] {
        let target = concatenating_target(2, 1, Some(2), hash, group);
        let [one, two] = [0, 1].map(|path: usize| target.addrs()[path]);
        let transport = if has_mptcp() { "mptcp" } else { "tcp" };
        let more = format!("--concat --io-threads 2 --data-digest --path {transport}://{one} --path tcp://{two}");
        let daemon = start(&[], Some(1), controller, &more).ready();
        verify(&daemon, &target, sides, &hash.to_string(), &group.to_string());
        assert!(daemon.paths().iter().all(|path| path.tls_suite.as_deref() == Some(suite)));
        assert_eq!(daemon.log().contains("can pose as the target"), controller.is_none());
    }
}

#[test]
fn a_target_that_is_silent_while_the_key_is_generated_is_named() {
    let target = concatenating_target(1, 1, None, Hash::Sha256, DhGroup::Ffdhe2048);
    target.set(0, "black-hole=mute");
    let why = error(&start(&target.addrs(), Some(1), None, "--concat"));
    assert!(why.starts_with("secure channel concatenation: no answer within 4s"), "{why}");
}

/// The rehearsal of the upgrade and the next daemon each generate keys of their own.
#[test]
fn a_daemon_with_generated_keys_is_upgraded() {
    let target = concatenating_target(1, 1, Some(2), Hash::Sha384, DhGroup::Ffdhe2048);
    let place = DaemonDirectory::new();
    let [host, controller] = ["host", "controller"].map(|name| place.file(name));
    write(&host, &secret(1).to_text());
    write(&controller, &secret(2).to_text());
    let [host_file, controller_file] = [&host, &controller].map(|file| Some(file.to_str().unwrap().parse().unwrap()));
    let command = place.configured(vec![DiskConfig {
        concat: true,
        dhchap_secret_file: host_file,
        dhchap_ctrl_secret_file: controller_file,
        ..disk(&place, &target, 0)
    }]);
    let daemon = place.spawn(command).ready();
    // A rehearsal with another secret fails.
    write(&host, &secret(3).to_text());
    let error = daemon.api.upgrade(false).unwrap_err().to_string();
    assert!(error.contains("refused the proof of this host"), "{error}");
    write(&host, &secret(1).to_text());
    let next = NextDaemon::of(&daemon);
    assert_eq!(Disk::connect(&socket_of(&daemon.place, 0)).write(0, 7), Status::Ok);
    next.end();
}

#[test]
fn no_byte_of_user_data_is_in_clear_with_a_generated_key() {
    let target = concatenating_target(1, 1, Some(2), Hash::Sha256, DhGroup::Ffdhe2048);
    let (address, seen) = tapped(target.addrs()[0]);
    let daemon = start(&[address], Some(1), Some(2), "--concat").ready();
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(4096, 0xa7), Status::Ok);
    assert_eq!(disk.read(4096), 0xa7);
    let seen = seen.lock().unwrap();
    // The tap works: it sees the name of the host in the Connect in clear text.
    assert!(seen.windows(4).any(|bytes| bytes == b"nqn."));
    assert!(!seen.windows(64).any(|bytes| bytes == [0xa7; 64]));
    // The model is in the answer to Identify Controller, which comes after the authentication.
    assert!(!seen.windows(12).any(|bytes| bytes == b"mpath-target"));
}

#[test]
fn hosts_and_targets_with_and_without_generated_keys_refuse_each_other() {
    let concatenating = concatenating_target(1, 1, Some(2), Hash::Sha256, DhGroup::Ffdhe2048);
    let one_way = concatenating_target(1, 1, None, Hash::Sha256, DhGroup::Ffdhe2048);
    let (plain, open) = (target(1, 1, Some(2)), Target::start(1));
    let keys = tempfile::tempdir().unwrap();
    let (file, key) = (keys.path().join("disk.key"), ConfiguredPsk::new(RetainedHash::Sha256, &[7; 32]).unwrap());
    write(&file, &key.to_interchange());
    let only_tls = Target::with(1, |config| config.tls_key = Some(key));
    let with_key = format!("--tls-key-file {}", file.display());
    for (target, host, controller, more, word) in [
        (&concatenating, 7, Some(2), "--concat", "the controller refused the proof of this host"),
        // A machine that knows no secret could accept the proof of this host, and generate a key with this host.
        (&concatenating, 1, Some(7), "--concat", "the controller could not prove itself"),
        (&one_way, 1, Some(2), "--concat", "or the target has no controller secret"),
        (&concatenating, 1, None, "", "requires authentication with secure channel concatenation"),
        (&concatenating, 1, None, &with_key, "accepts none of the 6 TLS identities"),
        (&plain, 1, Some(2), "--concat", "configure secure channel concatenation alike on host and target"),
        (&only_tls, 1, Some(2), "--concat", "takes clear text too"),
        (&open, 1, Some(2), "--concat", "check that the target has the secret of this host NQN"),
    ] {
        let why = error(&start(&target.addrs(), Some(host), controller, more));
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn wrong_or_missing_secrets_are_refused_with_the_reason() {
    let bidirectional = target(1, 1, Some(2));
    let one_way = target(1, 1, None);
    let open = Target::start(1);
    for (target, host, controller, word) in [
        (&bidirectional, Some(7), None, "the controller refused the proof of this host"),
        (&bidirectional, Some(1), Some(7), "the controller could not prove itself"),
        (&one_way, Some(1), Some(2), "or the target has no controller secret"),
        (&open, Some(1), Some(2), "the controller does not authenticate"),
        (&one_way, None, None, "`dhchap-secret-file`"),
    ] {
        let daemon = start(&target.addrs(), host, controller, "");
        let why = error(&daemon);
        assert!(why.contains(word), "{why}");
        assert!(!daemon.log().contains("DHHC-1:"), "a secret in the log");
    }
}

#[test]
fn a_controller_that_asks_for_nothing_is_used_without_authentication() {
    let open = Target::start(1);
    let daemon = start(&open.addrs(), Some(1), None, "").ready();
    eventually("the path is live", || daemon.is_live(0));
    assert_eq!(daemon.paths()[0].authentication, None);
}

type Spoil = fn(&Path);

#[test]
fn a_secret_is_replaced_without_a_restart_and_a_wrong_file_names_itself() {
    let (first, second) = (target(1, 1, None), target(1, 3, None));
    let daemon = start(&[first.addrs()[0], second.addrs()[0]], Some(1), None, "");
    eventually("the first path is live", || daemon.is_live(0));
    let refused = || daemon.paths()[1].last_error.clone().is_some_and(|error| error.contains("refused the proof"));
    eventually("the second path is refused", refused);
    let file = daemon.place.file("dhchap-secret-file");
    // An association that lives is not concerned. Each new one reads the file.
    write(&file, &secret(3).to_text());
    eventually("the second path sees another namespace", || {
        daemon.paths()[1].last_error.clone().is_some_and(|error| !error.contains("refused the proof"))
    });
    assert!(daemon.is_live(0));
    let cases: [(Spoil, &str); 3] = [
        (|file| fs::set_permissions(file, fs::Permissions::from_mode(0o640)).unwrap(), "chmod 0600"),
        (|file| write(file, "DHHC-1:01:AAAA:"), "dhchap-secret-file"),
        (|file| fs::remove_file(file).unwrap(), "cannot read dhchap-secret-file"),
    ];
    for (spoil, word) in cases {
        spoil(&file);
        first.set(0, "reset=all");
        let says = || daemon.paths()[0].last_error.clone().is_some_and(|error| error.contains(word));
        eventually(word, || says() && !daemon.is_live(0));
        assert!(!daemon.log().contains("AAAA"), "a secret in the log");
        write(&file, &secret(1).to_text());
        eventually("the mended file is used", || daemon.is_live(0));
    }
}
