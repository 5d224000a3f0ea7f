use std::fs;

use super::*;

mod formats;
mod ini;
mod settings;

const NONE: Selection = Selection { subsystem: None, hostnqn: None };

fn imported(text: &str, selection: &Selection) -> Result<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("f");
    fs::write(&file, text).unwrap();
    let shown = file.display().to_string();
    import(&file, selection)
        .map(|text| text.replace(&shown, "F"))
        .map_err(|error| error.to_string().replace(&shown, "F"))
}

fn of(nqn: &str) -> Selection {
    Selection { subsystem: Some(nqn.parse().unwrap()), hostnqn: None }
}

#[test]
fn discovery_conf() {
    let text = "\
# Used for extracting default parameters for discovery
#
# Example:
# --transport=<trtype> --traddr=<traddr>

--transport=tcp --traddr=192.0.2.1 --trsvcid=8009 --host-traddr=192.0.2.77 --hostnqn=nqn.host
-t tcp -a 2001:db8::1 -w 2001:db8::77 -q nqn.host -l 600 --keep_alive_tmo 10 -g
-trdma -a192.0.2.3 -s4420
--transport=fc --traddr nn-0x1:pn-0x2 --quiet
--transport tcp --traddr 192.0.2.4 -s 8010 --ctrl-loss-tmo=60 --nr-io-queues=4 --persistent --tos 3 -k 0
";
    assert_eq!(
        imported(text, &of("nqn.disk")).unwrap(),
        "\
# Imported from F. Comments say what has no counterpart.
hostnqn: \"nqn.host\"
disks:
  - name: disk0
    socket-path: /run/vhost-blk-mpath/disk0.sock
    subsystem: \"nqn.disk\"
    discovery:
      - \"tcp://192.0.2.1:8009?host-traddr=192.0.2.77\"
      - \"tcp://[2001:db8::1]:8009?host-traddr=2001:db8::77\"
      - \"tcp://192.0.2.4:8010\"
    # ctrl-loss-tmo 600 of tcp://[2001:db8::1]: left out, because the ctrl-loss-tmo of a disk is that of its paths, and this is a discovery controller
    # keep-alive-tmo 10 of tcp://[2001:db8::1]: left out, because the keep-alive-tmo of a disk is that of its paths, and this is a discovery controller
    # hdr-digest true of tcp://[2001:db8::1]: left out, because the hdr-digest of a disk is that of its paths, and this is a discovery controller
    # rdma://192.0.2.3:4420: left out, only transport tcp is supported
    # fc://[nn-0x1:pn-0x2]: left out, only transport tcp is supported
    # ctrl-loss-tmo 60 of tcp://192.0.2.4:8010: left out, because the ctrl-loss-tmo of a disk is that of its paths, and this is a discovery controller
    # nr-io-queues 4 of tcp://192.0.2.4:8010: no counterpart: a path has one I/O queue per I/O thread, see io-threads
    # tos 3 of tcp://192.0.2.4:8010: no counterpart
    # keep-alive-tmo 0 of tcp://192.0.2.4:8010: left out: `0` is not a whole number of seconds from 1 to 600, such as 5 or 5s; the default of keep-alive-tmo is 5
"
    );
}

#[test]
fn errors_of_discovery_conf_name_file_line_and_field() {
    for (line, said) in [
        ("--transport=tcp", "F:2: traddr: missing; give --traddr=ADDRESS"),
        ("-a 192.0.2.1", "F:2: transport: missing; give --transport=tcp"),
        ("-t tcp -a", "F:2: traddr: has no value"),
        ("-t tcp -z 3", "F:2: -z: unknown option; see nvme discover --help"),
        ("tcp 192.0.2.1", "F:2: tcp: no option; options begin with - or --"),
        (
            "-t tcp -a 192.0.2.1 -s x",
            "F: no TCP path and no discovery controller in it; tcp://192.0.2.1:x: left out, `tcp://192.0.2.1:x`: `x` is no port; give a number from 1 to 65535, or leave the port out for 8009",
        ),
        (
            "-t tcp -a 192.0.2",
            "F: no TCP path and no discovery controller in it; tcp://192.0.2: left out, `tcp://192.0.2`: `192.0.2` is no IPv4 address, no [IPv6 address] and no host name",
        ),
    ] {
        assert_eq!(imported(&format!("# first\n{line}\n"), &of("nqn.disk")).unwrap_err(), said);
    }
    let hostid = imported("-t tcp -a 192.0.2.1 -I 7", &of("nqn.disk")).unwrap_err();
    assert!(hostid.starts_with("F:1: hostid: `7` is no host identifier"), "{hostid}");
    let file = "-t tcp -a 192.0.2.1";
    assert!(imported(file, &NONE).unwrap_err().contains("--subsystem NQN"));
    assert_eq!(
        imported("# nothing\n", &of("nqn.disk")).unwrap_err(),
        "F: no TCP path and no discovery controller in it"
    );
    assert!(imported("-t rdma -a 192.0.2.1", &of("nqn.disk")).unwrap_err().contains("no TCP path"));
}

