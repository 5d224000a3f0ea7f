//! What is said of wrong command lines and configurations, without a process.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use clap::Parser;
use mpath_config::usage_line;
use nvme_tls::psk::{ConfiguredPsk, RetainedHash};

use crate::args::Args;
use crate::check::{self, Findings};

/// A disk with one path.
const DISK: &str = "--socket-path /tmp/no.sock --subsystem nqn.a --path tcp://127.0.0.1:4420";
const FOREVER: &str = "leave the setting out for no limit";

fn arguments(line: &str) -> Result<Args, clap::Error> {
    Args::try_parse_from(std::iter::once("vhost-blk-mpath").chain(line.split_whitespace()))
}

/// Checks that this command line is refused as wrong usage, for a reason with all these words.
#[track_caller]
fn is_refused(line: &str, words: &[&str]) -> String {
    let said = match arguments(line) {
        Err(error) => usage_line(&error).expect("an error"),
        Ok(args) => {
            let error = args.into_config(&mut None).err().expect("an error");
            // `ExitCode` can be compared only by what it shows.
            assert_eq!(format!("{:?}", error.exit_code()), format!("{:?}", std::process::ExitCode::from(2)));
            error.to_string()
        }
    };
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in words {
        assert!(said.contains(word), "{line}: {word:?} is not in {said:?}");
    }
    said
}

/// Checks that a file with this text is refused. In the words, FILE stands for its name.
#[track_caller]
fn is_refused_file(text: &str, words: &[&str]) {
    with_file(text, |file| {
        let words: Vec<_> = words.iter().map(|word| word.replace("FILE", file)).collect();
        is_refused(&format!("--config {file}"), &words.iter().map(|word| &**word).collect::<Vec<_>>());
    });
}

fn with_file<T>(text: &str, run: impl FnOnce(&str) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    fs::write(&file, text).unwrap();
    run(file.to_str().unwrap())
}

#[test]
fn wrong_flags_are_explained() {
    let of_a_disk: &[(&str, &[&str])] = &[
        ("--policy fastest", &["--policy", "fastest", "numa", "round-robin", "queue-depth", "latency-rr"]),
        ("--queues 257", &["--queues", "257", "1 to 256"]),
        ("--path tcp://127.0.0.1", &["paths[1]", "127.0.0.1:4420", "paths[0]"]),
        ("--path=", &["--path", "tcp://HOST:PORT"]),
        ("--hostnqn foo", &["hostnqn: `foo` does not start with `nqn.`", "nqn.2014-08.org.nvmexpress:uuid:"]),
    ];
    for (flags, words) in of_a_disk {
        is_refused(&format!("{DISK} {flags}"), words);
    }
    is_refused("--subsystem nqn.a", &["no socket: give --socket-path PATH", "--help"]);
    is_refused("--socket-path /tmp/s --subsystem nqn.a", &["no path: give --path tcp://", "--discovery tcp://"]);
    is_refused("--config /nonexistent/config.yaml", &["/nonexistent/config.yaml: No such file"]);
}

#[test]
fn a_key_on_the_command_line_is_not_repeated() {
    for text in ["NVMeTLSkey-1:01:c2VjcmV0:", "'NVMeTLSkey-1:01:c2VjcmV0:'"] {
        let words = ["--tls-key-file", "(hidden)", "write the key to a file"];
        let said = is_refused(&format!("{DISK} --tls-key-file {text}"), &words);
        assert!(!said.contains("c2VjcmV0"), "{said}");
    }
}

/// nvme-cli's -1 and 0 mean "forever".
#[test]
fn values_for_forever_are_refused() {
    for setting in ["ctrl-loss-tmo", "fast-io-fail-tmo"] {
        for value in ["-1", "0"] {
            let said = format!("'{value}' for '--{setting} <SECONDS>'");
            let range = "a whole number of seconds from 1 to 86400, such as 5 or 5s; ".to_owned() + FOREVER;
            is_refused(&format!("{DISK} --{setting}={value}"), &[&said, &range]);
            let disk = "{socket-path: /tmp/s, subsystem: nqn.a, paths: ['tcp://127.0.0.1']";
            is_refused_file(&format!("disks:\n  - {disk}, {setting}: {value}}}\n"), &[setting, value, FOREVER]);
        }
    }
}

