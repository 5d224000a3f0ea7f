//! Referrals, and the addresses of records.

use std::collections::HashMap;

use proptest::prelude::*;

use super::entry;
use crate::host::{DiscoveryLog, REFERRAL_DEPTH_MAX, REFERRALS_MAX, Referral, UnusableEntry, referrals, tcp_address};
use crate::wire::{AddressFamily, DiscoveryEntry, Nqn, SecurityType, SubsystemType, TransportType};

const WELL_KNOWN: &str = "nqn.2014-08.org.nvmexpress.discovery";

fn refers(address: &str) -> DiscoveryEntry {
    entry(SubsystemType::REFERRAL, WELL_KNOWN, address)
}

fn log(entries: Vec<DiscoveryEntry>) -> DiscoveryLog {
    DiscoveryLog { generation: 1, entries, unreadable: vec![] }
}

fn referral(address: &str) -> Referral {
    Referral { address: address.parse().unwrap(), subnqn: Nqn::discovery() }
}

fn numbered(n: usize) -> String {
    format!("192.0.2.{}:8009", n + 1)
}

#[test]
fn circular_referrals_end() {
    // 1 and 2 refer to each other and to 3. 3 refers to itself and to 1.
    let first = log(vec![
        entry(SubsystemType::CURRENT_DISCOVERY, "nqn.unique", &numbered(0)),
        refers(&numbered(1)),
        refers(&numbered(2)),
        refers(&numbered(0)),
    ]);
    let second = log(vec![refers(&numbered(0)), refers(&numbered(2)), refers("[2001:db8::1]:8009")]);
    let third = log(vec![refers(&numbered(2)), refers(&numbered(0))]);
    let known = HashMap::from([(referral(&numbered(1)), second), (referral(&numbered(2)), third)]);
    let found = referrals(&first, &[], false, |referral| known.get(referral));
    let expected = [numbered(1), numbered(2), "[2001:db8::1]:8009".into()].map(|address| referral(&address));
    assert_eq!((found.found, found.cut), (expected.to_vec(), false));
    // The own address may also come from the configuration.
    let bare = log(vec![refers(&numbered(0))]);
    assert_eq!(referrals(&bare, &[], false, |_| None).found.len(), 1);
    assert_eq!(referrals(&bare, &[numbered(0).parse().unwrap()], false, |_| None).found.len(), 0);
}

#[test]
fn one_address_may_have_two_names() {
    let first = log(vec![refers(&numbered(1)), entry(SubsystemType::REFERRAL, "nqn.unique", &numbered(1))]);
    let found = referrals(&first, &[], false, |_| None).found;
    assert_eq!(found.len(), 2);
    assert_eq!(found[1].subnqn.as_str(), "nqn.unique");
}

#[test]
fn depth_and_number_of_referrals_are_limited() {
    let chain: HashMap<_, _> =
        (1..100).map(|n| (referral(&numbered(n)), log(vec![refers(&numbered(n + 1))]))).collect();
    let first = log(vec![refers(&numbered(1))]);
    let found = referrals(&first, &[], false, |referral| chain.get(referral));
    assert_eq!((found.found.len(), found.cut), (REFERRAL_DEPTH_MAX as usize, true));
    let wide = log((0..100).map(|n| refers(&numbered(n))).collect());
    let found = referrals(&wide, &[], false, |_| None);
    assert_eq!((found.found.len(), found.cut), (REFERRALS_MAX, true));
}

proptest! {
    #[test]
    fn any_graph_is_walked_once(edges in proptest::collection::vec((0usize..30, 0usize..30), 0..120)) {
        let mut logs: HashMap<Referral, DiscoveryLog> = HashMap::new();
        for (from, to) in edges {
            let from = logs.entry(referral(&numbered(from))).or_insert_with(|| log(vec![]));
            from.entries.push(refers(&numbered(to)));
        }
        let first = logs.get(&referral(&numbered(0))).cloned().unwrap_or_default();
        let found = referrals(&first, &[], false, |referral| logs.get(referral)).found;
        let distinct: std::collections::HashSet<_> = found.iter().collect();
        prop_assert_eq!(distinct.len(), found.len());
        prop_assert!(found.len() <= REFERRALS_MAX);
    }
}

#[test]
fn only_tcp_addresses_are_usable() {
    let good = entry(SubsystemType::NVM, "nqn.a", "192.0.2.1:4420");
    assert_eq!(tcp_address(&good, false), Ok("192.0.2.1:4420".parse().unwrap()));
    let six = entry(SubsystemType::NVM, "nqn.a", "[2001:db8::1]:4420");
    assert_eq!(tcp_address(&six, false), Ok("[2001:db8::1]:4420".parse().unwrap()));

    let says = |change: &dyn Fn(&mut DiscoveryEntry)| {
        let mut entry = good.clone();
        change(&mut entry);
        tcp_address(&entry, false).map_err(|error| error.to_string())
    };
    for (transport, name) in [(1, "RDMA is"), (2, "Fibre Channel is"), (254, "type 254 is")] {
        let refused = says(&|entry| entry.transport = TransportType(transport)).unwrap_err();
        assert_eq!(refused, format!("transport {name} not supported"));
    }
    // TREQ, SECTYPE, and whether they require TLS.
    for (treq, security, required) in [
        (0, 0, false),
        (0, 2, true),
        (1, 0, true),
        (1, 2, true),
        (2, 2, false),
        (6, 2, false),
        (4, 0, false),
        (3, 2, true),
    ] {
        let entry = DiscoveryEntry { treq, security: SecurityType(security), ..good.clone() };
        let [clear, tls] = [false, true].map(|has_tls| tcp_address(&entry, has_tls));
        let needs_tls = clear == Err(UnusableEntry::NeedsTls);
        assert_eq!((needs_tls, clear.is_ok()), (required, !required), "TREQ {treq} SECTYPE {security}: {clear:?}");
        assert!(tls.is_ok(), "TREQ {treq} SECTYPE {security}: {tls:?}");
    }
    for (treq, usable) in [(0, false), (1, false), (2, true)] {
        let entry = DiscoveryEntry { treq, security: SecurityType::TLS_1_2, ..good.clone() };
        let expected = if usable { Ok("192.0.2.1:4420".parse().unwrap()) } else { Err(UnusableEntry::TlsVersion) };
        assert_eq!([false, true].map(|has_tls| tcp_address(&entry, has_tls)), [expected.clone(), expected]);
    }
    for traddr in ["", "192.0.2", "host", "[::1]", "fe80::1%eth0", "::1", "127.0.0.1:1"] {
        let refused = says(&|entry| entry.traddr = traddr.into()).unwrap_err();
        assert_eq!(refused, format!("TRADDR `{traddr}` is not an address of family IPv4"));
    }
    assert!(says(&|entry| entry.family = AddressFamily::IPV6).is_err());
    assert!(says(&|entry| entry.family = AddressFamily(9)).unwrap_err().ends_with("family 9"));
    for traddr in ["0.0.0.0", "224.0.0.1"] {
        let mut entry = good.clone();
        entry.traddr = traddr.into();
        assert_eq!(tcp_address(&entry, false), Err(UnusableEntry::Unspecified(traddr.into())));
    }
    for trsvcid in ["0", "65536", "+1", "-1", "x", "44 20"] {
        let refused = says(&|entry| entry.trsvcid = trsvcid.into()).unwrap_err();
        assert_eq!(refused, format!("TRSVCID `{trsvcid}` is not a TCP port"));
    }
    assert!(says(&|entry| entry.trsvcid = " 4420 ".into()).is_ok());
}
