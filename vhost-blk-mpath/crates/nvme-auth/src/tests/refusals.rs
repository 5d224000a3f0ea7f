//! Wrong configurations: each is refused with its own reason, on the side that can know.

use super::*;

/// How both sides refuse.
fn refuse(host: AuthConfig, controller: AuthConfig) -> (HostError, ControllerError) {
    let (host, controller) = Pair::new(host, controller).run(1, |_| ());
    let (host, controller) = (host.unwrap().unwrap_err(), controller.unwrap().unwrap_err());
    // Each error has a remedy after a semicolon.
    assert!(host.to_string().contains("; ") && controller.to_string().contains("; "), "{host} {controller}");
    (host, controller)
}

fn secret(seed: u8) -> Secret {
    Secret::new(Some(Hash::Sha256), &[seed; 32]).unwrap()
}

#[test]
fn another_host_secret() {
    for group in [DhGroup::Null, DhGroup::Ffdhe2048] {
        let right = AuthConfig { groups: vec![group], ..config() };
        let wrong = AuthConfig { host_secret: secret(9), ..right.clone() };
        let errors = refuse(wrong, right);
        assert_eq!(errors, (HostError::HostSecretRefused { bidirectional: true }, ControllerError::WrongHostProof));
    }
}

#[test]
fn another_transformation_of_the_same_key() {
    let wrong = AuthConfig { host_secret: Secret::new(None, &[1; 32]).unwrap(), ..config() };
    assert_eq!(refuse(wrong, config()).1, ControllerError::WrongHostProof);
}

#[test]
fn another_nqn() {
    for wrong in [
        AuthConfig { hostnqn: "nqn.other".to_owned(), ..config() },
        AuthConfig { subnqn: "nqn.other".to_owned(), ..config() },
    ] {
        assert_eq!(refuse(wrong, config()).1, ControllerError::WrongHostProof);
    }
}

#[test]
fn another_controller_secret() {
    for group in [DhGroup::Null, DhGroup::Ffdhe2048] {
        let right = AuthConfig { groups: vec![group], ..config() };
        let wrong = AuthConfig { controller_secret: Some(secret(9)), ..right.clone() };
        let errors = refuse(right, wrong);
        assert_eq!(errors, (HostError::WrongControllerProof, ControllerError::ControllerSecretRefused));
    }
}

#[test]
fn a_controller_without_a_secret() {
    let errors = refuse(config(), AuthConfig { controller_secret: None, ..config() });
    assert_eq!(errors.0, HostError::HostSecretRefused { bidirectional: true });
    assert!(errors.0.to_string().contains("no controller secret"));
    assert_eq!(errors.1, ControllerError::NoControllerSecret);
}

#[test]
fn no_common_hash() {
    let (host, controller) = (vec![Hash::Sha256], vec![Hash::Sha384, Hash::Sha512]);
    let errors =
        refuse(AuthConfig { hashes: host.clone(), ..config() }, AuthConfig { hashes: controller.clone(), ..config() });
    assert_eq!(errors.0, HostError::NoCommonHash { allowed: host });
    assert_eq!(errors.1, ControllerError::NoCommonHash { offered: vec![1], allowed: controller });
}

#[test]
fn no_common_group() {
    let (host, controller) = (vec![DhGroup::Null, DhGroup::Ffdhe2048], vec![DhGroup::Ffdhe3072]);
    let errors =
        refuse(AuthConfig { groups: host.clone(), ..config() }, AuthConfig { groups: controller.clone(), ..config() });
    assert_eq!(errors.0, HostError::NoCommonGroup { allowed: host });
    assert!(errors.1.to_string().contains("groups null, ffdhe2048 and this target allows ffdhe3072; "));
    assert_eq!(errors.1, ControllerError::NoCommonGroup { offered: vec![0, 1], allowed: controller });
}

#[test]
fn another_secure_channel() {
    let channel = |concatenation| AuthConfig { concatenation, ..config() };
    let (none, new) = (Concatenation::None, Concatenation::NewTlsPsk);
    for (requested, accepted) in [(new, none), (none, new)] {
        let errors = refuse(channel(requested), channel(accepted));
        assert!(errors.0.to_string().contains(&format!("request \"{requested}\"; ")));
        assert_eq!(errors.0, HostError::ConcatenationRefused { requested });
        assert_eq!(errors.1, ControllerError::Concatenation { requested: requested.code(), accepted });
    }
}

/// A change of a message.
type Change<T> = fn(&mut T);

/// Runs a transaction in which `change` replaces messages.
fn changed(mut change: impl FnMut(&mut Message)) -> (Outcome<HostError>, Outcome<ControllerError>) {
    let both = AuthConfig { groups: vec![DhGroup::Ffdhe2048], hashes: vec![Hash::Sha256], ..config() };
    Pair::new(both.clone(), both).run(1, |bytes| {
        let mut message = Message::parse(bytes).unwrap();
        change(&mut message);
        *bytes = message.emit();
    })
}

/// The error of the host, and the explanation that its controller got.
fn host_refuses(change: impl FnMut(&mut Message)) -> (HostError, Explanation) {
    let (host, controller) = changed(change);
    let explanation = match controller.unwrap().unwrap_err() {
        ControllerError::Refused(refusal) => refusal.explanation,
        ControllerError::ControllerSecretRefused => Explanation::AuthenticationFailed,
        other => panic!("{other}"),
    };
    (host.unwrap().unwrap_err(), explanation)
}

