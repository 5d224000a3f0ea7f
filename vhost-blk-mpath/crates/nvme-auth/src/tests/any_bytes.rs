//! Arbitrary bytes and changed messages: no panic, and no authentication.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// A configuration whose transactions take little time.
fn quick(group: DhGroup) -> AuthConfig {
    AuthConfig { groups: vec![group], ..config() }
}

/// Sets the first bytes, so that many inputs reach the parsers.
fn with_kind(mut bytes: Vec<u8>, kind: usize, transaction: u16) -> Vec<u8> {
    let codes: [[u8; 2]; 7] = [[0, 0], [1, 1], [1, 2], [1, 3], [1, 4], [0, 0xf0], [0, 0xf1]];
    if let (Some(code), true) = (codes.get(kind), bytes.len() >= 6) {
        bytes[..2].copy_from_slice(code);
        bytes[4..6].copy_from_slice(&transaction.to_le_bytes());
    }
    bytes
}

fn group() -> impl Strategy<Value = DhGroup> {
    prop_oneof![4 => Just(DhGroup::Null), 1 => Just(DhGroup::Ffdhe2048)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_host_accepts_no_arbitrary_bytes(inputs in vec((vec(any::<u8>(), 0..400), 0..9_usize), 1..6)) {
        let mut host = HostAuthentication::new(quick(DhGroup::Null)).unwrap();
        let _ = host.start(1, random(1));
        for (bytes, kind) in inputs {
            let authenticated = matches!(host.receive(&with_kind(bytes, kind, 1)), Ok(Step::Authenticated { .. }));
            prop_assert!(!authenticated);
        }
    }

    #[test]
    fn a_controller_accepts_no_arbitrary_bytes(inputs in vec((vec(any::<u8>(), 0..400), 0..9_usize), 1..6), begun: bool) {
        let Pair { mut host, mut controller } = Pair::new(quick(DhGroup::Null), quick(DhGroup::Null));
        if begun {
            controller.receive(&host.start(1, random(1)), random(2)).unwrap();
        }
        for (bytes, kind) in inputs {
            let step = controller.receive(&with_kind(bytes, kind, 1), random(3));
            let authenticated = matches!(step, Ok(Step::Authenticated { .. }));
            prop_assert!(!authenticated);
        }
    }

    /// One byte of one message after `AUTH_Negotiate` changes. The receiver of that message fails, unless the byte means nothing.
    #[test]
    fn a_changed_message_authenticates_nobody(group in group(), place in 1..5_usize, at: Index, change in 1..=255_u8) {
        let (mut count, mut means_nothing) = (0, false);
        let (host, controller) = Pair::new(quick(group), quick(group)).run(1, |bytes| {
            if count == place {
                let before = Message::parse(bytes).unwrap();
                let at = at.index(bytes.len());
                bytes[at] ^= change;
                means_nothing = Message::parse(bytes) == Ok(before);
            }
            count += 1;
        });
        let authenticated = (matches!(host, Some(Ok(_))), matches!(controller, Some(Ok(_))));
        if means_nothing {
            prop_assert_eq!(authenticated, (true, true));
        } else if place == 4 {
            // The host is done when it sends Success2.
            prop_assert_eq!(authenticated, (true, false));
        } else {
            prop_assert_eq!(authenticated, (false, false));
        }
    }

    /// `AUTH_Negotiate` is not protected. A change never makes a side accept what it does not allow.
    #[test]
    fn a_changed_offer_stays_within_both_configurations(at in 0..72_usize, change in 1..=255_u8) {
        let both = AuthConfig { hashes: vec![Hash::Sha384, Hash::Sha512], ..quick(DhGroup::Null) };
        let (host, controller) = Pair::new(both.clone(), both).run(1, |bytes| {
            if bytes[..2] == [0, 0] {
                bytes[at] ^= change;
            }
        });
        if let Some(Ok(session)) = controller {
            prop_assert!(session.hash != Hash::Sha256 && session.bidirectional);
            prop_assert_eq!(Some(Ok(session)), host);
        }
    }
}

/// Both sides draw the same random bytes as before, so only sequence numbers differ.
#[test]
fn a_message_of_an_earlier_transaction_is_no_answer() {
    for place in 1..4 {
        let mut pair = Pair::new(config(), config());
        let mut recorded = vec![];
        let _ = pair.run(1, |bytes| recorded.push(bytes.clone()));
        let mut count = 0;
        let (host, controller) = pair.run(1, |bytes| {
            if count == place {
                bytes.clone_from(&recorded[place]);
            }
            count += 1;
        });
        assert!(!matches!(host, Some(Ok(_))) && !matches!(controller, Some(Ok(_))));
    }
}

#[test]
fn bytes_beyond_the_limit_are_refused() {
    let bytes = vec![0; MESSAGE_BYTES_MAX + 1];
    let error = Violation::Malformed(MessageError::TooLong { bytes: bytes.len() });
    let Pair { mut host, mut controller } = Pair::new(config(), config());
    let _ = host.start(1, random(1));
    assert_eq!(host.receive(&bytes).unwrap_err().error, error.into());
    assert_eq!(controller.receive(&bytes, random(1)).unwrap_err().error, error.into());
}