const JSON: &str = r#"
[
  {
    "hostnqn": "nqn.2014-08.org.nvmexpress:uuid:6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21",
    "hostid": "6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21",
    "dhchap_key": "DHHC-1:00:secret:",
    "subsystems": [
      {
        "nqn": "nqn.one",
        "ports": [
          { "transport": "tcp", "traddr": "192.0.2.1", "trsvcid": "4420", "ctrl_loss_tmo": 600, "tls": false },
          { "transport": "tcp", "traddr": "2001:db8::1", "host_iface": "eth1", "keep_alive_tmo": 7, "data_digest": true },
          { "transport": "rdma", "traddr": "192.0.2.9", "trsvcid": "4420" }
        ]
      },
      { "nqn": "nqn.two", "ports": [ { "transport": "tcp", "traddr": "array", "trsvcid": 4421, "ctrl_loss_tmo": -1 } ] },
      { "nqn": "nqn.none", "ports": [] },
      {
        "nqn": "nqn.2014-08.org.nvmexpress.discovery",
        "ports": [ { "transport": "tcp", "traddr": "192.0.2.8", "trsvcid": "8009", "persistent": true } ]
      }
    ]
  }
]
"#;

#[test]
fn config_json() {
    let expected = "\
# Imported from F. Comments say what has no counterpart.
# host: dhchap-key (a secret): NOT MET: the daemon reads secrets from files; write the secret to a file and set `dhchap-secret-file` or `dhchap-ctrl-secret-file`
hostnqn: \"nqn.2014-08.org.nvmexpress:uuid:6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21\"
hostid: \"6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21\"
disks:
  - name: disk0
    socket-path: /run/vhost-blk-mpath/disk0.sock
    subsystem: \"nqn.one\"
    paths:
      - \"tcp://192.0.2.1:4420\"
      - \"tcp://[2001:db8::1]:4420?host-iface=eth1\"
    discovery:
      - \"tcp://192.0.2.8:8009\"
    ctrl-loss-tmo: 600
    data-digest: true
    keep-alive-tmo: 7
    # rdma://192.0.2.9:4420: left out, only transport tcp is supported
    # ctrl-loss-tmo 600 of tcp://192.0.2.1:4420: also for tcp://[2001:db8::1], which had none
    # data-digest true of tcp://[2001:db8::1]: also for tcp://192.0.2.1:4420, which had none
    # keep-alive-tmo 7 of tcp://[2001:db8::1]: also for tcp://192.0.2.1:4420, which had none
";
    let all = imported(JSON, &NONE).unwrap();
    assert_eq!(&all[..expected.len()], expected);
    let rest = &all[expected.len()..];
    assert!(
        rest.contains("name: disk1") && rest.contains("subsystem: \"nqn.two\"") && rest.contains("tcp://array:4421")
    );
    // A subsystem without ports gets the discovery controllers.
    assert!(rest.contains("subsystem: \"nqn.none\""));
    assert!(!all.contains("secret:"), "secrets are not printed");

    let two = imported(JSON, &of("nqn.two")).unwrap();
    assert!(two.contains("disk0.sock\n    subsystem: \"nqn.two\"") && !two.contains("nqn.one"));
    // A subsystem that is not in the file can be discovered.
    let other = imported(JSON, &of("nqn.other")).unwrap();
    assert!(other.contains("subsystem: \"nqn.other\"\n    discovery:"), "{other}");
}