#[test]
fn choices_that_the_host_does_not_allow() {
    let choose = |change: fn(&mut Challenge, u8), id| {
        host_refuses(|message| {
            if let Message::Challenge(challenge) = message {
                change(challenge, id);
            }
        })
    };
    for id in [0, 2, 4, 255] {
        assert_eq!(
            choose(|challenge, id| challenge.hash = id, id),
            (HostError::HashNotAllowed { id }, Explanation::HashUnusable)
        );
    }
    for id in [0, 2, 6, 255] {
        assert_eq!(
            choose(|challenge, id| challenge.group = id, id),
            (HostError::GroupNotAllowed { id }, Explanation::GroupUnusable)
        );
    }
}

#[test]
fn violations_of_the_controller() {
    let group = DhGroup::Ffdhe2048;
    let cases: [(Change<Message>, Violation, Explanation); 4] = [
        (
            |message| {
                if let Message::Challenge(challenge) = message {
                    challenge.dh_value = vec![1];
                }
            },
            DhValueError::Range { group }.into(),
            Explanation::IncorrectPayload,
        ),
        (
            |message| {
                if let Message::Challenge(challenge) = message {
                    challenge.challenge = vec![1; 48];
                }
            },
            Violation::HashLength { hash: Hash::Sha256, got: 48 },
            Explanation::IncorrectPayload,
        ),
        (
            |message| {
                if let Message::Challenge(challenge) = message {
                    challenge.transaction = 2;
                }
            },
            Violation::Transaction { expected: 1, got: 2 },
            Explanation::IncorrectMessage,
        ),
        (
            |message| {
                if let Message::Challenge(_) = message {
                    *message = Message::Success1(Success1 { transaction: 1, hash_bytes: 32, response: None });
                }
            },
            Violation::Unexpected { expected: MessageKind::Challenge, got: MessageKind::Success1 },
            Explanation::IncorrectMessage,
        ),
    ];
    for (change, violation, explanation) in cases {
        assert_eq!(host_refuses(change), (violation.into(), explanation));
    }
}

#[test]
fn success1_without_the_proof_that_the_host_asked_for() {
    let errors = host_refuses(|message| {
        if let Message::Success1(success) = message {
            success.response = None;
        }
    });
    assert_eq!(errors, (HostError::NoControllerProof, Explanation::AuthenticationFailed));
}

#[test]
fn violations_of_the_host() {
    let group = DhGroup::Ffdhe2048;
    let cases: [(Change<Reply>, Violation); 4] = [
        (|reply| reply.dh_value = vec![], DhValueError::Length { group, got: 0, allowed: 256 }.into()),
        (|reply| reply.dh_value = vec![0; 256], DhValueError::Range { group }.into()),
        (|reply| reply.transaction = 9, Violation::Transaction { expected: 1, got: 9 }),
        (|reply| reply.sequence_number = 0, Violation::SequenceNumber),
    ];
    for (change, violation) in cases {
        let (host, controller) = changed(|message| {
            if let Message::Reply(reply) = message {
                change(reply);
            }
        });
        assert_eq!(controller, Some(Err(violation.into())));
        let Some(Err(HostError::Refused(refusal))) = host else { panic!("{host:?}") };
        assert_eq!(refusal.explanation, violation.explanation());
    }
}

#[test]
fn a_public_value_without_a_group_is_refused() {
    let both = AuthConfig { groups: vec![DhGroup::Null], ..config() };
    let (host, _) = Pair::new(both.clone(), both).run(1, |bytes| {
        if let Ok(Message::Challenge(mut challenge)) = Message::parse(bytes) {
            challenge.dh_value = vec![5; 256];
            *bytes = Message::Challenge(challenge).emit();
        }
    });
    assert_eq!(host, Some(Err(HostError::Violation(DhValueError::NotExpected { got: 256 }.into()))));
}

#[test]
fn a_secure_channel_needs_a_challenge_of_the_host() {
    let both = AuthConfig { concatenation: Concatenation::NewTlsPsk, ..config() };
    let (_, controller) = Pair::new(both.clone(), both).run(1, |bytes| {
        if let Ok(Message::Reply(mut reply)) = Message::parse(bytes) {
            reply.challenge = None;
            *bytes = Message::Reply(reply).emit();
        }
    });
    assert_eq!(controller, Some(Err(Violation::NoChallenge.into())));
}

#[test]
fn a_host_that_offers_no_dh_hmac_chap() {
    let (host, controller) = Pair::new(config(), config()).run(1, |bytes| {
        if bytes[..2] == [0, 0] {
            bytes[8] = 2;
        }
    });
    assert_eq!(controller, Some(Err(Violation::Malformed(MessageError::NoProtocol { offered: 1 }).into())));
    let Some(Err(HostError::Refused(refusal))) = host else { panic!("{host:?}") };
    assert_eq!(refusal.explanation, Explanation::ProtocolUnusable);
}

#[test]
fn messages_outside_a_transaction() {
    let Pair { mut host, mut controller } = Pair::new(config(), config());
    let success2 = Message::Success2 { transaction: 4 }.emit();
    assert_eq!(host.receive(&success2), Err(Failure { error: HostError::NotStarted, message: None }));
    let failure = controller.receive(&success2, random(1)).unwrap_err();
    let violation = Violation::Unexpected { expected: MessageKind::Negotiate, got: MessageKind::Success2 };
    assert_eq!(failure.error, violation.into());
    let refusal = Refusal::new(4, Explanation::IncorrectMessage);
    assert_eq!(Message::parse(&failure.message.unwrap()), Ok(Message::Failure1(refusal)));
}
