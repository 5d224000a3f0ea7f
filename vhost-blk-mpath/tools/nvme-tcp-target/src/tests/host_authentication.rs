//! In-band authentication: the project's own host with this target.

use std::sync::Arc;

use monotonic::{Duration, Instant};
use nvme_auth::{DhGroup, Hash, HostError, Secret};
use nvme_tcp::host::{
    AdminError, ConnectError, ControllerConfig, ControllerError, ControllerEvent, ControllerInfo, HostController,
    HostIdentity, HostQueue, NoPayload, QueueConfig, QueueError, STAGING_MIN, TxPart,
};
use nvme_tcp::wire::{
    AdminCommand, AnaState, Digests, FabricsCommand, Framing, Nqn, Pdu, PropertyOffset, PropertySize, Sgl, Sqe, Status,
};
use nvme_tcp::{Authenticated, Authentication, RandomSource};
use proptest::prelude::*;

use super::exchange::Choices;
use super::nqn;
use crate::{AdminReply, Namespace, QueueLimits, Subsystem, SubsystemConfig, TargetQueue};

pub(super) const BOTH: Digests = Digests { header: true, data: true };

fn secret(byte: u8) -> Secret {
    Secret::new(Some(Hash::Sha256), &[byte; 32]).unwrap()
}

/// Random bytes of a seed. Both sides need other bytes.
fn random(seed: u8) -> RandomSource {
    Arc::new(move |bytes| bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u8).wrapping_mul(7) ^ seed))
}

/// The side of a host that has these secrets.
pub(super) fn host(host: u8, controller: Option<u8>) -> Authentication {
    Authentication::new(secret(host), controller.map(secret), random(3))
}

/// The side of a target that has these secrets.
pub(super) fn target(host: u8, controller: Option<u8>) -> Authentication {
    let authentication = Authentication::new(secret(host), controller.map(secret), random(90));
    Authentication { hashes: vec![Hash::Sha384], groups: vec![DhGroup::Null], ..authentication }
}

pub(super) fn config(authentication: impl Into<Option<Authentication>>, digests: Digests) -> ControllerConfig {
    ControllerConfig {
        host: HostIdentity { hostnqn: Nqn::new("nqn.2024-01.io.test:host").unwrap(), hostid: [9; 16] },
        subnqn: nqn(),
        nsids: vec![1],
        keep_alive_tmo: Duration::from_secs(5),
        digests,
        io_queues: 1,
        queue_entries: 16,
        max_transfer_bytes: None,
        command_timeout: Duration::from_secs(5),
        authentication: authentication.into(),
        is_encrypted: false,
    }
}

pub(super) fn subsystem(authentication: impl Into<Option<Authentication>>) -> Subsystem {
    Subsystem::new(SubsystemConfig {
        nqn: nqn(),
        serial: "1".into(),
        namespaces: vec![Namespace { blocks: 2048, block_shift: 9, uuid: [1; 16], nguid: [1; 16] }],
        ports: vec![AnaState::Optimized],
        limits: QueueLimits::default(),
        max_entries: 32,
        keeps_flow_control: false,
        max_io_queues: 4,
        anatt_seconds: 10,
        seed: 1,
        authentication: authentication.into(),
    })
}

/// The target's side of one connection.
pub(super) struct Connection<'a> {
    subsystem: &'a mut Subsystem,
    pub(super) queue: TargetQueue,
    is_over: bool,
}

impl<'a> Connection<'a> {
    pub(super) fn new(subsystem: &'a mut Subsystem) -> Self {
        Self { subsystem, queue: TargetQueue::new(QueueLimits::default()), is_over: false }
    }

