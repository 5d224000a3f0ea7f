//! Secure channel concatenation: the connection in clear text on which an association begins.

use monotonic::Instant;
use nvme_auth::{Concatenation, DhGroup, Hash};
use nvme_tcp::host::{AdminError, ConnectError, HostConcatenation};
use nvme_tcp::wire::{AdminCommand, Cns, Digests, Framing, IDENTIFY_BYTES, Pdu, Sgl, Status};
use nvme_tcp::{Authenticated, Authentication};

use super::host_authentication::{BOTH, Connection, admin, config, host, subsystem, target, unasked};
use crate::Subsystem;

/// Begins an association with secure channel concatenation. `wire` may change the bytes of the target. Returns the keys of host and
/// target, and the target's side.
fn concatenate(
    host_side: &Authentication,
    subsystem: &mut Subsystem,
    mut wire: impl FnMut(&mut Vec<u8>),
) -> Result<(Vec<u8>, Vec<u8>, Authenticated), AdminError> {
    let now = Instant::now();
    let mut host = HostConcatenation::new(&config(None, BOTH), host_side, now).unwrap();
    let mut connection = Connection::new(subsystem);
    let mut of_target = None;
    loop {
        let mut bytes = Vec::new();
        host.fill_tx(&mut bytes);
        assert!(!bytes.is_empty(), "both sides wait");
        let mut answers = connection.exchange(now, &bytes);
        of_target = of_target.or_else(|| connection.queue.take_generated_psk());
        wire(&mut answers);
        if let Some((psk, authenticated)) = host.receive(&answers)? {
            assert_eq!(connection.queue.authenticated(), Some(authenticated));
            assert!(!connection.queue.is_authenticated(), "nothing else is executed in clear text");
            let mut more = Vec::new();
            host.fill_tx(&mut more);
            assert!(more.is_empty(), "the host sends nothing else in clear text");
            return Ok((psk.as_bytes().to_vec(), of_target.unwrap().as_bytes().to_vec(), authenticated));
        }
    }
}

/// A target that asks for a secure channel. Group null and SHA-512, which cannot make one, come first.
fn concatenating_target(host: u8, controller: Option<u8>) -> Authentication {
    Authentication {
        hashes: vec![Hash::Sha512, Hash::Sha384],
        groups: vec![DhGroup::Null, DhGroup::Ffdhe2048],
        concatenation: Concatenation::NewTlsPsk,
        ..target(host, controller)
    }
}

#[test]
fn both_sides_of_a_secure_channel_have_the_same_key() {
    for (controller, bidirectional) in [(None, false), (Some(2), true)] {
        let mut subsystem = subsystem(concatenating_target(1, Some(2)));
        let (of_host, of_target, authenticated) = concatenate(&host(1, controller), &mut subsystem, |_| ()).unwrap();
        assert_eq!((of_host.len(), &of_host), (48, &of_target));
        assert_eq!(authenticated, Authenticated { hash: Hash::Sha384, group: DhGroup::Ffdhe2048, bidirectional });
    }
}

#[test]
fn a_host_asks_for_a_secure_channel_even_if_connect_does_not() {
    let (of_host, of_target, _) =
        concatenate(&host(1, None), &mut subsystem(concatenating_target(1, None)), |answers| unasked(answers)).unwrap();
    assert_eq!(of_host, of_target);
}

#[test]
fn a_target_of_secure_channels_and_a_host_without_one_refuse_each_other() {
    let (error, _) = admin(config(host(1, None), BOTH), &mut subsystem(concatenating_target(1, None))).unwrap_err();
    assert_eq!(error, ConnectError::SecureChannelRequired);
    let error = concatenate(&host(1, None), &mut subsystem(target(1, None)), |_| ()).unwrap_err().to_string();
    assert!(error.contains("configure secure channel concatenation alike on host and target"), "{error}");
}

#[test]
fn no_command_is_executed_in_clear_text_after_the_key_was_generated() {
    let now = Instant::now();
    let mut subsystem = subsystem(concatenating_target(1, None));
    let mut host = HostConcatenation::new(&config(None, Digests::default()), &host(1, None), now).unwrap();
    let mut connection = Connection::new(&mut subsystem);
    loop {
        let mut bytes = Vec::new();
        host.fill_tx(&mut bytes);
        let answers = connection.exchange(now, &bytes);
        if host.receive(&answers).unwrap().is_some() {
            break;
        }
    }
    let mut identify = Vec::new();
    let command = AdminCommand::Identify { cns: Cns::CONTROLLER, nsid: 0, cntid: 0, csi: 0 };
    let sgl = Sgl::Transport { length: IDENTIFY_BYTES as u32 };
    Pdu::CapsuleCmd(command.to_sqe(9, sgl)).emit(&Framing::default(), &[], &mut identify);
    let answer = connection.exchange(now, &identify);
    let status = u16::from_le_bytes([answer[22], answer[23]]) >> 1;
    assert_eq!((answer[0], answer.len()), (5, 24));
    assert_eq!(status, Status::AUTHENTICATION_REQUIRED.with_dnr().0);
}
