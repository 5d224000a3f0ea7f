use super::*;

/// A JSON file with one host, and one subsystem with these ports.
fn json(ports: &[&str]) -> String {
    let ports: Vec<_> = ports.iter().map(|port| format!(r#"{{"transport": "tcp", {port}}}"#)).collect();
    format!(r#"[{{"subsystems": [{{"nqn": "nqn.s", "ports": [{}]}}]}}]"#, ports.join(", "))
}

/// The settings of the first disk, and the comments of the file.
fn settings(text: &str, selection: &Selection) -> (Vec<String>, Vec<String>) {
    let text = imported(text, selection).unwrap();
    let lines = text.lines().map(str::trim).map(ToOwned::to_owned);
    let (notes, lines): (Vec<_>, Vec<_>) = lines.skip(1).partition(|line| line.starts_with('#'));
    let keys = ["keep-alive-tmo", "ctrl-loss-tmo", "fast-io-fail-tmo", "reconnect-delay", "hdr-digest", "data-digest"];
    (lines.into_iter().filter(|line| keys.iter().any(|key| line.starts_with(key))).collect(), notes)
}

#[test]
fn timeouts_of_a_discovery_controller_are_none_of_paths() {
    let ini = "\
[Discovery Controller Defaults]
keep-alive-tmo = 30
ctrl-loss-tmo = 60
[I/O Controller Defaults]
keep-alive-tmo = 7
[Host]
hostnqn = nqn.host
ctrl-loss-tmo = 1800
[Discovery Controller]
ctrl-loss-tmo = 60
controller = transport=tcp;traddr=192.0.2.8
";
    let io = ["ctrl-loss-tmo: 1800", "keep-alive-tmo: 7"].map(ToOwned::to_owned);
    assert_eq!(settings(ini, &of("nqn.s")).0, io, "all paths are discovered");
    let without_port = format!("{ini}[Subsystem]\nnqn = nqn.s\n");
    assert_eq!(settings(&without_port, &NONE).0, io, "a section without a line for a controller");
    let own =
        format!("{ini}[Subsystem]\nnqn = nqn.s\nctrl-loss-tmo = 9\ncontroller = transport=tcp;traddr=192.0.2.1\n");
    assert_eq!(settings(&own, &NONE).0, ["ctrl-loss-tmo: 9", "keep-alive-tmo: 7"]);

    let json = json(&[
        r#""traddr": "192.0.2.8", "discovery": true, "keep_alive_tmo": 30, "ctrl_loss_tmo": 60, "fast_io_fail_tmo": 9"#,
        r#""traddr": "192.0.2.1", "ctrl_loss_tmo": 1800, "keep_alive_tmo": 7"#,
    ]);
    let (set, notes) = settings(&json, &NONE);
    assert_eq!(set, io);
    for note in ["# ctrl-loss-tmo 60 of tcp://192.0.2.8: left out", "# fast-io-fail-tmo 9 of tcp://192.0.2.8: left out"]
    {
        assert!(notes.iter().any(|line| line.starts_with(note)), "{notes:?}");
    }
    let lines = "-t tcp -a 192.0.2.8 -k 30 -l 60 -c 3 -F 9\n";
    let (set, notes) = settings(lines, &of("nqn.s"));
    assert!(set.is_empty() && notes.len() == 4, "{set:?} {notes:?}");
}

#[test]
fn a_value_that_the_disk_does_not_have_is_a_comment() {
    let (set, notes) = settings(
        &json(&[
            r#""traddr": "a", "keep_alive_tmo": 7, "hdr_digest": false, "reconnect_delay": 2"#,
            r#""traddr": "b", "keep_alive_tmo": 8, "hdr_digest": true"#,
            r#""traddr": "c", "keep_alive_tmo": 7"#,
        ]),
        &NONE,
    );
    assert_eq!(set, ["hdr-digest: true", "keep-alive-tmo: 7", "reconnect-delay: 2"]);
    assert_eq!(
        notes,
        [
            "# hdr-digest false of tcp://a: left out, because all paths of a disk share one value, and true of tcp://b counts",
            "# hdr-digest true of tcp://b: also for tcp://c, which had none",
            "# keep-alive-tmo 8 of tcp://b: left out, because all paths of a disk share one value, and 7 of tcp://a counts",
            "# reconnect-delay 2 of tcp://a: also for tcp://b, tcp://c, which had none",
        ]
    );
}

/// A path that is never given up is not given up because of another path.
#[test]
fn no_limit_of_a_path_is_none_of_the_disk() {
    for never in ["-1", "\"-1\"", "\"off\""] {
        let ports = [r#""traddr": "a", "ctrl_loss_tmo": 600"#, &format!(r#""traddr": "b", "ctrl_loss_tmo": {never}"#)];
        for ports in [ports, [ports[1], ports[0]]] {
            let (set, notes) = settings(&json(&ports), &NONE);
            assert!(set.is_empty(), "{set:?}");
            assert_eq!(
                notes,
                [
                    "# ctrl-loss-tmo -1 of tcp://b: never, which is the default without the setting",
                    "# ctrl-loss-tmo 600 of tcp://a: left out, because all paths of a disk share one value, and -1 of tcp://b counts",
                ]
            );
        }
    }
    let ini = "\
[I/O Controller Defaults]
ctrl-loss-tmo = 600
[Subsystem]
nqn = nqn.s
ctrl-loss-tmo = -1
controller = transport=tcp;traddr=a
";
    let (set, notes) = settings(ini, &NONE);
    assert!(set.is_empty() && notes[0].starts_with("# ctrl-loss-tmo -1 of tcp://a: never"), "{set:?} {notes:?}");
    let (_, notes) = settings("-t tcp -a h -l -1\n-t tcp -a i --ctrl-loss-tmo=-1", &of("nqn.s"));
    assert_eq!(notes.iter().filter(|note| note.starts_with("# ctrl-loss-tmo -1 of tcp://")).count(), 2, "{notes:?}");
}

/// libnvme writes `none` for a key that is not set, and older versions wrote null.
#[test]
fn a_key_that_is_none_or_null_is_no_key() {
    for none in ["null", "\"none\""] {
        let host = format!(
            r#"{{"hostnqn": "nqn.h", "hostid": null, "dhchap_key": {none}, "subsystems": [
                {{"nqn": "nqn.empty", "ports": null}},
                {{"nqn": "nqn.s", "application": {none}, "ports": [{{"transport": "tcp", "traddr": "h", "trsvcid": {none},
                "host_traddr": {none}, "host_iface": {none}, "tls": null, "tls_key": {none}, "tls_key_identity": {none},
                "keyring": {none}, "dhchap_key": {none}, "dhchap_ctrl_key": {none}, "discovery": null,
                "keep_alive_tmo": null}}]}}]}}"#
        );
        let text = imported(&format!("[{host}]"), &NONE).unwrap();
        assert!(
            text.contains("      - \"tcp://h:4420\"\n") && !text.contains("tls") && !text.contains("chap"),
            "{text}"
        );
        assert!(!text.contains("a secret") && !text.contains("keyring"), "{text}");
    }
    let text = imported("-t tcp -a h --dhchap-secret=none --tls-key none -C none", &of("nqn.s")).unwrap();
    assert!(!text.contains("tls") && !text.contains("chap"), "{text}");
    let ini = "[Subsystem]\nnqn = nqn.s\ntls-key = none\nkxchap-secret = none\ncontroller = transport=tcp;traddr=h\n";
    let text = imported(ini, &NONE).unwrap();
    assert!(!text.contains("tls") && !text.contains("chap"), "{text}");
}

#[test]
fn the_host_identifier_is_left_to_the_daemon_unless_a_file_has_one() {
    const ID: &str = "6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21";
    let name = format!("nqn.2014-08.org.nvmexpress:uuid:{ID}");
    let json = |name: &str| json(&[r#""traddr": "h""#]).replacen('{', &format!(r#"{{"hostnqn": "{name}", "#), 1);
    let ini = format!("[Host]\nhostnqn = {name}\n[Subsystem]\nnqn = nqn.s\ncontroller = transport=tcp;traddr=h\n");
    for text in [
        imported(&json(&name), &NONE).unwrap(),
        imported(&ini, &NONE).unwrap(),
        imported(&format!("-t tcp -a h -q {name}"), &of("nqn.s")).unwrap(),
    ] {
        // /etc/nvme/hostid comes before the name.
        assert!(!text.contains("hostid"), "{text}");
    }
    let lines = format!("-t tcp -a h -q {name}\n-t tcp -a i -q nqn.other -I {ID}\n");
    let text = imported(&lines, &of("nqn.s")).unwrap();
    assert!(!text.contains("\nhostid:") && text.contains(&format!("hostid {ID} of")), "it is of another host: {text}");
}
