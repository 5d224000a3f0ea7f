//! Discovery sessions: reading the log, events, and errors.

use monotonic::{Duration, Instant};
use proptest::prelude::*;
use zerocopy::FromBytes;

use super::controller::{Controller, What};
use super::{KATO, Session, config, entries, page};
use crate::host::{
    AdminError, ConfigError, DiscoveryConfig, DiscoveryError, DiscoveryEvent, DiscoveryLogError, HostDiscovery,
    LOG_RECORDS_MAX, Step,
};
use crate::wire::{
    AsyncEvent, ConnectField, DiscoveryEntryError, DiscoveryField, DiscoveryHeader, DiscoveryHeaderError,
    IdentifyController, Nqn, PropertyOffset, Status,
};

const RECORD: u64 = 1024;

#[test]
fn the_log_is_read_in_parts_and_the_header_twice() {
    let mut session = Session::with(config(), |controller| {
        controller.page = page(9, &entries(10));
        controller.identify.mdts = 0;
    });
    let log = session.log();
    assert_eq!((log.generation, log.entries, log.unreadable), (9, entries(10), vec![]));
    assert_eq!(session.controller.connect, Some((10_000, Nqn::discovery())));
    let (header, last) = ((true, 0, RECORD), (false, 0, RECORD));
    assert_eq!(session.controller.parts, [header, (true, RECORD, 10 * RECORD), last]);

    // With MDTS 1, a transfer has at most 2 pages of 4 KiB. Each record is read once, and the header twice.
    let mut session = Session::with(config(), |controller| {
        controller.page = page(9, &entries(130));
        controller.identify.mdts = 1;
    });
    assert_eq!(session.log().entries.len(), 130);
    let pieces: Vec<_> = session.controller.parts.iter().map(|&(_, offset, bytes)| (offset / RECORD, bytes)).collect();
    let most = pieces.iter().map(|&(_, bytes)| bytes).max().unwrap();
    assert!(most <= 8192, "{pieces:?}");
    assert_eq!(session.controller.parts.iter().map(|part| part.2).sum::<u64>(), 132 * RECORD);
    assert_eq!(
        session.controller.parts.iter().filter(|part| !part.0).count(),
        1,
        "the event is cleared once, at the end"
    );
}

#[test]
fn without_offsets_the_log_is_read_by_one_command() {
    let whole = |controller: &mut Controller| controller.identify.lpa = 0;
    let mut session = Session::with(config(), |controller| {
        whole(controller);
        controller.next_pages = vec![(1, page(2, &entries(3)))];
    });
    let log = session.log();
    assert_eq!((log.generation, log.entries), (2, entries(3)));
    assert_eq!(session.controller.parts, [(true, 0, RECORD), (false, 0, 3 * RECORD), (false, 0, 4 * RECORD)]);
    let mut session = Session::with(config(), |controller| {
        whole(controller);
        controller.identify.mdts = 1;
        controller.page = page(2, &entries(8));
    });
    assert_eq!(session.failure(), DiscoveryError::Log(DiscoveryLogError::LongerThanTransfer { records: 8 }));
}

#[test]
fn a_changing_log_is_read_again_a_limited_number_of_times() {
    let mut session = Session::with(config(), |controller| {
        controller.next_pages = vec![(2, page(2, &entries(5))), (4, page(3, &[]))];
    });
    let log = session.log();
    assert_eq!((log.generation, log.entries), (3, vec![]));
    // A changed number of records alone is noticed too.
    let mut session = Session::with(config(), |controller| controller.next_pages = vec![(2, page(1, &entries(1)))]);
    assert_eq!(session.log().entries, entries(1));
    let mut session = Session::with(config(), |controller| {
        controller.next_pages = (0..100).map(|n| (n, page(n as u64, &entries(1)))).collect();
    });
    assert_eq!(session.failure(), DiscoveryError::Log(DiscoveryLogError::Unstable));
}