#[test]
fn errors_in_a_file_are_located() {
    let disk = "disks:\n  - socket-path: /tmp/s\n    ";
    is_refused_file("api: /tmp/a\n\tdisks: []\n", &["FILE:2:1: "]);
    is_refused_file(&format!("{disk}polcy: numa\n"), &["FILE:3:5: ", "polcy", "policy"]);
    let words = ["FILE:3:", "latency-rr", "'threshold' is '0.5'", "1 to 10", "default 1.25", "probe-cost"];
    is_refused_file(&format!("{disk}policy: {{name: latency-rr, threshold: 0.5}}\n"), &words);
}

/// What a check says: the line of success, and the lines of stderr. FILE stands for the name of the file.
fn checked(text: &str) -> (Option<String>, Vec<String>) {
    let (file, findings) = with_file(text, |file| (file.to_owned(), found(&format!("--config {file}"))));
    let shown = |line: String| line.replace(&file, "FILE");
    let lines = findings.notes.into_iter().chain(findings.errors).map(shown).collect();
    (findings.success.map(shown), lines)
}

fn found(line: &str) -> Findings {
    check::find(arguments(&format!("--check {line}")).unwrap())
}

fn success(disks: usize) -> String {
    format!("FILE: no errors; disks: {disks}")
}

/// Checks that a check finds these errors, given by their beginnings, and no others.
#[track_caller]
fn finds<T: AsRef<str>>(text: &str, beginnings: &[T]) {
    let (success, mut errors) = checked(text);
    errors.retain(|line| !line.starts_with("not checked: "));
    assert_eq!((success, errors.len()), (None, beginnings.len()), "{errors:?}");
    for (error, begins) in errors.iter().zip(beginnings) {
        assert!(error.starts_with(begins.as_ref()), "{error}");
    }
}

#[test]
fn a_check_reports_all_errors() {
    finds(
        "io-threads: 0\ndisks:\n  - socket-path: /tmp/s\n    polcy: numa\n    paths: ['tcp://h']\n",
        &[
            "FILE:1:13: io-threads: invalid value: integer `0`",
            "FILE:3:5: disks[0]: missing field `subsystem`",
            "FILE:4:5: disks[0]: unknown field `polcy`: did you mean `policy`?",
        ],
    );
    let disk = "disks:\n  - {socket-path: /tmp/no.sock, subsystem: nqn.a, paths: ['tcp://127.0.0.1'], namespace: 1";
    let sharer = "share-paths-with: [{name: s, socket-path: /tmp/t, namespace: 2}]";
    assert_eq!(checked(&format!("{disk}, {sharer}}}\n")), (Some(success(2)), vec![]));
    let errors = found(&format!("{DISK} --hostnqn foo --path tcp://127.0.0.1:4420")).errors;
    assert!(errors[0].starts_with("hostnqn: `foo`") && errors[1].starts_with("disks[0].paths[1]: "), "{errors:?}");
    assert_eq!(errors.len(), 2);
}

#[test]
fn a_check_includes_what_the_host_lacks() {
    let disk = "disks:\n  - {socket-path: /nonexistent/s, subsystem: nqn.a, paths: ['tcp://127.0.0.1']";
    let error = |what: &str| format!("FILE:2:19: disk disk0: /nonexistent/s: {what}");
    finds(
        &format!("{disk}, socket-owner: no-such-user, socket-group: no-such-group}}\n"),
        &[
            error("`socket-owner`: user `no-such-user` is unknown"),
            error("`socket-group`: group `no-such-group`"),
            error("the directory"),
        ],
    );
    let sharer = "share-paths-with: [{name: s, namespace: 2, socket-path: /nonexistent/t}]";
    let disk = "socket-path: /tmp/no.sock, subsystem: nqn.a, paths: ['tcp://127.0.0.1'], namespace: 1";
    finds(
        &format!("api: /nonexistent/a\nmetrics-address: 192.0.2.1:9\ndisks:\n  - {{{disk},\n{sharer}}}\n"),
        &[
            "FILE:1:6: /nonexistent/a: the directory of the API socket",
            "FILE:5:57: disk s: /nonexistent/t: the directory",
            "FILE:2:18: metrics-address: 192.0.2.1:9 is no address",
        ],
    );
    let errors = found(&format!("{DISK} --tls-key-file /nonexistent/key")).errors;
    assert!(errors[0].starts_with("disk disk0: cannot read tls-key-file /nonexistent/key: No such file"), "{errors:?}");
}

