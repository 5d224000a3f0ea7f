//! Deliberately wrong digests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nvme_tcp::wire::{Pdu, PduError};

use super::{Wire, ask, icreq, pattern, read};
use crate::receive::Item;
use crate::{DigestFaults, QueueLimits};

/// A queue with both digests and small data PDUs.
fn wire() -> Wire {
    let limits = QueueLimits { max_c2h_data_bytes: 4096, ..QueueLimits::default() };
    Wire::io(limits, icreq(true, true, 3, 0), true)
}

/// For each PDU from the target: whether its header digest and its data digest are right.
fn digests(wire: &mut Wire) -> Vec<(bool, Option<bool>)> {
    let bytes = wire.queue.pending().to_vec();
    wire.queue.sent(bytes.len());
    let (mut rest, mut seen) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let plen = u32::from_le_bytes(rest[4..8].try_into().unwrap()) as usize;
        let (mut pdu, tail) = rest.split_at(plen);
        rest = tail;
        let mut receiver = crate::receive::Receiver::new(wire.rx.framing);
        let mut right = (true, None);
        loop {
            match receiver.next(&mut pdu) {
                Ok(Some(Item::End { intact })) => right.1 = Some(intact),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(PduError::HeaderDigest { .. }) => {
                    right.0 = false;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        seen.push(right);
    }
    seen
}

fn spoil(wire: &mut Wire, header: u32, data: u32) -> Arc<DigestFaults> {
    let faults = Arc::new(DigestFaults { header: header.into(), data: data.into() });
    wire.queue.set_digest_faults(Arc::clone(&faults));
    faults
}

fn read_8k(wire: &mut Wire) {
    wire.send(read(1, 8192), &[]);
    let command = wire.queue.poll_command().unwrap();
    let data = pattern(8192);
    wire.queue.complete_with_data(command.token, 8192, |part, out| {
        out.extend_from_slice(&data[part]);
        Ok(())
    });
}

#[test]
fn the_given_number_of_data_digests_is_wrong() {
    let mut wire = wire();
    let faults = spoil(&mut wire, 0, 3);
    read_8k(&mut wire);
    assert_eq!(digests(&mut wire), [(true, Some(false)), (true, Some(false)), (true, None)]);
    read_8k(&mut wire);
    assert_eq!(digests(&mut wire), [(true, Some(false)), (true, Some(true)), (true, None)]);
    assert_eq!(faults.data.load(Ordering::Relaxed), 0);
}

#[test]
fn the_given_number_of_header_digests_is_wrong_for_any_pdu() {
    let mut wire = wire();
    spoil(&mut wire, 3, 0);
    wire.send(ask(7, 4096), &[]);
    assert_eq!(digests(&mut wire), [(false, None)], "an R2T");
    read_8k(&mut wire);
    assert_eq!(digests(&mut wire), [(false, None), (false, None), (true, None)]);
}

#[test]
fn without_digests_faults_have_no_effect() {
    let mut wire = super::io();
    let faults = spoil(&mut wire, 2, 2);
    read_8k(&mut wire);
    let answers = wire.answers();
    let [(Pdu::C2hData(_), data), (Pdu::CapsuleResp(_), _)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(*data, pattern(8192));
    assert_eq!((faults.header.load(Ordering::Relaxed), faults.data.load(Ordering::Relaxed)), (2, 2));
}