#[test]
fn errors_of_config_json_name_file_line_and_field() {
    for (from, to, said) in [
        (
            "\"transport\": \"tcp\", \"traddr\": \"192.0.2.1\", ",
            "",
            "F:11:11: [0].subsystems[0].ports[0]: missing field `transport`",
        ),
        (
            "\"6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21\",",
            "\"x\",",
            "F:5:15: [0].hostid: `x` is no host identifier; give a UUID that is not all zero, as /etc/nvme/hostid holds",
        ),
        (
            "\"nqn.two\"",
            "\"\"",
            "F:16:16: [0].subsystems[1].nqn: `` is no NVMe qualified name; give 1 to 223 bytes without spaces, such as nqn.2014-08.org.example:disk",
        ),
    ] {
        assert!(JSON.contains(from));
        assert_eq!(imported(&JSON.replacen(from, to, 1), &NONE).unwrap_err(), said);
    }
    let cut = imported(&JSON[..200], &NONE).unwrap_err();
    assert!(cut.starts_with("F:") && !cut.contains('\n'), "{cut}");
    let two = r#"[{"hostnqn": "nqn.a", "subsystems": []}, {"hostnqn": "nqn.b"}]"#;
    assert_eq!(
        imported(two, &NONE).unwrap_err(),
        "F: 2 hosts (nqn.a, nqn.b), and a daemon is one host; choose one with --hostnqn"
    );
    let b = Selection { subsystem: Some("nqn.x".parse().unwrap()), hostnqn: Some("nqn.b".parse().unwrap()) };
    assert_eq!(imported(two, &b).unwrap_err(), "F: the chosen host has no such subsystem");
    let one =
        r#"[{"hostnqn": "nqn.a", "subsystems": [{"nqn": "nqn.s", "ports": [{"transport": "tcp", "traddr": "h"}]}]}]"#;
    assert!(imported(one, &of("nqn.x")).unwrap_err().ends_with("; there are: nqn.s"));
}