#[test]
fn malformed_and_too_large_logs_are_refused() {
    let mut session = Session::with(config(), |controller| {
        controller.page = DiscoveryHeader { generation: 1, records: u64::MAX }.emit().to_vec();
    });
    assert_eq!(session.failure(), DiscoveryError::Log(DiscoveryLogError::TooManyRecords(u64::MAX)));
    let mut session = Session::with(config(), |controller| {
        controller.page = DiscoveryHeader { generation: 1, records: u64::from(LOG_RECORDS_MAX) + 1 }.emit().to_vec();
    });
    assert_eq!(session.failure().to_string(), "the discovery log has 1025 records; at most 1024 are accepted");
    let mut session = Session::with(config(), |controller| controller.page[16] = 1);
    let format = DiscoveryHeaderError::RecordFormat(1);
    assert_eq!(session.failure(), DiscoveryError::Log(DiscoveryLogError::Header(format)));
}

#[test]
fn a_malformed_record_does_not_affect_the_others() {
    let mut session = Session::with(config(), |controller| {
        controller.page = page(1, &entries(3));
        controller.page[2 * 1024 + 512] = 7;
    });
    let log = session.log();
    assert_eq!(log.entries, [entries(3)[0].clone(), entries(3)[2].clone()]);
    assert_eq!(log.unreadable, [(1, DiscoveryEntryError::Text(DiscoveryField::Traddr))]);
    assert_eq!(log.records(), 3);
}

#[test]
fn a_change_event_leads_to_reading_the_log_again() {
    let mut session = Session::with(config(), |_| {});
    assert_eq!(session.log().generation, 1);
    assert!(session.host.receives_change_events());
    for generation in 2..5 {
        session.controller.page = page(generation, &entries(generation as usize));
        session.controller.report(Status::SUCCESS, AsyncEvent::DISCOVERY_CHANGED);
        let log = session.log();
        assert_eq!((log.generation, log.entries.len()), (generation, generation as usize));
    }
    // Another event is ignored, and the request is renewed.
    session.controller.report(Status::SUCCESS, AsyncEvent::ANA_CHANGED);
    session.pass(Duration::from_secs(1)).unwrap();
    assert_eq!(session.host.poll_event(), None);
    // An event during the reading leads to another reading.
    session.host.reread(session.now);
    session.host.reread(session.now);
    session.controller.report(Status::SUCCESS, AsyncEvent::DISCOVERY_CHANGED);
    session.pass(Duration::from_secs(1)).unwrap();
    let logs = std::iter::from_fn(|| session.host.poll_event()).count();
    assert!((1..=2).contains(&logs), "{logs}");
    // If the controller refuses event requests, the owner of the session reads the log periodically.
    session.controller.report(Status::ABORT_REQUESTED, AsyncEvent::DISCOVERY_CHANGED);
    session.pass(Duration::from_secs(1)).unwrap();
    assert!(!session.host.receives_change_events());
    session.host.reread(session.now);
    assert_eq!(session.log().generation, 4);
}

#[test]
fn events_are_configured_only_on_persistent_connections_with_support() {
    for (tmo, oaes, refused) in [(None, 1 << 31, false), (Some(KATO), 0, false), (Some(KATO), 1 << 31, true)] {
        let mut session = Session::with(DiscoveryConfig { keep_alive_tmo: tmo, ..config() }, |controller| {
            controller.identify.oaes = oaes.into();
            if refused {
                controller.refuse.push((What::Events, Status::INVALID_FIELD, 0));
            }
        });
        assert_eq!(session.log().entries, entries(2));
        assert!(!session.host.receives_change_events());
        assert_eq!(session.controller.asked(What::Event), 0);
    }
}

#[test]
fn a_persistent_connection_has_keep_alives() {
    let mut session = Session::with(config(), |_| {});
    session.log();
    session.pass(Duration::from_secs(100)).unwrap();
    let sent = session.controller.asked(What::KeepAlive);
    assert!((19..=21).contains(&sent), "{sent}");
    session.controller.mute.push(What::KeepAlive);
    let late = AdminError::Timeout { step: Step::KeepAlive, after: KATO / 2 };
    assert_eq!(session.failure(), late.into());

    let mut session = Session::with(DiscoveryConfig { keep_alive_tmo: None, ..config() }, |_| {});
    session.log();
    assert_eq!(session.controller.connect, Some((0, Nqn::discovery())));
    session.pass(Duration::from_secs(100)).unwrap();
    assert_eq!((session.controller.asked(What::KeepAlive), session.host.next_timeout()), (0, None));
}

