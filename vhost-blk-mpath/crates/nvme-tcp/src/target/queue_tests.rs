use proptest::prelude::*;

use super::queue::QueueLimits;
use super::testing::{ENTRIES, Wire, icreq};
use super::{TargetCommand, TargetError};
use crate::wire::{
    C2hData, Cqe, FatalError, H2cData, IcReq, NvmCommand, Pdu, PduError, PduType, R2t, Sgl, Sqe, Status, TermReq,
};

fn plain() -> IcReq {
    icreq(false, false, 0, 0)
}

fn io() -> Wire {
    Wire::io(QueueLimits::default(), plain(), true)
}

fn write_sqe(cid: u16, bytes: u32, sgl: Sgl) -> Sqe {
    NvmCommand::Write { slba: 0, blocks: bytes / 512, fua: false }.to_sqe(cid, 1, sgl)
}

fn ask(cid: u16, bytes: u32) -> Pdu {
    Pdu::CapsuleCmd(write_sqe(cid, bytes, Sgl::Transport { length: bytes }))
}

fn read(cid: u16, bytes: u32) -> Pdu {
    let sgl = Sgl::Transport { length: bytes };
    Pdu::CapsuleCmd(NvmCommand::Read { slba: 0, blocks: bytes / 512 }.to_sqe(cid, 1, sgl))
}

fn pattern(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|i| (i / 7) as u8).collect()
}

/// The terminate request that follows an error.
fn term(wire: &mut Wire) -> TermReq {
    let answers = wire.answers();
    let Some((Pdu::C2hTermReq(term), _)) = answers.last() else { panic!("{answers:?}") };
    *term
}

