use std::fs;

use super::*;

const INI: &str = "\
# Comments are whole lines, or follow a blank.
[Discovery Controller Defaults]
keep-alive-tmo = 30                  # of discovery controllers

[I/O Controller Defaults]
keep-alive-tmo = 5
ctrl-loss-tmo  = 600

[Host]
hostsymname = lab-host-01
reconnect-delay = 3

[Discovery Controller]
nqn        = nqn.2014-08.org.example:cdc
controller = transport=tcp;traddr=192.0.2.8;trsvcid=8009

[Subsystem]
nqn           = nqn.one
ctrl-loss-tmo =
controller    = transport=tcp;traddr=192.0.2.1;trsvcid=4420;host-iface=eth0;keep-alive-tmo=7
controller    = transport=tcp; traddr=2001:db8::1; keep-alive-tmo=8
controller    = transport=rdma;traddr=192.0.2.9

[Subsystem]
nqn = nqn.two
tls = yes
tls-key = NVMeTLSkey-1:01:secret
data-digest = on
hdr-digest = off
controller = transport=tcp;traddr=192.0.2.2
[Zones]
a = b
";

#[test]
fn nvme_fabrics_conf() {
    let all = imported(INI, &NONE).unwrap();
    assert_eq!(
        all,
        "\
# Imported from F. Comments say what has no counterpart.
# F:31: [Zones]: no counterpart
# host: hostsymname lab-host-01: no counterpart
# nqn nqn.2014-08.org.example:cdc: no counterpart, nqn.2014-08.org.nvmexpress.discovery is asked
# keep-alive-tmo 30 of tcp://192.0.2.8:8009: left out, because the keep-alive-tmo of a disk is that of its paths, and this is a discovery controller
# reconnect-delay 3 of tcp://192.0.2.8:8009: left out, because the reconnect-delay of a disk is that of its paths, and this is a discovery controller
disks:
  - name: disk0
    socket-path: /run/vhost-blk-mpath/disk0.sock
    subsystem: \"nqn.one\"
    paths:
      - \"tcp://192.0.2.1:4420?host-iface=eth0\"
      - \"tcp://[2001:db8::1]:4420\"
    discovery:
      - \"tcp://192.0.2.8:8009\"
    keep-alive-tmo: 7
    reconnect-delay: 3
    # rdma://192.0.2.9: left out, only transport tcp is supported
    # keep-alive-tmo 8 of tcp://[2001:db8::1]: left out, because all paths of a disk share one value, and 7 of tcp://192.0.2.1:4420 counts
  - name: disk1
    socket-path: /run/vhost-blk-mpath/disk1.sock
    subsystem: \"nqn.two\"
    paths:
      - \"tcp://192.0.2.2:4420\"
    discovery:
      - \"tcp://192.0.2.8:8009\"
    ctrl-loss-tmo: 600
    data-digest: true
    keep-alive-tmo: 5
    reconnect-delay: 3
    tls-key-file: /etc/vhost-blk-mpath/disk1.key
    # tls yes of nqn nqn.two: write the key to the files that the settings name, and let only the daemon's user read them
    # tls-key (a secret) of nqn nqn.two: not copied, because it is a secret; write the key to the files that the settings name
"
    );
}

#[test]
fn drop_ins_have_their_own_host_and_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let main = directory.path().join("nvme-fabrics.conf");
    let drop_ins = directory.path().join("nvme-fabrics.conf.d");
    fs::create_dir(&drop_ins).unwrap();
    let write = |name: &str, text: &str| fs::write(drop_ins.join(name), text).unwrap();
    let subsystem = |name: &str, traddr: &str| {
        format!("[Subsystem]\nnqn = nqn.{name}\ncontroller = transport=tcp;traddr={traddr}\n")
    };
    write("b.conf", &format!("[I/O Controller Defaults]\nctrl-loss-tmo = 60\n{}", subsystem("b", "192.0.2.2")));
    write("a.conf", &subsystem("a", "192.0.2.1"));
    write("c.conf.bak", "not read");
    // The drop-ins are read even without a main file.
    let two = import(&main, &NONE).unwrap();
    let order = [two.find("nqn.a").unwrap(), two.find("nqn.b").unwrap(), two.find("ctrl-loss-tmo: 60").unwrap()];
    assert!(order.is_sorted() && !two.contains("keep-alive-tmo"), "{two}");
    fs::write(&main, "[I/O Controller Defaults]\nkeep-alive-tmo = 9\nctrl-loss-tmo = 600\n").unwrap();
    let two = import(&main, &NONE).unwrap();
    assert_eq!((two.matches("keep-alive-tmo: 9").count(), two.matches("ctrl-loss-tmo: 60\n").count()), (2, 1), "{two}");
    write("b.conf", &format!("[Host]\nhostnqn = nqn.host-b\n{}", subsystem("b", "192.0.2.2")));
    let hosts = import(&main, &NONE).unwrap_err().to_string();
    assert!(hosts.contains("2 hosts (unnamed, nqn.host-b)"), "{hosts}");
    let b = Selection { subsystem: None, hostnqn: Some("nqn.host-b".parse().unwrap()) };
    let b = import(&main, &b).unwrap();
    assert!(b.contains("hostnqn: \"nqn.host-b\"") && b.contains("nqn.b") && !b.contains("nqn.a"), "{b}");
}

#[test]
fn errors_of_nvme_fabrics_conf_name_file_line_and_key() {
    for (text, said) in [
        ("a = b\n[Host]", "F:1: a: stands before the first [Section]"),
        ("[Host]\nx", "F:2: x: neither a [Section] nor `key = value`"),
        ("[Host]\n[Host]", "F:2: [Host]: given twice; a file has one host"),
        ("[Subsystem]\ncontroller = tcp", "F:2: controller: `tcp` is not `key=value`"),
        ("[Subsystem]\ncontroller = transport=tcp", "F:1: nqn: missing; give the subsystem's NQN"),
        ("[Subsystem]\nnqn = a b", "F:1: nqn: `a b` is no NVMe qualified name"),
        ("[Subsystem]\nnqn = nqn.a\ncontroller = traddr=h", "F:3: transport: missing; give transport=tcp"),
        ("[Subsystem]\nnqn = nqn.a\ncontroller = transport=tcp", "F:3: traddr: missing; give traddr=ADDRESS"),
        ("[Host]\nhostid = 7\n[Subsystem]\nnqn = nqn.a", "F:1: hostid: `7` is no host identifier"),
        ("[Subsystem]\nnqn = nqn.a", "F: no TCP path and no discovery controller in it"),
    ] {
        let error = imported(text, &NONE).unwrap_err();
        assert!(error.starts_with(said), "{text}: {error}");
    }
}
