//! Random bytes, plausible PDUs and random commands.

use monotonic::Instant;
use nvme_tcp::wire::{FabricsCommand, H2cData, Pdu, Sgl, Sqe, Status};
use proptest::prelude::*;

use super::{ENTRIES, Wire, command, icreq, io, live_controller, subsystem, write_sqe};
use crate::{AdminReply, QueueLimits};

/// PDUs with plausible types and fields, which pass the first checks.
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
    fn random_bytes_never_panic(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..400), 1..8), handshake: bool,
    ) {
        let mut wire = if handshake { io() } else { Wire::new(QueueLimits::default()) };
        for chunk in chunks {
            if wire.queue.receive(&chunk).is_err() {
                break;
            }
            prop_assert!(wire.queue.in_flight() <= ENTRIES.into());
        }
        // At most a terminate request with the longest header, and a response for each possible command.
        prop_assert!(wire.queue.pending().len() <= 24 + 128 + 8 * 400 / 72 * 24);
    }

    #[test]
    fn plausible_pdus_never_panic_and_every_command_ends(
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
        // The remaining commands wait for data from the host.
        while let Some(command) = wire.queue.poll_command() {
            wire.queue.complete(command.token, Status::SUCCESS, 0);
        }
        let asked = wire.queue.reserved_bytes > 0;
        prop_assert!(asked || wire.queue.in_flight() == 0);
    }
}

proptest! {
    #[test]
    fn any_admin_command_is_answered_with_the_expected_length(
        sqe: [u8; 64], opcode in prop_oneof![0u8..0x20, Just(0x7f), any::<u8>()], low in 0u8..0x20, expects_bytes in 0u32..9000,
    ) {
        let mut subsystem = subsystem();
        let now = Instant::now();
        let cntlid = live_controller(&mut subsystem, now, 1);
        let mut sqe: Sqe = zerocopy::transmute!(sqe);
        sqe.opcode = opcode;
        sqe.nsid = u32::from(low % 8).into();
        sqe.cdw[0] = (sqe.cdw[0].get() & !0xff | u32::from(low)).into();
        let expects_bytes = expects_bytes & !3;
        if let AdminReply::Data { data, .. } = subsystem.admin(now, cntlid, command(sqe, &[], expects_bytes)) {
            prop_assert_eq!(data.len(), expects_bytes as usize);
        }
    }

    #[test]
    fn any_connect_is_answered(sqe: [u8; 64], data in proptest::collection::vec(any::<u8>(), 1020..1028)) {
        let mut sqe: Sqe = zerocopy::transmute!(sqe);
        sqe.opcode = 0x7f;
        sqe.nsid = 1.into();
        let _ = FabricsCommand::parse(&sqe);
        prop_assert!(subsystem().connect(Instant::now(), 1, &command(sqe, &data, 0)).is_err());
    }
}
