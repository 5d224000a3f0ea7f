//! The discovery service, over real sockets.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use mpath_target::{NamespaceConfig, SettingError, StartError, TargetConfig, TargetServer};
use nvme_tcp::wire::{
    AdminCommand, AsyncEvent, AsyncEventMask, DISCOVERY_ENTRY_BYTES, DiscoveryEntry, DiscoveryHeader,
    IdentifyController, LogPage, Nqn, SecurityType, SubsystemType, TransportType,
};
use nvme_tls::psk::{ConfiguredPsk, RetainedHash};

use crate::common::raw::RawAdmin;
use crate::common::{Admin, NQN, connect, host_config, set, target_config};

fn config() -> TargetConfig {
    let mut config = target_config(2, &[NamespaceConfig::memory(1 << 20)]);
    config.discovery = Some("127.0.0.1:0".parse().unwrap());
    config
}

fn discover(server: &TargetServer) -> RawAdmin {
    RawAdmin::connect(server.discovery_addr().unwrap(), Nqn::discovery())
}

/// Reads the log like a host: the header, then the records.
fn read_log(admin: &mut RawAdmin) -> (u64, Vec<DiscoveryEntry>) {
    let header = DiscoveryHeader::parse(&admin.log(LogPage::DISCOVERY, 1024, 0)).unwrap();
    let bytes = header.records as u32 * 1024;
    let data = admin.log(LogPage::DISCOVERY, bytes, 1024);
    let (records, _) = data.as_chunks::<DISCOVERY_ENTRY_BYTES>();
    (header.generation, records.iter().map(|record| DiscoveryEntry::parse(record).unwrap()).collect())
}

fn subsystems(entries: &[DiscoveryEntry]) -> Vec<(u16, SocketAddr)> {
    let nvm = entries.iter().filter(|entry| entry.subsystem == SubsystemType::NVM);
    nvm.map(|entry| {
        assert_eq!((entry.subnqn.as_str(), entry.transport), (NQN, TransportType::TCP));
        (entry.port_id, format!("{}:{}", entry.traddr, entry.trsvcid).parse().unwrap())
    })
    .collect()
}

#[test]
fn the_log_lists_all_ports_the_service_itself_and_its_referrals() {
    let mut config = config();
    config.referrals = vec!["[2001:db8::1]:8009".parse().unwrap()];
    let server = TargetServer::start(config).unwrap();
    let mut admin = discover(&server);
    let data = admin.identify();
    let identify = IdentifyController::parse(&data).unwrap();
    assert_eq!((identify.cntrltype, identify.subnqn()), (2, Ok(Nqn::discovery())));
    let (_, entries) = read_log(&mut admin);
    let addrs = server.addrs();
    assert_eq!(subsystems(&entries), [(1, addrs[0]), (2, addrs[1])]);
    let [.., own, referral] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(own.subsystem, SubsystemType::CURRENT_DISCOVERY);
    assert_eq!(own.trsvcid, server.discovery_addr().unwrap().port().to_string());
    assert_eq!((referral.subsystem, referral.traddr.as_str()), (SubsystemType::REFERRAL, "2001:db8::1"));
    // A host can connect to a listed address.
    let (_a, mut queue, _) = connect(subsystems(&entries)[1].1, host_config());
    queue.read(0, 1).unwrap();
}

#[test]
fn records_of_ports_with_tls_require_tls() {
    let mut config = config();
    config.tls_key = Some(ConfiguredPsk::new(RetainedHash::Sha256, &[7; 32]).unwrap());
    config.listeners[1].is_clear_text = true;
    let server = TargetServer::start(config).unwrap();
    let (_, entries) = read_log(&mut discover(&server));
    let security: Vec<_> = entries.iter().map(|entry| (entry.treq & 3, entry.security)).collect();
    let [tls, clear, own] = security[..] else { panic!("{entries:?}") };
    assert_eq!(tls, (DiscoveryEntry::TREQ_REQUIRED, SecurityType::TLS_1_3));
    let not_required = (DiscoveryEntry::TREQ_NOT_REQUIRED, SecurityType::NONE);
    assert_eq!((clear, own), (not_required, not_required));
}

