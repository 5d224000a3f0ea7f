//! A host against a controller with the right configuration.

use super::*;

/// Runs one transaction. Checks that both sides agree on the session.
fn authenticate(host: AuthConfig, controller: AuthConfig) -> Session {
    let (host, controller) = Pair::new(host, controller).run(1, |_| ());
    let (host, controller) = (host.unwrap().unwrap(), controller.unwrap().unwrap());
    assert_eq!(host, controller);
    host
}

#[test]
fn every_hash_group_and_direction() {
    for hash in Hash::ALL {
        // FFDHE8192 takes long, so one hash must do.
        for group in DhGroup::ALL.into_iter().filter(|&group| group != DhGroup::Ffdhe8192 || hash == Hash::Sha512) {
            for bidirectional in [false, true] {
                let both = AuthConfig { hashes: vec![hash], groups: vec![group], ..config() };
                let mut host = both.clone();
                host.controller_secret = host.controller_secret.filter(|_| bidirectional);
                let session = authenticate(host, both);
                assert_eq!((session.hash, session.group, session.bidirectional), (hash, group, bidirectional));
                assert_eq!(session.session_key.map(|key| key.as_bytes().len()), {
                    (group != DhGroup::Null).then_some(hash.bytes())
                });
                assert_eq!(session.controller_challenge.len(), hash.bytes());
                assert_eq!(session.host_challenge.is_some(), bidirectional);
            }
        }
    }
}

#[test]
fn every_transformation_and_key_length() {
    for transformation in [None, Some(Hash::Sha256), Some(Hash::Sha384), Some(Hash::Sha512)] {
        for bytes in [32, 48, 64] {
            let both = AuthConfig {
                host_secret: Secret::new(transformation, &vec![7; bytes]).unwrap(),
                controller_secret: Some(Secret::new(transformation, &vec![8; bytes]).unwrap()),
                groups: vec![DhGroup::Null],
                ..config()
            };
            authenticate(both.clone(), both);
        }
    }
}

#[test]
fn the_controller_chooses_by_its_own_order() {
    let controller = AuthConfig {
        hashes: vec![Hash::Sha512, Hash::Sha256],
        groups: vec![DhGroup::Ffdhe4096, DhGroup::Ffdhe2048, DhGroup::Null],
        ..config()
    };
    let session = authenticate(config(), controller.clone());
    assert_eq!((session.hash, session.group), (Hash::Sha512, DhGroup::Ffdhe4096));
    let host = AuthConfig { hashes: vec![Hash::Sha384, Hash::Sha256], groups: vec![DhGroup::Null], ..config() };
    let session = authenticate(host, controller);
    assert_eq!((session.hash, session.group), (Hash::Sha256, DhGroup::Null));
}

#[test]
fn a_secure_channel_gets_a_generated_psk() {
    let concatenation = Concatenation::NewTlsPsk;
    for bidirectional in [false, true] {
        // Group null and SHA-512 come first, and are left out.
        let (groups, hashes) = (vec![DhGroup::Null, DhGroup::Ffdhe2048], vec![Hash::Sha512, Hash::Sha384]);
        let controller = AuthConfig { hashes, groups, concatenation, ..config() };
        let mut host = controller.clone();
        host.controller_secret = host.controller_secret.filter(|_| bidirectional);
        let session = authenticate(host, controller);
        assert_eq!((session.group, session.concatenation), (DhGroup::Ffdhe2048, concatenation));
        assert_eq!(session.bidirectional, bidirectional);
        assert_eq!(session.generated_psk().unwrap().unwrap().as_bytes().len(), 48);
    }
}

#[test]
fn authentication_again_has_new_sequence_numbers() {
    let mut pair = Pair::new(config(), config());
    let mut sequence_numbers = vec![];
    for transaction in [7, 8] {
        let (host, controller) = pair.run(transaction, |bytes| {
            if let Ok(
                Message::Challenge(Challenge { sequence_number, .. }) | Message::Reply(Reply { sequence_number, .. }),
            ) = Message::parse(bytes)
            {
                sequence_numbers.push(sequence_number);
            }
        });
        assert_eq!(host.unwrap().unwrap().transaction, transaction);
        assert!(controller.unwrap().is_ok());
    }
    let [s1, s2, s1_again, s2_again] = sequence_numbers[..] else { panic!("{sequence_numbers:?}") };
    assert_eq!((s1_again, s2_again), (s1 + 1, s2 + 1));
}

#[test]
fn the_host_may_start_again_in_the_middle() {
    let mut pair = Pair::new(config(), config());
    let negotiate = pair.host.start(1, random(1));
    pair.controller.receive(&negotiate, random(2)).unwrap();
    let (host, controller) = pair.run(2, |_| ());
    assert_eq!(host.unwrap().unwrap(), controller.unwrap().unwrap());
}

#[test]
fn padding_of_authentication_receive_is_ignored() {
    let (host, controller) = Pair::new(config(), config()).run(1, |bytes| bytes.resize(4096, 0));
    assert_eq!(host.unwrap().unwrap(), controller.unwrap().unwrap());
}

#[test]
fn success2_follows_only_a_proof_of_the_controller() {
    for bidirectional in [false, true] {
        let mut host = config();
        host.controller_secret = host.controller_secret.filter(|_| bidirectional);
        let mut kinds = vec![];
        Pair::new(host, config()).run(1, |bytes| kinds.push(Message::parse(bytes).unwrap().kind()));
        let all = [
            MessageKind::Negotiate,
            MessageKind::Challenge,
            MessageKind::Reply,
            MessageKind::Success1,
            MessageKind::Success2,
        ];
        assert_eq!(kinds, all[..4 + usize::from(bidirectional)]);
    }
}

#[test]
fn debug_shows_no_secret() {
    let Pair { mut host, controller } = Pair::new(config(), config());
    let _ = host.start(1, random(1));
    let text = format!("{host:?} {controller:?}");
    assert!(
        text.contains("AwaitChallenge") && text.contains("disk1") && !text.contains("[1,") && !text.contains("1, 1")
    );
}
