use super::*;

/// As iproute2 6.1 prints it, with what is of no interest left out.
const ADDRESSES: &str = r#"[
    {"ifindex": 1, "ifname": "lo", "flags": ["LOOPBACK", "UP", "LOWER_UP"], "mtu": 65536, "addr_info": [
        {"family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host"}]},
    {"ifindex": 4, "ifname": "a1", "flags": ["BROADCAST", "UP", "LOWER_UP"], "addr_info": [
        {"family": "inet", "local": "10.1.1.1", "prefixlen": 24, "scope": "global", "valid_life_time": 4294967295},
        {"family": "inet6", "local": "fd01::1", "prefixlen": 64, "scope": "global", "tentative": true},
        {"family": "inet6", "local": "fd01::2", "prefixlen": 64, "scope": "global", "deprecated": true},
        {"family": "inet6", "local": "fd01::3", "prefixlen": 64, "scope": "global", "temporary": true},
        {"family": "inet6", "local": "fd01::4", "prefixlen": 64, "scope": "global"},
        {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"}, {}]},
    {"ifindex": 5, "ifname": "b0", "flags": ["NO-CARRIER", "BROADCAST", "UP"], "addr_info": []}, {}]"#;

#[test]
fn interfaces_and_the_addresses_that_can_be_used() {
    let raw: Vec<RawInterface> = list(ADDRESSES).unwrap();
    let all: Vec<Interface> = raw.into_iter().map(RawInterface::interface).collect();
    let told = |of: &Interface| (of.name.clone(), of.index, of.loopback, of.up);
    assert_eq!(told(&all[0]), ("lo".into(), 1, true, true));
    assert_eq!(told(&all[1]), ("a1".into(), 4, false, true));
    assert_eq!(told(&all[2]), ("b0".into(), 5, false, false));
    let addresses = |of: &Interface| of.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(addresses(&all[0]), [""; 0]);
    assert_eq!(addresses(&all[1]), ["10.1.1.1/24", "fd01::4/64"]);
}

#[test]
fn limits_of_either_order() {
    let limits = Some(Limits { subflows: 2, add_addr_accepted: 1 });
    assert_eq!(parse_limits("add_addr_accepted 1 subflows 2 \n"), limits);
    assert_eq!(parse_limits("subflows 2 add_addr_accepted 1"), limits);
    assert_eq!(parse_limits("subflows 2"), None);
    assert_eq!(parse_limits("add_addr_accepted subflows 2"), None);
}

#[test]
fn routes_to_elsewhere() {
    let text = r#"[{"dst": "default", "gateway": "10.1.1.254", "dev": "a1", "table": "101"},
        {"dst": "10.1.0.0/24", "dev": "a0", "protocol": "kernel", "scope": "link", "prefsrc": "10.1.0.1"},
        {"dst": "10.99.0.9", "flags": [], "nexthops": [
            {"gateway": "10.1.0.254", "dev": "a0"}, {"gateway": "10.1.1.254", "dev": "a1"}]},
        {"type": "local", "dst": "10.1.0.1", "dev": "a0", "table": "local"},
        {"type": "blackhole", "dst": "10.2.0.0/16"}]"#;
    let raw: Vec<RawRoute> = list(text).unwrap();
    let routes: Vec<_> = raw.into_iter().flat_map(|raw| raw.routes(true)).collect();
    let told = |of: &Route| {
        let gateway = of.gateway.map_or("-".into(), |gateway| gateway.to_string());
        format!("{} {} {gateway} {}", of.table.as_deref().unwrap_or("main"), of.to, of.dev)
    };
    let expected = [
        "101 0.0.0.0/0 10.1.1.254 a1",
        "main 10.1.0.0/24 - a0",
        "main 10.99.0.9/32 10.1.0.254 a0",
        "main 10.99.0.9/32 10.1.1.254 a1",
    ];
    assert_eq!(routes.iter().map(told).collect::<Vec<_>>(), expected);
}

#[test]
fn ways() {
    let of = |text: &str| by(list::<RawRoute>(text).unwrap().remove(0));
    assert_eq!(of(r#"[{"dst": "10.1.0.2", "from": "10.1.1.1", "dev": "a0"}]"#), By::Dev("a0".into()));
    assert_eq!(of(r#"[{"type": "local", "dst": "10.1.0.2", "dev": "lo"}]"#), By::Local);
    assert_eq!(of(r#"[{"type": "blackhole", "dst": "10.1.0.2"}]"#), By::Nowhere);
}

#[test]
fn nothing_is_an_empty_list() {
    assert!(list::<Endpoint>("\n").unwrap().is_empty());
    assert!(list::<Endpoint>("[ ]").unwrap().is_empty());
    assert!(list::<Endpoint>("no").is_err());
}

#[test]
fn endpoints_with_their_flags() {
    let text = r#"[{"address": "10.1.1.1", "id": 1, "signal": true, "subflow": true, "dev": "a1"},
        {"address": "fd01::1", "id": 2, "fullmesh": true, "backup": true, "port": 4420, "rawflags": 12}]"#;
    let mut all = list::<Endpoint>(text).unwrap();
    let second = Endpoint {
        address: "fd01::1".parse().unwrap(),
        id: 2,
        dev: None,
        port: Some(4420),
        subflow: false,
        signal: false,
        backup: true,
        fullmesh: true,
        laminar: false,
        implicit: false,
    };
    assert_eq!(all.pop(), Some(second));
    let Endpoint { address, dev, subflow, signal, backup, .. } = all.pop().unwrap();
    let first = (address.to_string(), dev.as_deref(), subflow, signal, backup);
    assert_eq!(first, ("10.1.1.1".into(), Some("a1"), true, true, false));
}