    /// Takes bytes of the host. Returns the answers. An error ends the connection.
    pub(super) fn exchange(&mut self, now: Instant, bytes: &[u8]) -> Vec<u8> {
        self.is_over |= !self.is_over && self.queue.receive(bytes).is_err();
        while let Some(command) = self.queue.poll_command() {
            match self.queue.identity() {
                None => match self.subsystem.connect(now, 1, &command) {
                    Ok(identity) => {
                        let authentication = self.subsystem.authentication(identity);
                        self.queue.accept(command.token, identity, authentication);
                    }
                    Err((status, result)) => self.queue.complete(command.token, status, result),
                },
                Some(identity) => match self.subsystem.admin(now, identity.cntlid, command) {
                    AdminReply::Done { token, status, result } => self.queue.complete(token, status, result),
                    AdminReply::Data { token, data } => {
                        self.queue.complete_with_data(token, data.len() as u32, |part, out| {
                            out.extend_from_slice(&data[part]);
                            Ok(())
                        });
                    }
                    reply => assert!(matches!(reply, AdminReply::Deferred), "{reply:?}"),
                },
            }
        }
        let answers = self.queue.pending().to_vec();
        self.queue.sent(answers.len());
        answers
    }
}

/// Why the host failed, and why the target failed if it knows of it.
pub(super) type Failed = (ConnectError, Option<String>);

/// Connects the admin queue.
pub(super) fn admin(config: ControllerConfig, subsystem: &mut Subsystem) -> Result<Box<ControllerInfo>, Failed> {
    let now = Instant::now();
    let mut host = HostController::new(config, now).unwrap();
    let mut connection = Connection::new(subsystem);
    loop {
        let mut bytes = Vec::new();
        host.fill_tx(&mut bytes);
        assert!(!bytes.is_empty(), "both sides wait");
        let answers = connection.exchange(now, &bytes);
        if let Err(error) = host.receive(now, &answers) {
            let ControllerError::Admin(AdminError::Queue(QueueError::Connect(error))) = error else {
                panic!("{error}")
            };
            connection.exchange(now, &host.term_req().unwrap_or_default());
            return Err((error, connection.queue.authentication_error().map(ToString::to_string)));
        }
        if let Some(ControllerEvent::Live(info)) = host.poll_event() {
            assert_eq!(info.authenticated, connection.queue.authenticated());
            return Ok(info);
        }
    }
}

/// All bytes that are ready to send. A queue that connects has no payload.
fn transmit(now: Instant, host: &mut HostQueue) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let (mut staging, mut plan) = (Vec::with_capacity(STAGING_MIN), Vec::new());
        host.fill_tx(now, &mut staging, &NoPayload, &mut plan, u32::MAX);
        if plan.is_empty() {
            return bytes;
        }
        for part in plan {
            let TxPart::Staged { start, len } = part else { panic!("{part:?}") };
            bytes.extend_from_slice(&staging[start..][..len]);
        }
    }
}

/// Connects an I/O queue. `wire` may change the bytes of the target.
fn io(
    config: QueueConfig,
    subsystem: &mut Subsystem,
    mut wire: impl FnMut(&mut Vec<u8>),
) -> Result<HostQueue, QueueError> {
    let now = Instant::now();
    let mut host = HostQueue::new(config).unwrap();
    let mut connection = Connection::new(subsystem);
    while !host.is_ready() {
        let bytes = transmit(now, &mut host);
        assert!(!host.has_output());
        let mut answers = connection.exchange(now, &bytes);
        wire(&mut answers);
        host.receive(&answers, &mut NoPayload)?;
        if bytes.is_empty() {
            // The changed bytes lack an end.
            return Err(ConnectError::AuthenticationRequired.into());
        }
    }
    Ok(host)
}

#[test]
fn both_queues_are_authenticated_in_one_direction_or_in_both() {
    for digests in [Digests::default(), BOTH] {
        for (controller, bidirectional) in [(None, false), (Some(2), true)] {
            let mut subsystem = subsystem(target(1, Some(2)));
            let config = config(host(1, controller), digests);
            // The admin queue of the association must stay, so its connection is not dropped in `subsystem`.
            let info = admin(config.clone(), &mut subsystem).unwrap();
            let expected = Authenticated { hash: Hash::Sha384, group: DhGroup::Null, bidirectional };
            assert_eq!(info.authenticated, Some(expected));
            io(info.queue_config(&config, 1), &mut subsystem, |_| ()).unwrap();
        }
    }
}

