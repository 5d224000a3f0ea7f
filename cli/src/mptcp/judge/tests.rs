use std::net::IpAddr;

use ipnet::IpNet;

use super::super::Level;
use super::super::host::{By, Endpoint, Interface, Limits, Route, Rule, Way};
use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn interface(name: &str, index: u32, addresses: &[&str]) -> Interface {
    let addresses: Vec<IpNet> = addresses.iter().map(|text| net(text)).collect();
    let all_addresses = addresses.iter().map(IpNet::addr).collect();
    let name = name.into();
    Interface { name, index, is_checked: true, up: true, addresses, all_addresses, ..Interface::default() }
}

fn endpoint(id: u8, address: &str, dev: &str) -> Endpoint {
    Endpoint {
        address: ip(address),
        id,
        port: None,
        laminar: false,
        dev: Some(dev.into()),
        subflow: true,
        signal: false,
        backup: false,
        fullmesh: false,
        implicit: false,
    }
}

/// A host with two links and nothing to correct.
fn good() -> Host {
    let windows = Some([4096, 131_072, WINDOW_BYTES]);
    let lo = Interface { loopback: true, ..interface("lo", 1, &["127.0.0.1/8", "10.7.0.1/32"]) };
    Host {
        sysctls: Sysctls { tcp_rmem: windows, tcp_wmem: windows, ..Sysctls::default() },
        interfaces: vec![lo, interface("a0", 2, &["10.1.0.1/24"]), interface("a1", 3, &["10.1.1.1/24"])],
        endpoints: vec![endpoint(1, "10.1.0.1", "a0"), endpoint(2, "10.1.1.1", "a1")],
        limits: Limits { subflows: 2, add_addr_accepted: 1 },
        ..Host::default()
    }
}

/// That host with a target, whose address is in the network of `a0` or behind it.
fn towards(target: &str, from_a1: By) -> Host {
    let target = ip(target);
    let way = |from: &str, by: By| Way { target, from: ip(from), by };
    Host {
        targets: vec![target],
        ways: vec![way("10.1.0.1", By::Dev("a0".into())), way("10.1.1.1", from_a1)],
        ..good()
    }
}

fn route(to: &str, gateway: &str, dev: &str) -> Route {
    Route { table: None, to: net(to), gateway: Some(ip(gateway)), dev: dev.into() }
}

/// The findings that are not `ok`, each with its commands.
fn told(host: &Host) -> Vec<String> {
    let findings = judge(host).into_iter().filter(|finding| finding.level != Level::Ok);
    let lines = |finding: Finding| {
        assert!(finding.why.is_some(), "{finding:?}");
        let Finding { level, check, found, commands, .. } = finding;
        std::iter::once(format!("{level} {check}: {found}"))
            .chain(commands.into_iter().map(|command| "# ".to_owned() + &command))
    };
    findings.flat_map(lines).collect()
}

fn assert_told(host: &Host, expected: &[&str]) {
    assert_eq!(told(host), expected);
}

fn changed(change: impl FnOnce(&mut Host)) -> Host {
    let mut host = good();
    change(&mut host);
    host
}

#[test]
fn nothing_to_say() {
    assert_told(&good(), &[]);
    let checks: Vec<_> = judge(&good()).iter().map(|finding| finding.check).collect();
    assert_eq!(checks, ["kernel", "path-manager", "addresses", "endpoints", "limits", "windows"]);
    assert_told(&towards("10.1.0.9", By::Dev("a1".into())), &[]);
}

#[test]
fn without_mptcp_nothing_else_is_told() {
    let off = Host { unsupported: Some(Unsupported::SwitchedOff), ..Host::default() };
    assert_told(&off, &["problem kernel: MPTCP is switched off", "# sysctl -w net.mptcp.enabled=1"]);
    let reason = "this kernel has no MPTCP".to_owned();
    let missing = Host { unsupported: Some(Unsupported::Otherwise { reason }), ..Host::default() };
    assert_told(&missing, &["problem kernel: this kernel has no MPTCP"]);
}

#[test]
fn path_managers() {
    let of = |path_manager: Option<&str>, pm_type| {
        told(&changed(|host| {
            host.sysctls.path_manager = path_manager.map(String::from);
            host.sysctls.pm_type = pm_type;
        }))
    };
    let nothing: &[&str] = &[];
    assert_eq!(of(None, Some(0)), nothing);
    assert_eq!(of(Some("kernel"), Some(0)), nothing);
    let userspace = "problem path-manager: the path manager is userspace";
    assert_eq!(of(None, Some(1)), [userspace, "# sysctl -w net.mptcp.pm_type=0"]);
    assert_eq!(of(Some("userspace"), Some(1)), [userspace, "# sysctl -w net.mptcp.path_manager=kernel"]);
}