#[test]
fn nothing_comes_before_icreq() {
    let mut wire = Wire::new(QueueLimits::default());
    let bytes = wire.bytes_of(read(1, 512), &[]);
    assert_eq!(wire.queue.receive(&bytes), Err(TargetError::OutOfSequence(PduType::CapsuleCmd)));
    let answers = wire.answers();
    let [(Pdu::C2hTermReq(term), header)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(*term, TermReq { fes: FatalError::PduSequence, fei: 0 });
    assert_eq!(header[..], bytes[..72]);
    assert_eq!(wire.queue.receive(&[0]), Err(TargetError::Terminated));
}

#[test]
fn a_second_icreq_and_pdus_of_controllers_are_out_of_sequence() {
    for pdu in [Pdu::IcReq(plain()), Pdu::CapsuleResp(Cqe::default())] {
        let mut wire = io();
        let bytes = wire.bytes_of(pdu, &[]);
        assert_eq!(wire.queue.receive(&bytes), Err(TargetError::OutOfSequence(pdu.pdu_type())));
        assert_eq!(term(&mut wire).fes, FatalError::PduSequence);
    }
}

#[test]
fn an_unknown_format_version_is_unsupported() {
    let mut wire = Wire::new(QueueLimits::default());
    let mut bytes = wire.bytes_of(Pdu::IcReq(plain()), &[]);
    bytes[8] = 1;
    assert!(matches!(wire.queue.receive(&bytes), Err(TargetError::Pdu(PduError::Unsupported { .. }))));
    assert_eq!(term(&mut wire), TermReq { fes: FatalError::UnsupportedParameter, fei: 8 });
}

#[test]
fn a_terminated_connection_is_not_answered() {
    let mut wire = io();
    let sent = TermReq { fes: FatalError::DataOutOfRange, fei: 3 };
    let bytes = wire.bytes_of(Pdu::H2cTermReq(sent), &[1; 24]);
    assert_eq!(wire.queue.receive(&bytes), Err(TargetError::HostTerminated(sent)));
    assert!(wire.queue.pending().is_empty());
}

#[test]
fn in_capsule_writes_arrive_whole() {
    for (header, data, cpda) in [(false, false, 0), (true, false, 0), (false, true, 3), (true, true, 31)] {
        let limits = QueueLimits { cpda, ..QueueLimits::default() };
        let mut wire = Wire::io(limits, icreq(header, data, 7, 0), true);
        let sgl = Sgl::InCapsule { offset: 0, length: 8192 };
        let bytes = wire.bytes_of(Pdu::CapsuleCmd(write_sqe(3, 8192, sgl)), &pattern(8192));
        for (i, byte) in bytes.iter().enumerate() {
            assert!(wire.queue.poll_command().is_none(), "at byte {i}");
            wire.queue.receive(&[*byte]).unwrap();
        }
        let command = wire.queue.poll_command().unwrap();
        assert_eq!(command.payload, pattern(8192));
        wire.queue.complete(command.token, Status::SUCCESS, 0);
        let cqe = wire.answer_cqe();
        assert_eq!((cqe.cid.get(), cqe.status(), cqe.sqhd.get()), (3, Status::SUCCESS, 2));
        assert_eq!(wire.queue.in_flight(), 0);
    }
}

#[test]
fn r2ts_ask_for_a_write_as_the_host_allows() {
    let limits = QueueLimits { max_r2t_bytes: 8192, ..QueueLimits::default() };
    let mut wire = Wire::io(limits, icreq(false, true, 0, 1), true);
    let data = pattern(20 * 1024);
    wire.send(ask(5, 20 * 1024), &[]);
    let r2ts = |wire: &mut Wire| -> Vec<(u32, u32, u16)> {
        let r2t = |(pdu, _)| match pdu {
            Pdu::R2t(R2t { cid: 5, ttag, offset, length }) => (offset, length, ttag),
            pdu => panic!("{pdu:?}"),
        };
        wire.answers().into_iter().map(r2t).collect()
    };
    let first = r2ts(&mut wire);
    let ttag = first[0].2;
    // MAXR2T is 1, so two at a time.
    assert_eq!(first, [(0, 8192, ttag), (8192, 8192, ttag)]);
    let send = |wire: &mut Wire, offset: u32, length: u32, last| {
        let part = &data[offset as usize..][..length as usize];
        wire.send(Pdu::H2cData(H2cData { cid: 5, ttag, offset, length, last }), part);
    };
    send(&mut wire, 0, 4096, false);
    assert!(wire.queue.pending().is_empty());
    send(&mut wire, 4096, 4096, true);
    assert_eq!(r2ts(&mut wire), [(16384, 4096, ttag)]);
    send(&mut wire, 8192, 8192, true);
    assert!(wire.queue.poll_command().is_none());
    send(&mut wire, 16384, 4096, true);
    assert_eq!(wire.queue.poll_command().unwrap().payload, data);
}

#[test]
fn the_transfer_budget_bounds_what_is_asked_for() {
    let limits = QueueLimits { transfer_budget_bytes: 64 << 10, ..QueueLimits::default() };
    let mut wire = Wire::io(limits, plain(), true);
    // The first is larger than the budget and alone; the others have to wait for it.
    for (cid, bytes) in [(1, 128 << 10), (2, 32 << 10), (3, 32 << 10), (4, 512)] {
        wire.send(ask(cid, bytes), &[]);
    }
    let asked = |wire: &mut Wire| -> Vec<(u16, u16, u32)> {
        let r2t = |(pdu, _)| match pdu {
            Pdu::R2t(R2t { cid, ttag, length, .. }) => Some((cid, ttag, length)),
            _ => None,
        };
        wire.answers().into_iter().filter_map(r2t).collect()
    };
    let finish = |wire: &mut Wire, (cid, ttag, length): (u16, u16, u32)| {
        let data = Pdu::H2cData(H2cData { cid, ttag, offset: 0, length, last: true });
        wire.send(data, &pattern(length));
        let command = wire.queue.poll_command().unwrap();
        wire.queue.complete(command.token, Status::SUCCESS, 0);
    };
    let first = asked(&mut wire);
    assert_eq!(first.len(), 1);
    finish(&mut wire, first[0]);
    let next = asked(&mut wire);
    assert_eq!(next.iter().map(|r2t| r2t.0).collect::<Vec<_>>(), [2, 3]);
    finish(&mut wire, next[0]);
    assert_eq!(asked(&mut wire).iter().map(|r2t| r2t.0).collect::<Vec<_>>(), [4]);
}

/// What `H2CData` does to a connection that was asked for bytes 0 to 4096 of a command of 8192.
fn h2c_data(change: impl Fn(&mut H2cData)) -> (TargetError, TermReq) {
    let limits = QueueLimits { max_h2c_data_bytes: 4096, max_r2t_bytes: 4096, ..QueueLimits::default() };
    let mut wire = Wire::io(limits, plain(), true);
    wire.send(ask(1, 8192), &[]);
    let answers = wire.answers();
    let [(Pdu::R2t(R2t { ttag, .. }), _)] = answers[..] else { panic!("{answers:?}") };
    let mut data = H2cData { cid: 1, ttag, offset: 0, length: 4096, last: true };
    change(&mut data);
    let bytes = wire.bytes_of(Pdu::H2cData(data), &pattern(data.length));
    let error = wire.queue.receive(&bytes).unwrap_err();
    (error, term(&mut wire))
}

#[test]
fn data_that_was_not_asked_for_is_fatal() {
    let (error, term) = h2c_data(|data| data.ttag = 99);
    assert_eq!(error, TargetError::UnknownTransfer { cid: 1, ttag: 99 });
    assert_eq!(term, TermReq { fes: FatalError::InvalidHeaderField, fei: 10 });
    let (error, _) = h2c_data(|data| data.cid = 2);
    assert!(matches!(error, TargetError::UnknownTransfer { cid: 2, .. }));
    for offset in [512, u32::MAX] {
        let (error, term) = h2c_data(|data| data.offset = offset);
        assert!(matches!(error, TargetError::DataOutOfRange { expected: 0, end: 4096, .. }), "{error}");
        assert_eq!(term.fes, FatalError::DataOutOfRange);
    }
    let (error, term) = h2c_data(|data| data.length = 4100);
    assert_eq!(error, TargetError::TooMuchData { pdu: PduType::H2cData, bytes: 4100, limit: 4096 });
    assert_eq!(term.fes, FatalError::LimitExceeded);
    assert_eq!(h2c_data(|data| data.last = false).0, TargetError::WrongLast { last: false });
    assert_eq!(h2c_data(|data| data.length = 512).0, TargetError::WrongLast { last: true });
}

#[test]
fn a_wrong_data_digest_fails_its_command_only() {
    let mut wire = Wire::io(QueueLimits::default(), icreq(false, true, 0, 0), true);
    let sgl = Sgl::InCapsule { offset: 0, length: 512 };
    let mut bytes = wire.bytes_of(Pdu::CapsuleCmd(write_sqe(1, 512, sgl)), &pattern(512));
    *bytes.last_mut().unwrap() ^= 1;
    wire.queue.receive(&bytes).unwrap();
    assert!(wire.queue.poll_command().is_none());
    assert_eq!(wire.answer_cqe().status(), Status::TRANSIENT_TRANSPORT_ERROR);
    wire.send(Pdu::CapsuleCmd(write_sqe(1, 512, sgl)), &pattern(512));
    assert!(wire.queue.poll_command().is_some());
}

#[test]
fn a_wrong_header_digest_is_fatal() {
    let mut wire = Wire::io(QueueLimits::default(), icreq(true, false, 0, 0), true);
    let mut bytes = wire.bytes_of(read(1, 512), &[]);
    bytes[40] ^= 1;
    assert!(matches!(wire.queue.receive(&bytes), Err(TargetError::Pdu(PduError::HeaderDigest { .. }))));
    assert_eq!(term(&mut wire).fes, FatalError::HeaderDigest);
}

#[test]
fn a_cid_in_use_is_a_conflict() {
    let mut wire = io();
    wire.send(read(9, 512), &[]);
    wire.send(read(9, 512), &[]);
    let cqe = wire.answer_cqe();
    assert_eq!((cqe.cid.get(), cqe.status()), (9, Status::COMMAND_ID_CONFLICT.with_dnr()));
    assert_eq!(wire.queue.in_flight(), 1);
}

#[test]
fn the_queue_has_its_entries_and_no_more() {
    let mut wire = io();
    for cid in 0..ENTRIES {
        wire.send(read(cid, 512), &[]);
    }
    let bytes = wire.bytes_of(read(99, 512), &[]);
    assert_eq!(wire.queue.receive(&bytes), Err(TargetError::TooManyCommands { entries: ENTRIES }));
}

#[test]
fn in_capsule_data_is_bounded() {
    let mut wire = io();
    let sgl = Sgl::InCapsule { offset: 0, length: 8704 };
    let bytes = wire.bytes_of(Pdu::CapsuleCmd(write_sqe(1, 8704, sgl)), &pattern(8704));
    let error = TargetError::TooMuchData { pdu: PduType::CapsuleCmd, bytes: 8704, limit: 8192 };
    assert_eq!(wire.queue.receive(&bytes), Err(error));
}

#[test]
fn sgls_that_make_no_sense_fail_their_command() {
    let capsule = |offset, length| Sgl::InCapsule { offset, length };
    let transport = |length| Sgl::Transport { length };
    let keyed = |sqe: Sqe| Sqe { dptr: [0x40; 16], ..sqe };
    let prp = |sqe: Sqe| Sqe { flags: 0, ..sqe };
    let read_sqe = |sgl| NvmCommand::Read { slba: 0, blocks: 1 }.to_sqe(1, 1, sgl);
    for (sqe, data, status) in [
        (write_sqe(1, 512, capsule(4, 512)), 512, Status::SGL_OFFSET_INVALID),
        (write_sqe(1, 512, capsule(0, 512)), 0, Status::DATA_SGL_LENGTH_INVALID),
        (write_sqe(1, 512, capsule(0, 256)), 512, Status::DATA_SGL_LENGTH_INVALID),
        (write_sqe(1, 512, transport(512)), 512, Status::DATA_SGL_LENGTH_INVALID),
        (write_sqe(1, 512, transport(2 << 20)), 0, Status::INVALID_FIELD),
        (keyed(write_sqe(1, 512, transport(512))), 0, Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (prp(write_sqe(1, 512, transport(512))), 0, Status::INVALID_FIELD),
        (read_sqe(capsule(0, 512)), 0, Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (read_sqe(transport(512)), 512, Status::DATA_SGL_LENGTH_INVALID),
        (NvmCommand::Flush.to_sqe(1, 1, Sgl::NONE), 512, Status::INVALID_FIELD),
    ] {
        let mut wire = io();
        wire.send(Pdu::CapsuleCmd(sqe), &pattern(data));
        assert_eq!(wire.answer_cqe().status(), status.with_dnr(), "{sqe:?} with {data} bytes");
        assert!(wire.queue.poll_command().is_none());
        // Its data was thrown away: what follows is understood.
        wire.send(read(1, 512), &[]);
        assert!(wire.queue.poll_command().is_some());
    }
}

#[test]
fn reads_are_cut_and_answered_shortly_where_allowed() {
    for flow_control in [false, true] {
        let limits = QueueLimits { max_c2h_data_bytes: 4096, ..QueueLimits::default() };
        let mut wire = Wire::io(limits, icreq(true, true, 3, 0), flow_control);
        wire.send(read(1, 10240), &[]);
        let TargetCommand { token, expects_bytes, .. } = wire.queue.poll_command().unwrap();
        assert_eq!(expects_bytes, 10240);
        let content = pattern(10240);
        wire.queue.complete_with_data(token, 10240, |offset, part| {
            part.copy_from_slice(&content[offset as usize..][..part.len()]);
            Ok(())
        });
        let mut answers = wire.answers();
        if flow_control {
            let Some((Pdu::CapsuleResp(cqe), _)) = answers.pop() else { panic!("no response") };
            assert_eq!((cqe.status(), cqe.sqhd.get()), (Status::SUCCESS, 2));
        }
        let mut received = Vec::new();
        for (i, (pdu, data)) in answers.into_iter().enumerate() {
            let (offset, last) = (received.len() as u32, i == 2);
            let length = data.len() as u32;
            assert_eq!(pdu, Pdu::C2hData(C2hData { cid: 1, offset, length, last, success: last && !flow_control }));
            received.extend(data);
        }
        assert_eq!(received, content);
        assert_eq!(wire.queue.in_flight(), 0);
    }
}

#[test]
fn a_read_that_fails_sends_no_data() {
    let limits = QueueLimits { max_c2h_data_bytes: 4096, ..QueueLimits::default() };
    let mut wire = Wire::io(limits, plain(), false);
    wire.send(read(1, 8192), &[]);
    let command = wire.queue.poll_command().unwrap();
    let fill = |offset, _: &mut [u8]| {
        if offset == 0 { Ok(()) } else { Err(Status::UNRECOVERED_READ_ERROR) }
    };
    wire.queue.complete_with_data(command.token, 8192, fill);
    assert_eq!(wire.answer_cqe().status(), Status::UNRECOVERED_READ_ERROR);
}

/// PDUs that are plausible in type and fields, so that they get far.
fn plausible() -> impl Strategy<Value = (Pdu, Vec<u8>)> {
    let sgl = prop_oneof![
        (0u64..2, 0u32..3).prop_map(|(offset, dwords)| Sgl::InCapsule { offset, length: dwords * 4 }),
        (0u32..20_000).prop_map(|length| Sgl::Transport { length }),
    ];
    let capsule = (0u8..12, 0u16..6, sgl, 0usize..3).prop_map(|(opcode, cid, sgl, dwords)| {
        let sqe = Sqe { opcode, ..write_sqe(cid, 512, sgl) };
        (Pdu::CapsuleCmd(sqe), vec![7; dwords * 4])
    });
    let data = (0u16..6, 0u16..6, 0u32..4, 1u32..5, any::<bool>()).prop_map(|(cid, ttag, offset, length, last)| {
        let (offset, length) = (offset * 4096, length * 4096);
        (Pdu::H2cData(H2cData { cid, ttag, offset, length, last }), vec![7; length as usize])
    });
    prop_oneof![4 => capsule, 1 => data]
}

proptest! {
    #[test]
    fn any_bytes_are_survived(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..400), 1..8), handshake: bool,
    ) {
        let mut wire = if handshake { io() } else { Wire::new(QueueLimits::default()) };
        for chunk in chunks {
            if wire.queue.receive(&chunk).is_err() {
                break;
            }
            prop_assert!(wire.queue.in_flight() <= ENTRIES.into());
        }
        // A terminate request with the longest header, and a response for each command there could be.
        prop_assert!(wire.queue.pending().len() <= 24 + 128 + 8 * 400 / 72 * 24);
    }

    #[test]
    fn plausible_pdus_are_survived_and_every_command_ends(
        pdus in proptest::collection::vec((plausible(), any::<bool>()), 1..40),
    ) {
        let limits = QueueLimits {
            max_h2c_data_bytes: 8192, max_r2t_bytes: 4096, transfer_budget_bytes: 16384, ..QueueLimits::default()
        };
        let mut wire = Wire::io(limits, icreq(false, false, 0, 1), true);
        for ((pdu, data), complete) in pdus {
            let bytes = wire.bytes_of(pdu, &data);
            if wire.queue.receive(&bytes).is_err() {
                prop_assert!(matches!(wire.answers().last(), Some((Pdu::C2hTermReq(_), _))));
                return Ok(());
            }
            prop_assert!(wire.queue.reserved_bytes <= 16384 + 20_000);
            while complete && let Some(command) = wire.queue.poll_command() {
                wire.queue.complete(command.token, Status::SUCCESS, 0);
            }
            wire.answers();
        }
        // What is left waits for the host, not for us.
        while let Some(command) = wire.queue.poll_command() {
            wire.queue.complete(command.token, Status::SUCCESS, 0);
        }
        let asked = wire.queue.reserved_bytes > 0;
        prop_assert!(asked || wire.queue.in_flight() == 0);
    }
}