#[test]
fn a_group_with_a_key_exchange_is_authenticated_too() {
    let with = |side: Authentication| Authentication { groups: vec![DhGroup::Ffdhe2048], ..side };
    let info = admin(config(with(host(1, Some(2))), BOTH), &mut subsystem(with(target(1, Some(2))))).unwrap();
    assert_eq!(info.authenticated.map(|done| done.group), Some(DhGroup::Ffdhe2048));
}

#[test]
fn without_a_request_of_the_controller_there_is_no_authentication_unless_it_must_prove_itself() {
    let info = admin(config(host(1, None), BOTH), &mut subsystem(None)).unwrap();
    assert_eq!(info.authenticated, None);
    let (error, _) = admin(config(host(1, Some(2)), BOTH), &mut subsystem(None)).unwrap_err();
    assert_eq!(error, ConnectError::ControllerNotAuthenticated);
    assert!(error.to_string().contains("does not authenticate"), "{error}");
}

/// Takes the request for authentication out of the answer to Connect.
pub(super) fn unasked(answers: &mut [u8]) {
    const RESPONSE: (u8, usize) = (5, 24); // type and length of the PDU
    if (answers.first().copied(), answers.len()) == (Some(RESPONSE.0), RESPONSE.1) {
        answers[10] = 0;
    }
}

#[test]
fn without_a_request_on_an_io_queue_a_host_that_wants_proof_begins_by_itself() {
    for (controller, expected) in [(None, None), (Some(2), Some(true))] {
        let mut subsystem = subsystem(target(1, Some(2)));
        let config = config(host(1, controller), Digests::default());
        let info = admin(config.clone(), &mut subsystem).unwrap();
        let queue = io(info.queue_config(&config, 1), &mut subsystem, |answers| unasked(answers)).unwrap();
        assert_eq!(queue.authenticated().map(|done| done.bidirectional), expected);
    }
    let mut subsystem = subsystem(target(1, Some(2)));
    let config = config(host(1, Some(2)), Digests::default());
    let info = admin(config.clone(), &mut subsystem).unwrap();
    let other = QueueConfig { authentication: Some(host(1, Some(7))), ..info.queue_config(&config, 1) };
    let error = io(other, &mut subsystem, |answers| unasked(answers)).unwrap_err();
    assert!(error.to_string().contains("the controller could not prove itself"), "{error}");
}

#[test]
fn a_host_without_secret_learns_the_setting() {
    let (error, _) = admin(config(None, BOTH), &mut subsystem(target(1, None))).unwrap_err();
    assert_eq!(error, ConnectError::AuthenticationRequired);
    assert!(error.to_string().contains("`dhchap-secret-file`"), "{error}");
}

#[test]
fn wrong_secrets_are_refused_and_both_sides_know_why() {
    let (error, target_error) = admin(config(host(7, None), BOTH), &mut subsystem(target(1, None))).unwrap_err();
    assert_eq!(error, ConnectError::Authentication(Box::new(HostError::HostSecretRefused { bidirectional: false })));
    assert!(target_error.unwrap().contains("the host could not prove itself"));

    let (error, target_error) = admin(config(host(1, Some(7)), BOTH), &mut subsystem(target(1, Some(2)))).unwrap_err();
    assert_eq!(error, ConnectError::Authentication(Box::new(HostError::WrongControllerProof)));
    assert!(target_error.unwrap().contains("the host refused the proof of this target"));

    let (error, target_error) = admin(config(host(1, Some(2)), BOTH), &mut subsystem(target(1, None))).unwrap_err();
    assert_eq!(error, ConnectError::Authentication(Box::new(HostError::HostSecretRefused { bidirectional: true })));
    assert!(target_error.unwrap().contains("has no controller secret"));
}

#[test]
fn an_io_queue_with_another_secret_is_refused() {
    let mut subsystem = subsystem(target(1, None));
    let config = config(host(1, None), BOTH);
    let info = admin(config.clone(), &mut subsystem).unwrap();
    let other = QueueConfig { authentication: Some(host(7, None)), ..info.queue_config(&config, 1) };
    let error = io(other, &mut subsystem, |_| ()).unwrap_err();
    assert!(error.to_string().contains("refused the proof of this host"), "{error}");
}