#[test]
fn fewer_than_two_links() {
    let down = changed(|host| host.interfaces[2].up = false);
    let expected = [
        "problem addresses: only one interface has an IPv4 address that can be used: 10.1.0.1 (a0); 10.1.1.1 (a1) is down",
        "note endpoints: endpoint 2, 10.1.1.1, is on a1, which is down",
    ];
    assert_told(&down, &expected);
    let not_asked = changed(|host| host.interfaces[2].is_checked = false);
    let expected = ["problem addresses: only one interface has an IPv4 address that can be used: 10.1.0.1 (a0)"];
    assert_told(&not_asked, &expected);
    let none = Host { interfaces: Vec::new(), endpoints: Vec::new(), ..good() };
    assert_told(&none, &["problem addresses: no interface has an IPv4 address that can be used"]);
}

/// The targets decide which address family is checked. Without targets, it is the family with more links.
#[test]
fn families() {
    let six = |host: &mut Host| {
        host.interfaces[1].addresses.push(net("fd01::1/64"));
        host.interfaces[1].all_addresses.push(ip("fd01::1"));
    };
    assert_told(&changed(six), &[]);
    let mut host = changed(six);
    host.targets = vec![ip("fd01::9")];
    assert_told(&host, &["problem addresses: only one interface has an IPv6 address that can be used: fd01::1 (a0)"]);
}

#[test]
fn endpoints_that_are_missing() {
    let host = changed(|host| host.endpoints.clear());
    let expected = [
        "problem endpoints: 10.1.0.1 (a0) has no endpoint with `subflow`",
        "# ip mptcp endpoint add 10.1.0.1 dev a0 subflow",
        "problem endpoints: 10.1.1.1 (a1) has no endpoint with `subflow`",
        "# ip mptcp endpoint add 10.1.1.1 dev a1 subflow",
    ];
    assert_told(&host, &expected);
    let host = changed(|host| drop(host.endpoints.remove(0)));
    let expected = [
        "note endpoints: 10.1.0.1 (a0) has no endpoint with `subflow`",
        "# ip mptcp endpoint add 10.1.0.1 dev a0 subflow",
    ];
    assert_told(&host, &expected);
    // An endpoint that the kernel made counts as none.
    let host = changed(|host| host.endpoints[0].implicit = true);
    let host = Host {
        endpoints: vec![Endpoint { subflow: false, ..host.endpoints[0].clone() }, host.endpoints[1].clone()],
        ..host
    };
    assert_told(&host, &expected);
}

#[test]
fn endpoints_that_are_odd() {
    type Case = (fn(&mut Host), &'static [&'static str]);
    let cases: [Case; 7] = [
        (|host| host.endpoints[1].fullmesh = true, &[]),
        (
            |host| host.endpoints.push(endpoint(3, "10.7.7.7", "a1")),
            &["problem endpoints: endpoint 3 is 10.7.7.7, which no interface has", "# ip mptcp endpoint delete id 3"],
        ),
        (
            |host| host.endpoints[1].dev = Some("a0".into()),
            &[
                "problem endpoints: endpoint 2, 10.1.1.1, is bound to a0, but the address is that of a1",
                "# ip mptcp endpoint delete id 2",
                "# ip mptcp endpoint add 10.1.1.1 dev a1 subflow",
            ],
        ),
        (
            |host| (host.endpoints[1].dev, host.endpoints[1].fullmesh) = (None, true),
            &[
                "note endpoints: endpoint 2, 10.1.1.1, is not bound to its interface a1",
                "# ip mptcp endpoint delete id 2",
                "# ip mptcp endpoint add 10.1.1.1 dev a1 subflow fullmesh",
            ],
        ),
        (
            |host| host.endpoints[1].backup = true,
            &["note endpoints: endpoint 2, 10.1.1.1 on a1, is for backup", "# ip mptcp endpoint change id 2 nobackup"],
        ),
        (
            |host| (host.endpoints[1].subflow, host.endpoints[1].signal) = (false, true),
            &[
                "note endpoints: endpoint 2, 10.1.1.1 on a1, is only announced (`signal`)",
                "note endpoints: 10.1.1.1 (a1) has no endpoint with `subflow`",
                "# ip mptcp endpoint delete id 2",
                "# ip mptcp endpoint add 10.1.1.1 dev a1 subflow signal",
            ],
        ),
        // If a link has two addresses, the one with the endpoint counts.
        (
            |host| {
                host.interfaces[2].addresses.insert(0, net("10.1.1.7/24"));
                host.interfaces[2].all_addresses.push(ip("10.1.1.7"));
            },
            &[],
        ),
    ];
    for (change, expected) in cases {
        assert_told(&changed(change), expected);
    }
}

