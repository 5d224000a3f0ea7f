use std::fs;

use super::*;

const LIST: &str =
    r#"[{"hostnqn": "nqn.h", "subsystems": [{"nqn": "nqn.s", "ports": [{"transport": "tcp", "traddr": "h"}]}]}]"#;

#[test]
fn hosts_can_be_a_list_or_an_object_with_the_list() {
    let object = format!("{{\n\"hosts\": {LIST}}}");
    assert_eq!(imported(&object, &NONE).unwrap(), imported(LIST, &NONE).unwrap());
    let wrong = object.replace("\"tcp\"", "[]");
    let error = imported(&wrong, &NONE).unwrap_err();
    assert!(error.starts_with("F:2:") && error.contains(": hosts[0].subsystems[0].ports[0].transport: "), "{error}");
    let error = imported("{}", &NONE).unwrap_err();
    assert!(error.starts_with("F:") && error.contains("hosts"), "{error}");
}

/// As getopt reads them.
#[test]
fn short_options_of_discovery_conf_can_share_a_dash() {
    for (line, notes) in [
        ("-gG -t tcp -a h", &["hdr-digest true", "data-digest true"][..]),
        ("-gGttcp -ah", &["hdr-digest true", "data-digest true"]),
        ("-S -t tcp -a h", &["quiet true"]),
        ("-t tcp -a h -pS", &["quiet true"]),
        ("-vv -t tcp -a h", &["verbose true"]),
        ("-t tcp -a h -S DHHC-1:00:abc:", &["dhchap-secret (a secret)"]),
        ("-t tcp -a h -SDHHC-1:00:abc:", &["dhchap-secret (a secret)"]),
        ("--quiet --verbose -t tcp -a h", &["quiet true", "verbose true"]),
        ("--some-flag --transport=tcp -a h", &["some-flag true"]),
        ("-t tcp -a h --some-value 7", &["some-value 7"]),
        ("-g=true -t=tcp -a=h", &["hdr-digest true"]),
        ("-r /tmp/log -o json -t tcp -a h", &["raw /tmp/log", "output-format json"]),
    ] {
        let text = imported(line, &of("nqn.s")).unwrap();
        assert!(text.contains("tcp://h:8009"), "{line}: {text}");
        let there: Vec<_> = text.lines().filter(|line| line.contains(" of tcp://h: ")).collect();
        assert_eq!(there.len(), notes.len(), "{line}: {text}");
        for note in notes {
            assert!(there.iter().any(|line| line.contains(&format!("# {note} of"))), "{line}: {text}");
        }
        assert!(!text.contains("abc"), "{text}");
    }
    for (line, said) in [
        ("-k --transport=tcp -a h", "F:1: keep-alive-tmo: has no value"),
        ("-gx -t tcp -a h", "F:1: -gx: unknown option"),
        ("-t tcp -a h -", "F:1: -: no option"),
    ] {
        let error = imported(line, &of("nqn.s")).unwrap_err();
        assert!(error.starts_with(said), "{line}: {error}");
    }
}

#[test]
fn a_byte_order_mark_is_no_text() {
    let ini = "[Subsystem]\nnqn = nqn.s\ncontroller = transport=tcp;traddr=h\n";
    let stas = "[Controllers]\ncontroller = transport=tcp;traddr=h;nqn=nqn.s\n";
    for text in [LIST, &format!("{{\"hosts\": {LIST}}}"), ini, stas, "# a comment\n-t tcp -a h\n", "-t tcp -a h\n"] {
        let selection = of("nqn.s");
        assert_eq!(imported(&format!("\u{feff}{text}"), &selection).unwrap(), imported(text, &selection).unwrap());
    }
    let directory = tempfile::tempdir().unwrap();
    let main = directory.path().join("nvme-fabrics.conf");
    fs::create_dir(directory.path().join("nvme-fabrics.conf.d")).unwrap();
    fs::write(directory.path().join("nvme-fabrics.conf.d/a.conf"), format!("\u{feff}{ini}")).unwrap();
    assert!(import(&main, &NONE).unwrap().contains("tcp://h:4420"));
}

const STACD: &str = "\
[Global]
tron = true
kato = 20
ctrl-loss-tmo = -1
hdr-digest = false
ip-family = ipv4
[I/O controller connection management]
disconnect-trtypes = tcp
[Controllers]
controller = transport=tcp;traddr=192.0.2.1;nqn=nqn.s;host-iface=eth0
controller = transport=tcp;traddr=192.0.2.2;trsvcid=4421;nqn=nqn.s;kato=7;dhchap-secret=DHHC-1:00:abc:
controller = transport=fc;traddr=nn-0x1:pn-0x2;nqn=nqn.s
controller = transport=tcp;traddr=192.0.2.3;nqn=nqn.s
exclude = transport=tcp;traddr=192.0.2.3
exclude =
";

