//! Errors that end a connection or a command before its execution.

use nvme_tcp::wire::{Cqe, FatalError, NvmCommand, Pdu, PduError, PduType, Sgl, Sqe, Status, TermReq};

use super::{ENTRIES, Wire, icreq, io, pattern, plain, read, term, write_sqe};
use crate::{QueueLimits, TargetError};

#[test]
fn icreq_must_be_first() {
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
fn a_second_icreq_and_controller_pdus_are_out_of_sequence() {
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
fn more_commands_than_entries_are_fatal() {
    let mut wire = io();
    for cid in 0..ENTRIES {
        wire.send(read(cid, 512), &[]);
    }
    let bytes = wire.bytes_of(read(99, 512), &[]);
    assert_eq!(wire.queue.receive(&bytes), Err(TargetError::TooManyCommands { entries: ENTRIES }));
}

#[test]
fn in_capsule_data_is_limited() {
    let mut wire = io();
    let sgl = Sgl::InCapsule { offset: 0, length: 8704 };
    let bytes = wire.bytes_of(Pdu::CapsuleCmd(write_sqe(1, 8704, sgl)), &pattern(8704));
    let error = TargetError::TooMuchData { pdu: PduType::CapsuleCmd, bytes: 8704, limit: 8192 };
    assert_eq!(wire.queue.receive(&bytes), Err(error));
}

#[test]
fn invalid_sgls_fail_their_command() {
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
        // The data was discarded, and the next PDU is parsed correctly.
        wire.send(read(1, 512), &[]);
        assert!(wire.queue.poll_command().is_some());
    }
}