#[test]
fn limits_by_links_and_endpoints() {
    let of = |subflows, add_addr_accepted| told(&changed(|host| host.limits = Limits { subflows, add_addr_accepted }));
    let nothing: &[&str] = &[];
    assert_eq!(of(2, 1), nothing);
    assert_eq!(of(8, 8), nothing);
    assert_eq!(
        of(2, 0),
        ["note limits: subflows 2, add_addr_accepted 0", "# ip mptcp limits set subflows 2 add_addr_accepted 1"]
    );
    assert_eq!(
        of(1, 2),
        ["note limits: subflows 1, add_addr_accepted 2", "# ip mptcp limits set subflows 3 add_addr_accepted 2"]
    );
    assert_eq!(
        of(0, 0),
        ["problem limits: subflows 0, add_addr_accepted 0", "# ip mptcp limits set subflows 2 add_addr_accepted 1"]
    );
    // The limits do not exceed what the kernel accepts.
    let many = changed(|host| {
        for n in 2..12 {
            host.interfaces.push(interface(&format!("a{n}"), n + 2, &[&format!("10.1.{n}.1/24")]));
            host.endpoints.push(endpoint(n as u8 + 1, &format!("10.1.{n}.1"), &format!("a{n}")));
        }
    });
    let expected =
        ["problem limits: subflows 2, add_addr_accepted 1", "# ip mptcp limits set subflows 8 add_addr_accepted 8"];
    assert_told(&many, &expected);
}

#[test]
fn routes_in_the_link_s_own_network() {
    let mut host = towards("10.1.1.9", By::Dev("a0".into()));
    let commands =
        ["# ip route replace 10.1.1.0/24 dev a1 src 10.1.1.1 table 103", "# ip rule add from 10.1.1.1 table 103"];
    let found = "routes: packets from 10.1.1.1 (a1) to 10.1.1.9 leave by a0";
    // The endpoint binds subflows to the interface.
    assert_eq!(told(&host), [&[&*format!("note {found}")], &commands[..]].concat());
    host.endpoints[1].dev = None;
    let told = told(&host);
    assert_eq!(told[3..], [&[&*format!("problem {found}")], &commands[..]].concat());
}

#[test]
fn routes_by_a_gateway_of_the_link() {
    let mut host = towards("10.9.0.9", By::Dev("a0".into()));
    host.routes = vec![
        route("0.0.0.0/0", "10.1.0.254", "a0"),
        route("0.0.0.0/0", "10.1.1.254", "a1"),
        route("10.8.0.0/16", "10.1.1.1", "a1"),
    ];
    let found = "note routes: packets from 10.1.1.1 (a1) to 10.9.0.9 leave by a0";
    let expected = [
        found,
        "# ip route replace 10.1.1.0/24 dev a1 src 10.1.1.1 table 103",
        "# ip route replace default via 10.1.1.254 dev a1 table 103",
        "# ip rule add from 10.1.1.1 table 103",
    ];
    assert_told(&host, &expected);
    // The longer prefix counts. The table is one that does not exist yet.
    host.routes.push(route("10.9.0.0/16", "10.1.1.253", "a1"));
    host.routes.push(Route { table: Some("103".into()), ..route("0.0.0.0/0", "10.1.1.252", "a1") });
    let expected = [
        found,
        "# ip route replace 10.1.1.0/24 dev a1 src 10.1.1.1 table 104",
        "# ip route replace 10.9.0.0/16 via 10.1.1.253 dev a1 table 104",
        "# ip rule add from 10.1.1.1 table 104",
    ];
    assert_told(&host, &expected);
    // If a rule for the address exists, the commands use its table.
    host.rules = vec![Rule { from: ip("10.1.1.1"), table: "second".into() }];
    let expected = [
        found,
        "# ip route replace 10.1.1.0/24 dev a1 src 10.1.1.1 table second",
        "# ip route replace 10.9.0.0/16 via 10.1.1.253 dev a1 table second",
    ];
    assert_told(&host, &expected);
}

#[test]
fn routes_that_lead_nowhere() {
    for (by, named) in [(By::Dev("a0".into()), "a0"), (By::Nowhere, "no interface: there is no route")] {
        let expected = format!("problem routes: packets from 10.1.1.1 (a1) to 10.9.0.9 leave by {named}");
        assert_told(&towards("10.9.0.9", by), &[&expected]);
    }
    let expected = ["note routes: 10.9.0.9 is an address of this host"];
    assert_told(&towards("10.9.0.9", By::Local), &expected);
}