#[test]
fn hashes_and_groups_without_overlap_are_named() {
    let only = Authentication { groups: vec![DhGroup::Ffdhe3072], ..host(1, None) };
    let (error, target_error) = admin(config(only, BOTH), &mut subsystem(target(1, None))).unwrap_err();
    assert!(error.to_string().contains("ffdhe3072"), "{error}");
    assert!(target_error.unwrap().contains("allows null"));
}

/// Any other command than those of the authentication.
#[test]
fn commands_before_the_authentication_are_refused() {
    let mut subsystem = subsystem(target(1, None));
    let (now, mut connection) = (Instant::now(), Connection::new(&mut subsystem));
    // The handshake and the Connect of an admin queue.
    let mut controller = HostController::new(config(host(1, None), Digests::default()), now).unwrap();
    for _ in 0..2 {
        let mut bytes = Vec::new();
        controller.fill_tx(&mut bytes);
        let answers = connection.exchange(now, &bytes);
        controller.receive(now, &answers).unwrap();
    }
    let get = FabricsCommand::PropertyGet { size: PropertySize::Eight, offset: PropertyOffset::CAP };
    let receive = FabricsCommand::AuthenticationReceive { bytes: 64 };
    let send = FabricsCommand::AuthenticationSend { bytes: 4 };
    let in_capsule = Sgl::InCapsule { offset: 0, length: 8 };
    let cases: [(Sqe, &[u8], Status); 5] = [
        (get.to_sqe(1, Sgl::NONE), &[], Status::AUTHENTICATION_REQUIRED),
        (AdminCommand::KeepAlive.to_sqe(2, Sgl::NONE), &[], Status::AUTHENTICATION_REQUIRED),
        (AdminCommand::AsyncEventRequest.to_sqe(3, Sgl::NONE), &[], Status::AUTHENTICATION_REQUIRED),
        // No message is due, and TL is not the length of the data.
        (receive.to_sqe(4, Sgl::Transport { length: 64 }), &[], Status::COMMAND_SEQUENCE_ERROR),
        (send.to_sqe(5, in_capsule), &[0; 8], Status::DATA_SGL_LENGTH_INVALID),
    ];
    for (sqe, payload, status) in cases {
        let mut bytes = Vec::new();
        Pdu::CapsuleCmd(sqe).emit(&Framing::default(), payload, &mut bytes);
        // CID and status are the last two fields of the completion.
        let answer = connection.exchange(now, &bytes);
        let field = |at: usize| u16::from_le_bytes([answer[at], answer[at + 1]]);
        assert_eq!(answer.len(), 24);
        assert_eq!((field(20), Status(field(22) >> 1)), (sqe.cid.get(), status.with_dnr()));
    }
    assert!(!connection.queue.is_authenticated() && !connection.is_over);
}

proptest! {
    /// Changed bytes of the target never panic. If the queue is ready in spite of them, the controller has proven itself.
    #[test]
    fn a_hostile_controller_never_panics(seed: u64, changes in 1usize..6, digests: bool) {
        let digests = Digests { header: digests, data: digests };
        let mut subsystem = subsystem(target(1, Some(2)));
        let config = config(host(1, Some(2)), digests);
        let info = admin(config.clone(), &mut subsystem).unwrap();
        let mut choices = Choices(seed | 1);
        let outcome = io(info.queue_config(&config, 1), &mut subsystem, |bytes| {
            for _ in 0..changes {
                match choices.below(12) {
                    0 => bytes.truncate(choices.below(bytes.len() + 1)),
                    1 => bytes.extend_from_slice(&choices.below(usize::MAX).to_le_bytes()),
                    // Messages are behind the header of a C2HData.
                    kind if !bytes.is_empty() => {
                        let start = if kind < 6 { 24.min(bytes.len() - 1) } else { 0 };
                        let at = start + choices.below((bytes.len() - start).min(120));
                        bytes[at] = choices.below(256) as u8;
                    }
                    _ => {}
                }
            }
        });
        if let Ok(queue) = outcome {
            prop_assert!(queue.error().is_none());
            prop_assert!(queue.authenticated().is_some_and(|done| done.bidirectional));
        }
    }
}