#[test]
fn stacd_conf_has_paths() {
    assert_eq!(
        imported(STACD, &NONE).unwrap(),
        "\
# Imported from F. Comments say what has no counterpart.
# F:2: [Global] tron true: no counterpart
# F:6: [Global] ip-family ipv4: no counterpart
# F:8: [I/O controller connection management] disconnect-trtypes tcp: no counterpart
# F:13: transport tcp, traddr 192.0.2.3, nqn nqn.s: left out, line 14 excludes it
# F:14: exclude transport tcp, traddr 192.0.2.3: not for discovered paths
disks:
  - name: disk0
    socket-path: /run/vhost-blk-mpath/disk0.sock
    subsystem: \"nqn.s\"
    paths:
      - \"tcp://192.0.2.1:4420?host-iface=eth0\"
      - \"tcp://192.0.2.2:4421\"
    keep-alive-tmo: 20
    # dhchap-secret (a secret) of tcp://192.0.2.2:4421: NOT MET: the daemon reads secrets from files; write the secret to a file and set `dhchap-secret-file` or `dhchap-ctrl-secret-file`
    # fc://[nn-0x1:pn-0x2]: left out, only transport tcp is supported
    # ctrl-loss-tmo -1 of tcp://192.0.2.1: never, which is the default without the setting
    # keep-alive-tmo 7 of tcp://192.0.2.2:4421: left out, because all paths of a disk share one value, and 20 of tcp://192.0.2.1 counts
"
    );
}

#[test]
fn stafd_conf_has_discovery_controllers() {
    let stafd = "\
[Global]
kato = 30
ctrl-loss-tmo = 60
[Service Discovery]
zeroconf = enabled
[Controllers]
controller = transport=tcp;traddr=192.0.2.8
controller = transport=tcp;traddr=192.0.2.9;nqn=nqn.cdc
; A comment.
";
    let text = imported(stafd, &of("nqn.s")).unwrap();
    let config = Config::parse(&text).unwrap();
    assert_eq!((config.disks[0].paths.len(), config.disks[0].discovery.len()), (0, 2), "{text}");
    assert!(!text.contains("keep-alive-tmo: ") && !text.contains("ctrl-loss-tmo: "), "{text}");
    for note in
        ["# F:5: [Service Discovery] zeroconf enabled", "# nqn nqn.cdc: no counterpart", "# keep-alive-tmo 30 of"]
    {
        assert!(text.contains(note), "{text}");
    }
    assert!(imported(stafd, &NONE).unwrap_err().contains("--subsystem NQN"));
    // Without a section of stafd or stacd, only a file of stafd lacks the NQN of a controller.
    let unnamed = "[Controllers]\ncontroller = transport=tcp;traddr=192.0.2.8\n";
    assert!(imported(unnamed, &of("nqn.s")).unwrap().contains("tcp://192.0.2.8:8009"));
    for (text, said) in [
        ("[Controllers]\ncontroller = tcp", "F:2: controller: `tcp` is not `key=value`"),
        ("[Controllers]\ncontroller = traddr=h", "F:2: transport: missing; give transport=tcp"),
        ("[Global]\nkato", "F:2: kato: neither a [Section] nor `key = value`"),
        ("[Controllers]\ncontroller = transport=tcp;traddr=h;nqn=a b", "F:2: nqn: `a b` is no NVMe qualified name"),
        ("[Controllers]\n", "F: no TCP path and no discovery controller in it"),
    ] {
        let error = imported(text, &NONE).unwrap_err();
        assert!(error.starts_with(said), "{text}: {error}");
    }
}

#[test]
fn files_of_other_tools_are_named() {
    let multipath = "# Comment\ndefaults {\n\tuser_friendly_names yes\n}\n";
    let spdk = r#"{"subsystems": [{"subsystem": "bdev", "config": [{"method": "bdev_nvme_attach_controller"}]}]}"#;
    let nvmet = r#"{"hosts": [{"nqn": "nqn.h"}], "ports": [], "subsystems": [{"nqn": "nqn.s", "namespaces": []}]}"#;
    for (text, said) in [
        (multipath, "F: a multipath.conf of dm-multipath, which has no addresses of controllers; give "),
        ("blacklist{\n}\n", "F: a multipath.conf of dm-multipath"),
        (spdk, "F: a configuration of SPDK; give "),
        (r#"[{"method": "bdev_nvme_attach_controller", "params": {}}]"#, "F: a configuration of SPDK; give "),
        (nvmet, "F: a configuration of an NVMe target (nvmetcli), and not of a host; give "),
        (r#"{"ports": []}"#, "F: a configuration of an NVMe target (nvmetcli)"),
    ] {
        for selection in [&NONE, &of("nqn.s")] {
            let error = imported(text, selection).unwrap_err();
            assert!(error.starts_with(said) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