/// Each link has a network of its own with an address of the target.
#[test]
fn links_that_need_an_announcement() {
    let mut host = towards("10.1.0.9", By::Dev("a0".into()));
    host.targets.push(ip("10.1.1.9"));
    let route = "note routes: 10.1.1.1 (a1) does not lead to 10.1.0.9, but to 10.1.1.9";
    assert_told(&host, &[route]);
    host.limits.add_addr_accepted = 0;
    let expected = [
        "problem limits: subflows 2, add_addr_accepted 0",
        "# ip mptcp limits set subflows 2 add_addr_accepted 1",
        route,
    ];
    assert_told(&host, &expected);
}

#[test]
fn routes_of_ipv6() {
    let target = ip("fd02::9");
    let way = |from: &str| Way { target, from: ip(from), by: By::Dev("a0".into()) };
    let host = Host {
        interfaces: vec![interface("a0", 2, &["fd01::1/64"]), interface("a1", 3, &["fd02::1/64"])],
        endpoints: vec![endpoint(1, "fd01::1", "a0"), endpoint(2, "fd02::1", "a1")],
        targets: vec![target],
        ways: vec![way("fd01::1"), way("fd02::1")],
        ..good()
    };
    let expected = [
        "note routes: packets from fd02::1 (a1) to fd02::9 leave by a0",
        "# ip -6 route replace fd02::/64 dev a1 src fd02::1 table 103",
        "# ip -6 rule add from fd02::1 table 103",
    ];
    assert_told(&host, &expected);
}

#[test]
fn reverse_path_filters() {
    let strict = |host: Host, filters: &[(&str, u32)]| {
        let rp_filter = filters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let host = Host { sysctls: Sysctls { rp_filter, ..host.sysctls.clone() }, ..host };
        told(&host)
    };
    let nothing: &[&str] = &[];
    assert_eq!(strict(good(), &[("all", 0), ("a0", 0), ("a1", 2)]), nothing);
    assert_eq!(strict(good(), &[("all", 2), ("a0", 1), ("a1", 1)]), nothing, "the larger one counts");
    let both = [
        "note reverse-path-filter: the reverse path filter is strict on a0, a1",
        "# sysctl -w net.ipv4.conf.a0.rp_filter=2",
        "# sysctl -w net.ipv4.conf.a1.rp_filter=2",
    ];
    assert_eq!(strict(good(), &[("all", 1), ("a0", 0)]), both);
    assert_eq!(strict(towards("10.1.1.9", By::Dev("a1".into())), &[("all", 1)]), nothing);
    let told = strict(towards("10.1.1.9", By::Dev("a0".into())), &[("a1", 1)]);
    let expected = [
        "problem reverse-path-filter: the reverse path filter is strict on a1",
        "# sysctl -w net.ipv4.conf.a1.rp_filter=2",
    ];
    assert_eq!(told[told.len() - 2..], expected);
    let vlan = changed(|host| {
        host.interfaces[2].name = "a1.100".into();
        host.endpoints[1].dev = Some("a1.100".into());
    });
    let told = strict(vlan, &[("a1.100", 1)]);
    assert_eq!(told[1..], ["# sysctl -w net/ipv4/conf/a1.100/rp_filter=2"]);
}

#[test]
fn links_in_one_network() {
    let mut host = changed(|host| {
        host.interfaces[2] = interface("a1", 3, &["10.1.0.2/24"]);
        host.endpoints[1] = endpoint(2, "10.1.0.2", "a1");
    });
    let expected = [
        "note address-resolution: 10.1.0.1 (a0), 10.1.0.2 (a1) are in one network, and each answers ARP for the others",
        "# sysctl -w net.ipv4.conf.all.arp_ignore=1",
        "# sysctl -w net.ipv4.conf.all.arp_announce=2",
    ];
    assert_told(&host, &expected);
    host.sysctls.arp_ignore.insert("all".into(), 1);
    assert_told(&host, &[]);
}

#[test]
fn what_costs_and_what_is_small() {
    let host = changed(|host| {
        host.sysctls.checksum_enabled = Some(1);
        host.sysctls.tcp_wmem = Some([4096, 16384, 4_194_304]);
    });
    let expected = [
        "note checksum: MPTCP's checksum is on",
        "# sysctl -w net.mptcp.checksum_enabled=0",
        "note windows: net.ipv4.tcp_wmem ends at 4194304 bytes, less than 16777216",
        "# sysctl -w net.ipv4.tcp_wmem=\"4096 16384 16777216\"",
    ];
    assert_told(&host, &expected);
}
