//! Answer faults, checked PDU by PDU.

use std::sync::Arc;

use nvme_tcp::wire::{H2cData, Pdu, R2t, Sgl, Status};

use super::{Wire, ask, icreq, io, pattern, read, write_sqe};
use crate::{AnswerFault, AnswerFaults, FaultyCommands, QueueLimits};

fn meet(wire: &mut Wire, fault: AnswerFault) -> Arc<AnswerFaults> {
    let faults = Arc::new(AnswerFaults::default());
    faults.set(fault, FaultyCommands { count: 1, opcode: None, nsid: None });
    wire.queue.set_answer_faults(Arc::clone(&faults));
    faults
}

/// The CIDs of the answers, which must all be success.
fn answers(wire: &mut Wire) -> Vec<u16> {
    let cid = |(pdu, _)| match pdu {
        Pdu::CapsuleResp(cqe) => {
            assert_eq!(cqe.status(), Status::SUCCESS);
            cqe.cid.get()
        }
        pdu => panic!("{pdu:?}"),
    };
    wire.answers().into_iter().map(cid).collect()
}

#[test]
fn an_early_answer_is_sent_after_the_header_and_frees_the_cid() {
    let mut wire = io();
    meet(&mut wire, AnswerFault::Early);
    let capsule = |wire: &Wire, seed| {
        let sgl = Sgl::InCapsule { offset: 0, length: 4096 };
        let data: Vec<u8> = pattern(4096).into_iter().map(|byte| byte ^ seed).collect();
        (wire.bytes_of(Pdu::CapsuleCmd(write_sqe(3, 4096, sgl)), &data), data)
    };
    let ((first, first_data), (second, second_data)) = (capsule(&wire, 0), capsule(&wire, 1));
    wire.queue.receive(&first[..1000]).unwrap();
    assert_eq!(answers(&mut wire), [3]);
    assert!(wire.queue.poll_command().is_none());
    wire.queue.receive(&first[1000..]).unwrap();
    wire.queue.receive(&second).unwrap();
    let commands = [wire.queue.poll_command().unwrap(), wire.queue.poll_command().unwrap()];
    assert!(commands[0].payload == first_data && commands[1].payload == second_data);
    for command in commands {
        wire.queue.complete(command.token, Status::SUCCESS, 0);
    }
    assert_eq!(answers(&mut wire), [3], "that of the second");
    assert_eq!(wire.queue.in_flight(), 0);
}

#[test]
fn an_early_answer_follows_its_r2t() {
    let mut wire = io();
    meet(&mut wire, AnswerFault::Early);
    wire.send(ask(5, 65536), &[]);
    let sent = wire.answers();
    let [(Pdu::R2t(R2t { ttag, .. }), _), (Pdu::CapsuleResp(_), _)] = sent[..] else { panic!("{sent:?}") };
    wire.send(Pdu::H2cData(H2cData { cid: 5, ttag, offset: 0, length: 65536, last: true }), &pattern(65536));
    let command = wire.queue.poll_command().unwrap();
    wire.queue.complete(command.token, Status::SUCCESS, 0);
    assert!(answers(&mut wire).is_empty());
}

#[test]
fn a_lost_command_keeps_its_slot_but_no_transfer_budget() {
    for fault in [AnswerFault::Swallow, AnswerFault::Lose] {
        let limits = QueueLimits { transfer_budget_bytes: 8192, ..QueueLimits::default() };
        let mut wire = Wire::io(limits, icreq(false, false, 0, 0), true);
        meet(&mut wire, fault);
        for cid in [1, 2] {
            wire.send(ask(cid, 65536), &[]);
            let sent = wire.answers();
            let [(Pdu::R2t(R2t { ttag, .. }), _)] = sent[..] else { panic!("{sent:?}") };
            wire.send(Pdu::H2cData(H2cData { cid, ttag, offset: 0, length: 65536, last: true }), &pattern(65536));
            if let Some(command) = wire.queue.poll_command() {
                wire.queue.complete(command.token, Status::SUCCESS, 0);
            }
        }
        assert_eq!((answers(&mut wire), wire.queue.in_flight()), (vec![2], 1), "{fault:?}");
    }
}

#[test]
fn reads_are_answered_twice_or_never_even_with_the_success_flag() {
    for (fault, data, answers) in [(AnswerFault::Twice, 1, 1), (AnswerFault::Lose, 0, 0)] {
        let mut wire = Wire::io(QueueLimits::default(), icreq(false, false, 0, 0), false);
        meet(&mut wire, fault);
        wire.send(read(1, 4096), &[]);
        let command = wire.queue.poll_command().unwrap();
        wire.queue.complete_with_data(command.token, 4096, |part, out| {
            out.resize(out.len() + part.len(), 0);
            Ok(())
        });
        let sent = wire.answers();
        let count = |is: fn(&Pdu) -> bool| sent.iter().filter(|(pdu, _)| is(pdu)).count();
        let data_pdus = count(|pdu| matches!(pdu, Pdu::C2hData(data) if data.success));
        assert_eq!((data_pdus, count(|pdu| matches!(pdu, Pdu::CapsuleResp(_)))), (data, answers), "{fault:?}");
    }
}