#[test]
fn controllers_without_persistent_connections_are_recognised() {
    let kato = (Status::CONNECT_INVALID_PARAMETERS, ConnectField::Kato.to_result());
    for (status, result) in [kato, (Status::CONNECT_INVALID_PARAMETERS, 0), (Status::INVALID_FIELD, 0)] {
        let mut session = Session::with(config(), |controller| controller.refuse.push((What::Connect, status, result)));
        assert!(session.failure().rejects_keep_alive(), "{status}");
    }
    let refused = (What::KeepAlive, Status::INVALID_OPCODE, 0);
    let mut session = Session::with(config(), |controller| controller.refuse.push(refused));
    session.log();
    assert!(session.failure().rejects_keep_alive());
    let other = (Status::CONNECT_INVALID_PARAMETERS, ConnectField::Hostnqn.to_result());
    for (status, result) in [other, (Status::INTERNAL_ERROR, 0)] {
        let mut session = Session::with(config(), |controller| controller.refuse.push((What::Connect, status, result)));
        assert!(!session.failure().rejects_keep_alive(), "{status}");
    }
}

#[test]
fn a_unique_nqn_is_checked_and_the_well_known_nqn_matches_any() {
    let unique = Nqn::new("nqn.2024-01.io.test:discovery").unwrap();
    let mut session = Session::with(config(), |controller| controller.identify.set_subnqn(&unique));
    assert_eq!(session.log().generation, 1);
    let named = DiscoveryConfig { subnqn: unique.clone(), ..config() };
    let mut session = Session::with(named.clone(), |controller| controller.identify.set_subnqn(&unique));
    assert_eq!(session.log().generation, 1);
    assert_eq!(session.controller.connect.as_ref().map(|(_, nqn)| nqn), Some(&unique));
    let got = Nqn::discovery().to_string();
    assert_eq!(Session::with(named, |_| {}).failure(), AdminError::WrongSubsystem { got }.into());
    for (cntrltype, is) in [(0, true), (2, true), (1, false), (3, false)] {
        let mut session = Session::with(config(), |controller| controller.identify.cntrltype = cntrltype);
        if is {
            assert_eq!(session.log().generation, 1);
        } else {
            assert_eq!(session.failure(), DiscoveryError::NotDiscovery { cntrltype });
        }
    }
}

#[test]
fn the_error_of_an_io_port_says_what_to_do() {
    let hint = "; for an I/O port, give the discovery port (8009 as a rule), or add the address as a path";
    let (status, result) = ConnectField::Subnqn.invalid();
    let mut without_service = Session::with(config(), |controller| {
        controller.refuse.push((What::Connect, status, result));
    });
    assert_eq!(
        without_service.failure().to_string(),
        format!("Connect rejected: Connect Invalid Parameters (SUBNQN): the target has no subsystem of this NQN{hint}")
    );
    let mut io_controller = Session::with(config(), |controller| controller.identify.cntrltype = 1);
    assert_eq!(
        io_controller.failure().to_string(),
        format!("the controller is not a discovery controller (CNTRLTYPE 1){hint}")
    );
}

#[test]
fn every_step_has_a_deadline_and_only_events_may_fail() {
    let steps = [
        (What::Connect, Step::Connect),
        (What::Get(PropertyOffset::CAP), Step::Capabilities),
        (What::Set(PropertyOffset::CC), Step::Enable),
        (What::Get(PropertyOffset::CSTS), Step::Ready),
        (What::Identify, Step::IdentifyController),
        (What::Events, Step::AsyncEventConfiguration),
        (What::Log, Step::DiscoveryLog),
    ];
    for (what, step) in steps {
        let mut session = Session::with(config(), |controller| controller.mute.push(what));
        assert!(
            matches!(session.failure(), DiscoveryError::Admin(AdminError::Timeout { step: got, .. }) if got == step),
            "{step}"
        );
        let status = Status::INTERNAL_ERROR;
        let mut session = Session::with(config(), |controller| controller.refuse.push((what, status, 0)));
        match what {
            What::Connect => assert!(matches!(session.failure(), DiscoveryError::Admin(AdminError::Queue(_)))),
            What::Events => assert_eq!(session.log().generation, 1),
            _ => assert_eq!(session.failure(), AdminError::Command { step, status }.into()),
        }
    }
    let mut session = Session::with(config(), |controller| controller.fatal = true);
    assert_eq!(session.failure(), AdminError::FatalStatus.into());
}

