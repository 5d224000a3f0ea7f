//! Data transfers.

use nvme_tcp::wire::{C2hData, FatalError, H2cData, Pdu, PduType, R2t, Sgl, Status, TermReq};

use super::{Wire, ask, icreq, pattern, plain, read, term, write_sqe};
use crate::{QueueLimits, TargetCommand, TargetError};

#[test]
fn in_capsule_writes_arrive_completely() {
    for (header, data, cpda) in [(false, false, 0), (true, false, 0), (false, true, 3), (true, true, 31)] {
        let limits = QueueLimits { cpda, ..QueueLimits::default() };
        let mut wire = Wire::io(limits, icreq(header, data, 7, 0), true);
        let sgl = Sgl::InCapsule { offset: 0, length: 8192 };
        let bytes = wire.bytes_of(Pdu::CapsuleCmd(write_sqe(3, 8192, sgl)), &pattern(8192));
        let header_bytes = bytes.len() - 8192 - if data { 4 } else { 0 };
        for (i, byte) in bytes.iter().enumerate() {
            assert!(wire.queue.poll_command().is_none(), "at byte {i}");
            let missing = if i < header_bytes { 0 } else { bytes.len() - i };
            assert_eq!(wire.queue.missing_bytes() as usize, missing, "at byte {i}");
            wire.queue.receive(&[*byte]).unwrap();
        }
        assert_eq!(wire.queue.missing_bytes(), 0);
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
    // MAXR2T is 1, 0's-based: two R2Ts at a time.
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
fn the_transfer_budget_limits_requested_data() {
    let limits = QueueLimits { transfer_budget_bytes: 64 << 10, ..QueueLimits::default() };
    let mut wire = Wire::io(limits, plain(), true);
    // The first command is larger than the budget and runs alone. The others wait for it.
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

/// The result of an `H2CData` after an R2T for bytes 0 to 4096 of a command of 8192 bytes.
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
fn unrequested_data_is_fatal() {
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
fn a_wrong_data_digest_fails_only_its_command() {
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
fn reads_are_split_and_use_the_success_flag_where_allowed() {
    for flow_control in [false, true] {
        let limits = QueueLimits { max_c2h_data_bytes: 4096, ..QueueLimits::default() };
        let mut wire = Wire::io(limits, icreq(true, true, 3, 0), flow_control);
        wire.send(read(1, 10240), &[]);
        let TargetCommand { token, expects_bytes, .. } = wire.queue.poll_command().unwrap();
        assert_eq!(expects_bytes, 10240);
        let content = pattern(10240);
        wire.queue.complete_with_data(token, 10240, |part, out| {
            out.extend_from_slice(&content[part]);
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
fn a_failed_read_sends_no_data() {
    let limits = QueueLimits { max_c2h_data_bytes: 4096, ..QueueLimits::default() };
    let mut wire = Wire::io(limits, plain(), false);
    wire.send(read(1, 8192), &[]);
    let command = wire.queue.poll_command().unwrap();
    wire.queue.complete_with_data(command.token, 8192, |part, out| {
        if part.start > 0 {
            return Err(Status::UNRECOVERED_READ_ERROR);
        }
        out.resize(out.len() + part.len(), 0);
        Ok(())
    });
    assert_eq!(wire.answer_cqe().status(), Status::UNRECOVERED_READ_ERROR);
}