#[test]
fn the_log_has_the_advertised_address() {
    let mut config = config();
    config.listeners[1].advertise = Some("192.0.2.7:4420".parse().unwrap());
    let server = TargetServer::start(config).unwrap();
    let (_, entries) = read_log(&mut discover(&server));
    assert_eq!(subsystems(&entries)[1], (2, "192.0.2.7:4420".parse().unwrap()));
}

#[test]
fn persistent_hosts_are_notified_when_ports_start_and_stop_listening() {
    let mut config = config();
    config.listeners[1].settings = vec!["listen=off".parse().unwrap()];
    let server = TargetServer::start(config).unwrap();
    assert!(TcpStream::connect(server.addrs()[1]).is_err());
    let mut admin = discover(&server);
    admin.listen_for(AsyncEventMask::DISCOVERY_CHANGE);
    let mut generation = 0;
    let all: Vec<_> = (1..).zip(server.addrs()).collect();
    for (settings, ports) in [("listen=on", 2), ("listen=off", 1), ("listen=on", 2)] {
        let (before, _) = read_log(&mut admin);
        assert!(before > generation);
        generation = before;
        let asked = admin.ask_event();
        assert!(admin.is_silent(Duration::from_millis(50)));
        set(&server, 1, &[settings]);
        assert_eq!(admin.event(asked), AsyncEvent::DISCOVERY_CHANGED);
        assert_eq!(subsystems(&read_log(&mut admin).1), all[..ports]);
    }
    server.stop_listener(0);
    assert_eq!(subsystems(&read_log(&mut admin).1), all[1..]);
    server.resume_listener(0).unwrap();
    assert_eq!(subsystems(&read_log(&mut admin).1), all);
    assert_eq!(server.discovery_status().unwrap().generation, read_log(&mut admin).0);
}

#[test]
fn other_settings_do_not_change_the_generation() {
    let server = TargetServer::start(config()).unwrap();
    let mut admin = discover(&server);
    let (before, _) = read_log(&mut admin);
    set(&server, 0, &["ana=inaccessible", "reset=all", "listen=on"]);
    assert_eq!(read_log(&mut admin).0, before);
}

#[test]
fn faults_of_the_discovery_service() {
    let server = TargetServer::start(config()).unwrap();
    let mut admin = discover(&server);
    let apply = |text: &str| server.apply_to_discovery(&[text.parse().unwrap()]);
    apply("reset=all").unwrap();
    assert!(admin.is_closed());
    apply("black-hole=stall").unwrap();
    let mut silent = TcpStream::connect(server.discovery_addr().unwrap()).unwrap();
    silent.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    std::io::Write::write_all(&mut silent, &[0; 8]).unwrap();
    assert!(std::io::Read::read(&mut silent, &mut [0]).is_err());
    apply("black-hole=off").unwrap();
    apply("listen=off").unwrap();
    assert!(TcpStream::connect(server.discovery_addr().unwrap()).is_err());
    apply("listen=on").unwrap();
    assert_eq!(discover(&server).plain(AdminCommand::KeepAlive), Ok(0));
    let refused = apply("ana=change").unwrap_err();
    assert!(matches!(refused, StartError::Setting(SettingError::Discovery(_))), "{refused}");
}

#[test]
fn each_port_serves_only_its_own_subsystem() {
    let server = TargetServer::start(config()).unwrap();
    for (addr, nqn) in
        [(server.discovery_addr().unwrap(), Nqn::new(NQN).unwrap()), (server.addrs()[0], Nqn::discovery())]
    {
        let config = nvme_tcp::host::ControllerConfig { subnqn: nqn, ..host_config() };
        assert!(Admin::connect(addr, config).is_err());
    }
}