#[test]
fn a_check_finds_sockets_that_cannot_be_bound() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let with = |socket: &str| {
        let disk = "subsystem: nqn.a, paths: ['tcp://127.0.0.1']";
        format!("api: {}\ndisks:\n  - {{socket-path: {socket}, {disk}}}\n", at("api"))
    };
    let (file, closed) = (at("file"), at("closed"));
    fs::write(&file, "precious").unwrap();
    finds(&with(&file), &[format!("FILE:3:19: disk disk0: {file}: exists and is no socket")]);
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write everywhere.
    if !rustix::process::geteuid().is_root() {
        let socket = format!("{closed}/s");
        finds(
            &with(&socket),
            &[format!("FILE:3:19: disk disk0: {socket}: cannot create the vhost-user socket: Permission")],
        );
    }
    let taken = at("taken");
    let _other = UnixListener::bind(&taken).unwrap();
    let (outcome, said) = checked(&with(&taken));
    let warning = format!("warning: disk disk0: {taken}: another process listens on this vhost-user socket");
    assert!(outcome.is_some() && said.len() == 1 && said[0].starts_with(&warning), "{said:?}");
    let _api = UnixListener::bind(at("api")).unwrap();
    let (outcome, said) = checked(&with(&taken));
    assert!(
        outcome.is_some()
            && said.len() == 2
            && said[0].ends_with("that is well if it is this daemon, or if systemd keeps the socket for the daemon"),
        "{said:?}"
    );
}

#[test]
fn a_check_reads_keys_and_secrets() {
    let keys = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = keys.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let psk = ConfiguredPsk::new(RetainedHash::Sha256, &[7; 32]).unwrap();
    let key = file("key", &psk.to_interchange(), 0o600);
    let secret = file("secret", "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:\n", 0o600);
    let readable = file("readable", &psk.to_interchange(), 0o644);
    let with = |settings: &str| {
        format!(
            "disks:\n  - {{name: db, socket-path: /tmp/no.sock, subsystem: nqn.a, paths: ['tcp://127.0.0.1'], \
             discovery: ['tcp://127.0.0.1'],\n{settings}}}\n"
        )
    };
    let right = format!("tls-key-file: {key}, discovery-tls-key-file: {key}, dhchap-secret-file: {secret}");
    let (outcome, said) = checked(&with(&right));
    assert_eq!(outcome, Some(success(1)), "{said:?}");
    // Root can read all files, and does not know the daemon's user.
    let unchecked = said.iter().filter(|line| line.starts_with("not checked: whether the daemon's user may read"));
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!((unchecked.count(), said.len()), if is_root { (3, 3) } else { (0, 0) }, "{said:?}");

    let (outcome, said) = checked(&with(&format!("dhchap-secret-file: {secret}, concat: true")));
    assert_eq!(outcome, Some(success(1)), "{said:?}");
    assert!(said[0].starts_with("warning: disk db: `concat` without `dhchap-ctrl-secret-file`"), "{said:?}");

    finds(
        &with(&format!(
            "tls-key-file: {secret},\ndiscovery-tls-key-file: {readable},\ndhchap-secret-file: {key},\n\
             dhchap-ctrl-secret-file: /nonexistent/secret"
        )),
        &[
            format!("FILE:3:15: disk db: tls-key-file {secret}: the TLS key does not begin with"),
            format!("FILE:4:25: disk db: discovery-tls-key-file {readable}: mode 0644 gives other users access"),
            format!("FILE:5:21: disk db: dhchap-secret-file {key}: the secret does not start with"),
            "FILE:6:26: disk db: cannot read dhchap-ctrl-secret-file /nonexistent/secret: No such file".into(),
        ],
    );
    // systemd makes this file at the start.
    let (outcome, said) = checked(&with("tls-key-file: /run/credentials/no-such.service/key"));
    assert_eq!(outcome, Some(success(1)), "{said:?}");
    let credential = "not checked: tls-key-file /run/credentials/no-such.service/key, which systemd makes";
    assert!(said[0].starts_with(credential), "{said:?}");
}

#[test]
fn a_check_finds_one_socket_under_several_spellings() {
    let disk = |(name, socket)| {
        format!("  - {{name: {name}, socket-path: {socket}, subsystem: nqn.{name}, paths: ['tcp://127.0.0.1']}}\n")
    };
    let disks = [("a", "/tmp/s"), ("b", "/tmp//s"), ("c", "/tmp/./s")].map(disk);
    let error = |name, socket| format!("disk {name}: `socket-path` {socket} is the same socket as /tmp/s of disk a");
    finds(&format!("disks:\n{}", disks.concat()), &[error("b", "/tmp//s"), error("c", "/tmp/./s")]);
}
