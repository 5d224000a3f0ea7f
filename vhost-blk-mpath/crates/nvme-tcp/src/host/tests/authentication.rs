//! In-band authentication: this host against controllers that break the rules. Crate `nvme-tcp-target` has the tests with a
//! target.

use std::sync::Arc;

use nvme_auth::{DhGroup, Hash, Secret};
use proptest::prelude::*;

use super::handshake::Peer;
use super::{Payloads, host_identity, queue_config, subnqn};
use crate::host::{AuthenticationCommand, ConnectError, QueueConfig, QueueError};
use crate::wire::{C2hData, ConnectResult, Digests, FabricsCommand, Pdu, Sgl, Status};
use crate::{Authentication, RandomSource};

fn secret(byte: u8) -> Secret {
    Secret::new(Some(Hash::Sha256), &[byte; 32]).unwrap()
}

/// Random bytes of a seed. Both sides need other bytes.
fn random(seed: u8) -> RandomSource {
    Arc::new(move |bytes| bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u8).wrapping_mul(7) ^ seed))
}

/// The side of a host that has these secrets.
fn host(host: u8, controller: Option<u8>) -> Authentication {
    Authentication::new(secret(host), controller.map(secret), random(3))
}

/// The side of a target that has these secrets.
fn target(host: u8, controller: Option<u8>) -> Authentication {
    let authentication = Authentication::new(secret(host), controller.map(secret), random(90));
    Authentication { hashes: vec![Hash::Sha384], groups: vec![DhGroup::Null], ..authentication }
}

/// A queue whose Connect was answered with these bits.
fn connected(
    config: QueueConfig,
    authentication_required: bool,
    secure_channel_required: bool,
) -> (Peer, Result<(), QueueError>) {
    let (mut peer, cid) = Peer::connecting_as(config, 8192);
    let result = ConnectResult { cntlid: 5, authentication_required, secure_channel_required }.to_result();
    let outcome = peer.complete(cid, Status::SUCCESS, result);
    (peer, outcome)
}

fn with_secret(controller: Option<u8>) -> QueueConfig {
    QueueConfig { authentication: Some(host(1, controller)), ..queue_config(Digests::default()) }
}

#[test]
fn a_secure_channel_needs_tls() {
    for required in [false, true] {
        let (_, outcome) = connected(with_secret(None), required, true);
        let error = outcome.unwrap_err();
        assert_eq!(error, ConnectError::SecureChannelRequired.into());
        assert!(error.to_string().contains("`concat`"));
        let (mut peer, outcome) = connected(QueueConfig { is_encrypted: true, ..with_secret(None) }, required, true);
        outcome.unwrap();
        assert!(!peer.queue.is_ready() && peer.sent().len() == 1, "authentication starts");
    }
}

/// A host that waits for the data of its first Authentication Receive. Returns the CID.
fn receiving(config: QueueConfig) -> (Peer, u16) {
    let (mut peer, outcome) = connected(config, true, false);
    outcome.unwrap();
    let sent = peer.sent();
    let [(Pdu::CapsuleCmd(send), message)] = &sent[..] else { panic!("{sent:?}") };
    let bytes = message.len() as u32;
    assert_eq!(FabricsCommand::parse(send), Ok(FabricsCommand::AuthenticationSend { bytes }));
    assert_eq!(Sgl::parse(&send.dptr), Ok(Sgl::InCapsule { offset: 0, length: bytes }));
    peer.complete(send.cid.get(), Status::SUCCESS, 0).unwrap();
    let sent = peer.sent();
    let [(Pdu::CapsuleCmd(receive), _)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(FabricsCommand::parse(receive), Ok(FabricsCommand::AuthenticationReceive { bytes: 4096 }));
    (peer, receive.cid.get())
}

fn data(cid: u16, offset: u32, length: u32, success: bool) -> Pdu {
    Pdu::C2hData(C2hData { cid, offset, length, last: true, success })
}

/// SPDK returns only the bytes of the message, and Linux all that the host allows.
#[test]
fn a_message_may_be_shorter_than_allowed() {
    let challenge = challenge();
    for success in [false, true] {
        let (mut peer, cid) = receiving(with_secret(None));
        peer.send(data(cid, 0, challenge.len() as u32, success), &challenge).unwrap();
        if !success {
            peer.complete(cid, Status::SUCCESS, 0).unwrap();
        }
        let sent = peer.sent();
        let [(Pdu::CapsuleCmd(reply), _)] = &sent[..] else { panic!("{sent:?}") };
        assert!(matches!(FabricsCommand::parse(reply), Ok(FabricsCommand::AuthenticationSend { .. })));
    }
}

/// A challenge of a target, as sent.
fn challenge() -> Vec<u8> {
    let mut machine =
        nvme_auth::ControllerAuthentication::new(target(1, None).config(&host_identity().hostnqn, &subnqn())).unwrap();
    let mut negotiating =
        nvme_auth::HostAuthentication::new(host(1, None).config(&host_identity().hostnqn, &subnqn())).unwrap();
    let negotiate = negotiating.start(queue_config(Digests::default()).qid, |_| ());
    let Ok(nvme_auth::Step::Continue { message }) = machine.receive(&negotiate, |_| ()) else { panic!() };
    message
}

#[test]
fn an_error_status_names_the_command() {
    let (mut peer, cid) = receiving(with_secret(None));
    let error = peer.complete(cid, Status::INVALID_FIELD, 0).unwrap_err();
    let (command, status) = (AuthenticationCommand::Receive, Status::INVALID_FIELD);
    assert_eq!(error, ConnectError::AuthenticationCommand { command, status }.into());
    assert!(error.to_string().contains("Authentication Receive"));
    assert_eq!(peer.queue.term_req(), None);
    assert_eq!(peer.complete(cid, Status::SUCCESS, 0), Err(error), "the queue has failed");
}

#[test]
fn a_message_longer_than_allowed_is_a_violation() {
    let (mut peer, cid) = receiving(with_secret(None));
    let error = peer.send(data(cid, 0, 4100, true), &[0; 4100]).unwrap_err();
    assert!(matches!(error, QueueError::Protocol(_)), "{error}");
}

proptest! {
    /// Any message and any PDU in the authentication phase end in an error or leave the queue not ready.
    #[test]
    fn any_message_of_a_controller_is_handled(
        message in proptest::collection::vec(any::<u8>(), 0..1200), kind in 0u8..8, offset in 0u32..3, length: u16, success: bool,
    ) {
        let (mut peer, cid) = receiving(with_secret(Some(2)));
        let mut message = message;
        // A plausible start: AUTH_TYPE, AUTH_ID and T_ID.
        if kind < 4 && message.len() > 8 {
            message[..2].copy_from_slice(&[1, [0x01, 0x03, 0xf1, 0xf0][usize::from(kind)]]);
            message[4..6].copy_from_slice(&1u16.to_le_bytes());
        }
        let outcome = match kind {
            7 => peer.queue.receive(&message, &mut Payloads::default()),
            6 => peer.send(data(cid, offset, length.into(), success), &vec![0; length.into()]),
            5 => peer.complete(cid.wrapping_add(length), Status(length), 0),
            _ => peer.send(data(cid, 0, message.len() as u32, success), &message),
        };
        if outcome.is_ok() && peer.queue.error().is_none() {
            let _ = peer.complete(cid, Status::SUCCESS, 0);
        }
        prop_assert!(!peer.queue.is_ready());
        let _ = (peer.sent(), peer.queue.term_req(), peer.queue.direct());
    }
}