/// nvme-cli marks the controllers of a discovery subsystem, whatever the name of the subsystem.
#[test]
fn a_discovery_subsystem_with_a_name_of_its_own_is_no_disk() {
    let port = |traddr: &str, discovery| {
        format!(r#"{{"transport": "tcp", "traddr": "{traddr}", "trsvcid": "8009", "discovery": {discovery}}}"#)
    };
    let subsystem = |nqn: &str, ports: &str| format!(r#"{{"nqn": "{nqn}", "ports": [{ports}]}}"#);
    let cdc = subsystem("nqn.cdc", &format!("{}, {}", port("192.0.2.8", true), port("192.0.2.9", true)));
    let one = subsystem("nqn.one", &port("192.0.2.1", false));
    let text = imported(&format!(r#"[{{"subsystems": [{cdc}, {one}]}}]"#), &NONE).unwrap();
    assert_eq!(
        text,
        "\
# Imported from F. Comments say what has no counterpart.
# nqn nqn.cdc: no counterpart, nqn.2014-08.org.nvmexpress.discovery is asked
disks:
  - name: disk0
    socket-path: /run/vhost-blk-mpath/disk0.sock
    subsystem: \"nqn.one\"
    paths:
      - \"tcp://192.0.2.1:8009\"
    discovery:
      - \"tcp://192.0.2.8:8009\"
      - \"tcp://192.0.2.9:8009\"
"
    );
    // Alone, it names no subsystem for a disk.
    let alone = format!(r#"[{{"subsystems": [{cdc}]}}]"#);
    assert!(imported(&alone, &NONE).unwrap_err().contains("name the subsystem with --subsystem NQN"));
    assert!(imported(&alone, &of("nqn.other")).unwrap().contains("subsystem: \"nqn.other\""));
    // In nvme-fabrics.conf, the section says so, and the name of the service does.
    let of_service = format!("[Subsystem]\nnqn = {DISCOVERY_NQN}\ncontroller = transport=tcp;traddr=192.0.2.8\n");
    let disk = "[Subsystem]\nnqn = nqn.s\ncontroller = transport=tcp;traddr=192.0.2.2\n";
    let config = Config::parse(&imported(&format!("{of_service}{disk}"), &NONE).unwrap()).unwrap();
    assert_eq!((config.disks.len(), config.disks[0].paths.len(), config.disks[0].discovery.len()), (1, 1, 1));
}

/// An option that the daemon cannot use becomes a comment with the reason. The rest of the file is imported.
#[test]
fn one_bad_entry_does_not_refuse_a_file() {
    let text = "\
-t tcp -a fe80::1%eth0
-t tcp -a 192.0.2.1 -s 0
-t tcp -a 192.0.2.2 -a 192.0.2.3 -l abc -k x -k y
-t tcp -a FE80::2 -s 8010
-t tcp -a fe80::3 -f eth1
";
    assert_eq!(
        imported(text, &of("nqn.disk")).unwrap(),
        "\
# Imported from F. Comments say what has no counterpart.
disks:
  - name: disk0
    socket-path: /run/vhost-blk-mpath/disk0.sock
    subsystem: \"nqn.disk\"
    discovery:
      - \"tcp://192.0.2.3:8009\"
      - \"tcp://[fe80::3]:8009?host-iface=eth1\"
    # tcp://[fe80::1%eth0]: left out, `tcp://[fe80::1%eth0]`: a link-local address needs an interface; write `tcp://[fe80::1]?host-iface=eth0`
    # tcp://192.0.2.1:0: left out, `tcp://192.0.2.1:0`: `0` is no port; give a number from 1 to 65535, or leave the port out for 8009
    # line 3: traddr 192.0.2.2: left out, given again in the line and the last one counts
    # line 3: keep-alive-tmo x: left out, given again in the line and the last one counts
    # ctrl-loss-tmo abc of tcp://192.0.2.3: left out: `abc` is not a whole number of seconds from 1 to 86400, such as 5 or 5s; leave the setting out for no limit; the default of ctrl-loss-tmo is never
    # keep-alive-tmo y of tcp://192.0.2.3: left out: `y` is not a whole number of seconds from 1 to 600, such as 5 or 5s; the default of keep-alive-tmo is 5
    # tcp://[FE80::2]:8010: left out, `tcp://[fe80::2]:8010`: a link-local address needs an interface; write `tcp://[fe80::2]:8010?host-iface=INTERFACE`
"
    );
    let port = |port: &str| {
        let there = "{ \"transport\": \"tcp\", \"traddr\": \"192.0.2.1\", \"trsvcid\": \"4420\", \"ctrl_loss_tmo\": 600, \"tls\": false }";
        assert!(JSON.contains(there));
        imported(&JSON.replacen(there, port, 1), &of("nqn.one")).unwrap()
    };
    for (entry, said) in [
        (r#"{ "transport": "tcp", "trsvcid": 4420 }"#, "tcp://:4420: left out, traddr missing"),
        (
            r#"{ "transport": "tcp", "traddr": "h", "trsvcid": "0" }"#,
            "tcp://h:0: left out, `tcp://h:0`: `0` is no port",
        ),
    ] {
        let text = port(entry);
        assert!(text.contains(&format!("\n    # {said}")) && text.contains("tcp://[2001:db8::1]:4420"), "{text}");
    }
}

#[test]
fn a_subsystem_that_is_there_twice_is_one_disk() {
    let port = |host: &str| format!(r#"{{"nqn": "nqn.s", "ports": [{{"transport": "tcp", "traddr": "{host}"}}]}}"#);
    let text = imported(&format!(r#"[{{"subsystems": [{}, {}]}}]"#, port("a"), port("b")), &NONE).unwrap();
    let config = Config::parse(&text).unwrap();
    assert_eq!((config.disks.len(), config.disks[0].paths.len()), (1, 2));
    assert!(text.contains("# nqn nqn.s: more than once in the file; one disk, with the ports of all"), "{text}");
}

#[test]
fn files_that_are_none() {
    let missing = import(Path::new("/nonexistent/f"), &NONE).unwrap_err().to_string();
    assert_eq!(missing, "/nonexistent/f: No such file or directory (os error 2)");
    let large = "#".repeat(1 + (1 << 20));
    assert!(imported(&large, &NONE).unwrap_err().contains("larger than"));
}

#[test]
fn hostile_words_stay_words() {
    let words = r#""\n disks: [] \u0085 x: \u2028 y""#;
    let file = format!(
        r#"[{{"subsystems": [{{"nqn": "n", "ports": [{{"transport": "tcp", "traddr": "h", "discovery": true, "tos": {words}}}]}}]}}]"#
    );
    let text = imported(&file, &of("nqn.a\":#'{}")).unwrap();
    assert!(text.lines().any(|line| line.starts_with('#') && line.contains("disks: []")), "{text}");
    let config = Config::parse(&text).unwrap();
    assert_eq!((config.disks.len(), config.disks[0].subsystem.as_str()), (1, "nqn.a\":#'{}"));
    for name in ["true", "7", "~", "-", "nqn.é"] {
        let config = Config::parse(&imported("-t tcp -a 192.0.2.1", &of(name)).unwrap()).unwrap();
        assert_eq!(config.disks[0].subsystem.as_str(), name);
    }
}

/// A disk whose paths used TLS never connects in clear text.
#[test]
fn tls_of_any_path_is_tls_of_the_disk() {
    let json = |options: &str| {
        let port = |options: &str| format!(r#"{{"transport": "tcp", "traddr": "192.0.2.1"{options}}}"#);
        let ports = format!("{}, {}", port(""), port(options));
        imported(&format!(r#"[{{"subsystems": [{{"nqn": "nqn.s", "ports": [{ports}]}}]}}]"#), &NONE).unwrap()
    };
    for options in [
        r#", "tls": true"#,
        r#", "tls_key": "NVMeTLSkey-1:01:secret""#,
        r#", "tls_key_identity": "NVMe1R01 nqn.host nqn.s""#,
        r#", "concat": true"#,
    ] {
        let text = json(options);
        assert!(text.contains("    tls-key-file: /etc/vhost-blk-mpath/disk0.key\n"), "{text}");
        assert!(!text.contains("NVMeTLSkey"), "{text}");
    }
    for options in ["", r#", "tls": false"#, r#", "keyring": ".nvme""#, r#", "concat": false"#] {
        assert!(!json(options).contains("tls-key-file: /"), "{options}");
    }
    let text = imported("-t tcp -a 192.0.2.1 --tls --keyring=.nvme", &of("nqn.s")).unwrap();
    assert_eq!(
        text,
        "\
# Imported from F. Comments say what has no counterpart.
disks:
  - name: disk0
    socket-path: /run/vhost-blk-mpath/disk0.sock
    subsystem: \"nqn.s\"
    discovery:
      - \"tcp://192.0.2.1:8009\"
    tls-key-file: /etc/vhost-blk-mpath/disk0.key
    discovery-tls-key-file: /etc/vhost-blk-mpath/discovery.key
    # tls true of tcp://192.0.2.1: write the key to the files that the settings name, and let only the daemon's user read them
    # keyring (a secret) of tcp://192.0.2.1: NOT MET: the daemon uses no keyring; write the key to the files that the settings name
"
    );
}

/// A discovery controller that nvme-cli asked over TLS is never asked in clear text.
#[test]
fn tls_of_a_discovery_controller_is_tls_of_discovery() {
    let setting = "    discovery-tls-key-file: /etc/vhost-blk-mpath/discovery.key\n";
    let ini = |section: &str| {
        let disk = "[Subsystem]\nnqn = nqn.s\ncontroller = transport=tcp;traddr=192.0.2.2\n";
        imported(&format!("[Discovery Controller]\n{section}\n{disk}"), &NONE).unwrap()
    };
    let json = |options: &str| {
        let port = |options: &str| format!(r#"[{{"transport": "tcp", "traddr": "192.0.2.1"{options}}}]"#);
        let discovery = format!(r#"{{"nqn": "{DISCOVERY_NQN}", "ports": {}}}"#, port(options));
        let disk = format!(r#"{{"nqn": "nqn.s", "ports": {}}}"#, port(""));
        imported(&format!(r#"[{{"subsystems": [{discovery}, {disk}]}}]"#), &NONE).unwrap()
    };
    for (text, has_tls) in [
        (ini("tls = yes\ncontroller = transport=tcp;traddr=192.0.2.1"), true),
        (ini("controller = transport=tcp;traddr=192.0.2.1"), false),
        // No discovery controller is left that can be asked.
        (ini("tls = yes\ncontroller = transport=rdma;traddr=192.0.2.1"), false),
        (json(r#", "tls": true"#), true),
        (json(""), false),
    ] {
        assert_eq!(text.contains(setting), has_tls, "{text}");
        let says_so =
            text.contains("# tls-key-file: a discovery controller has TLS; if no path has, remove the setting");
        assert_eq!(says_so, text.contains("    tls-key-file: "), "{text}");
    }
}