#[test]
fn the_shutdown_is_orderly() {
    let mut session = Session::with(config(), |_| {});
    session.log();
    session.controller.slow = 2;
    session.host.shutdown(session.now);
    session.host.shutdown(session.now);
    session.pass(Duration::from_secs(60)).unwrap();
    assert_eq!((session.host.poll_event(), session.host.poll_event()), (Some(DiscoveryEvent::ShutdownComplete), None));
    assert_eq!(session.controller.asked(What::Set(PropertyOffset::CC)), 2);
    // Before Connect there is nothing to shut down.
    let mut host = HostDiscovery::new(config(), Instant::now()).unwrap();
    host.shutdown(Instant::now());
    assert_eq!(host.poll_event(), Some(DiscoveryEvent::ShutdownComplete));
}

#[test]
fn an_invalid_kato_is_refused() {
    for tmo in [Duration::ZERO, Duration::from_micros(1), Duration::from_secs(5_000_000)] {
        let config = DiscoveryConfig { keep_alive_tmo: Some(tmo), ..config() };
        assert_eq!(HostDiscovery::new(config, Instant::now()).unwrap_err(), ConfigError::KeepAlive);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// With any controller and any log, the session returns a log or an error, within its limits.
    #[test]
    fn any_controller_and_log_lead_to_a_log_or_an_error(
        identify in proptest::collection::vec(any::<u8>(), 4096),
        likely in any::<[bool; 3]>(),
        records in prop_oneof![0u64..40, 1000u64..1100, any::<u64>()],
        noise in proptest::collection::vec(any::<u8>(), 0..8192),
        at in 0usize..8192,
        stays: bool,
    ) {
        let tmo = stays.then_some(KATO);
        let mut session = Session::with(DiscoveryConfig { keep_alive_tmo: tmo, ..config() }, |controller| {
            controller.identify = IdentifyController::read_from_bytes(&identify).unwrap();
            if likely[0] {
                controller.identify.cntrltype = 2;
            }
            if likely[1] {
                controller.identify.lpa |= IdentifyController::LPA_EXTENDED;
            }
            controller.page = page(3, &entries(7));
            let end = controller.page.len().min(at + noise.len());
            if at < end && likely[2] {
                controller.page[at..end].copy_from_slice(&noise[..end - at]);
            }
            controller.page[8..16].copy_from_slice(&records.to_le_bytes());
        });
        if session.pass(Duration::from_secs(20)).is_ok() {
            match session.host.poll_event() {
                Some(DiscoveryEvent::Log(log)) => prop_assert_eq!(log.records() as u64, records),
                other => prop_assert!(false, "{:?}", other),
            }
            prop_assert!(records <= u64::from(LOG_RECORDS_MAX));
        }
        for &(_, offset, bytes) in &session.controller.parts {
            prop_assert!(bytes <= 1025 * 1024 && offset <= 1025 * 1024);
        }
    }

    /// Damaged bytes lead to an error or to another log, and never to a panic.
    #[test]
    fn damage_is_survived(seed: u64, one_in in 20usize..400) {
        let mut session = Session::with(config(), |_| {});
        session.dice.0 = seed;
        for _ in 0..200 {
            let mut bytes = Vec::new();
            session.host.fill_tx(&mut bytes);
            session.controller.receive(&bytes);
            let mut answer = std::mem::take(&mut session.controller.out);
            for byte in &mut answer {
                if session.dice.one_in(one_in) {
                    *byte ^= 1 << session.dice.below(8);
                }
            }
            if session.host.receive(session.now, &answer).is_err() {
                return Ok(());
            }
            let Some(at) = session.host.next_timeout() else { break };
            session.now = session.now.max(at);
            if session.host.handle_timeout(session.now).is_err() {
                return Ok(());
            }
        }
    }

    /// Random bytes never lead to a panic.
    #[test]
    fn noise_is_survived(noise in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut host = HostDiscovery::new(config(), Instant::now()).unwrap();
        host.fill_tx(&mut Vec::new());
        let _ = host.receive(Instant::now(), &noise);
        prop_assert_eq!(host.poll_event(), None);
    }
}
