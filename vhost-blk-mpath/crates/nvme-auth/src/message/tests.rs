//! Round trips, layouts and malformed messages.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn digest() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 32), vec(any::<u8>(), 48), vec(any::<u8>(), 64)]
}

fn refusal() -> impl Strategy<Value = Refusal> {
    any::<(u16, u8, u8)>().prop_map(|(transaction, reason, explanation)| Refusal {
        transaction,
        reason: Reason::from_code(reason),
        explanation: Explanation::from_code(explanation),
    })
}

fn negotiate() -> impl Strategy<Value = Negotiate> {
    let ids = || vec(any::<u8>(), 0..=30);
    (any::<(u16, u8)>(), ids(), ids()).prop_map(|((transaction, concatenation), hashes, groups)| Negotiate {
        transaction,
        concatenation,
        hashes,
        groups,
    })
}

fn challenge() -> impl Strategy<Value = Challenge> {
    (any::<(u16, u8, u8, u32)>(), digest(), vec(any::<u8>(), 0..=1024)).prop_map(
        |((transaction, hash, group, sequence_number), challenge, dh_value)| Challenge {
            transaction,
            hash,
            group,
            sequence_number,
            challenge,
            dh_value,
        },
    )
}

fn reply() -> impl Strategy<Value = Reply> {
    (any::<(u16, u32, bool)>(), digest(), vec(any::<u8>(), 0..=1024)).prop_map(
        |((transaction, sequence_number, challenged), response, dh_value)| Reply {
            transaction,
            sequence_number,
            challenge: challenged.then(|| response.iter().rev().copied().collect()),
            response,
            dh_value,
        },
    )
}

fn success1() -> impl Strategy<Value = Success1> {
    (any::<u16>(), digest(), any::<bool>()).prop_map(|(transaction, response, proven)| Success1 {
        transaction,
        hash_bytes: response.len() as u8,
        response: proven.then_some(response),
    })
}

fn any_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        negotiate().prop_map(Message::Negotiate),
        challenge().prop_map(Message::Challenge),
        reply().prop_map(Message::Reply),
        success1().prop_map(Message::Success1),
        any::<u16>().prop_map(|transaction| Message::Success2 { transaction }),
        refusal().prop_map(Message::Failure1),
        refusal().prop_map(Message::Failure2),
    ]
}

proptest! {
    #[test]
    fn parse_inverts_emit(message in any_message(), padding in 0..64_usize) {
        let mut bytes = message.emit();
        prop_assert_eq!(Message::parse(&bytes), Ok(message.clone()));
        bytes.resize(bytes.len() + padding, 0);
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
    }

    #[test]
    fn a_message_that_ends_early_is_refused(message in any_message(), cut: prop::sample::Index) {
        let bytes = message.emit();
        prop_assert!(Message::parse(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_bytes_parse_or_fail(mut bytes in vec(any::<u8>(), 0..300), kind in 0..8_usize) {
        if let (Some(kind), Some(code)) = (MessageKind::ALL.get(kind), bytes.first_chunk_mut()) {
            *code = kind.code();
        }
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert_eq!(Message::parse(&message.emit()), Ok(message));
        }
    }
}

#[test]
fn offsets_are_those_of_the_linux_headers() {
    let negotiate = Negotiate { transaction: 0x0102, concatenation: 3, hashes: vec![1, 2], groups: vec![4, 5, 0] };
    let bytes = Message::Negotiate(negotiate).emit();
    assert_eq!((bytes.len(), &bytes[..14]), (72, &[0, 0, 0, 0, 2, 1, 3, 1, 1, 0, 2, 3, 1, 2][..]));
    assert_eq!(bytes[42..45], [4, 5, 0]);

    let challenge = Challenge {
        transaction: 0x0102,
        hash: 1,
        group: 5,
        sequence_number: 0x0a0b_0c0d,
        challenge: vec![7; 32],
        dh_value: vec![9; 1024],
    };
    let bytes = Message::Challenge(challenge).emit();
    assert_eq!(bytes[..16], [1, 1, 0, 0, 2, 1, 32, 0, 1, 5, 0, 4, 0x0d, 0x0c, 0x0b, 0x0a]);
    assert_eq!((bytes.len(), &bytes[47..49]), (16 + 32 + 1024, &[7, 9][..]));

    let reply = Reply {
        transaction: 0x0102,
        sequence_number: 0x0a0b_0c0d,
        response: vec![7; 48],
        challenge: None,
        dh_value: vec![9; 3],
    };
    let bytes = Message::Reply(reply.clone()).emit();
    assert_eq!(bytes[..16], [1, 2, 0, 0, 2, 1, 48, 0, 0, 0, 3, 0, 0x0d, 0x0c, 0x0b, 0x0a]);
    assert_eq!((bytes.len(), bytes[63], bytes[64], bytes[111], bytes[112]), (115, 7, 0, 0, 9));
    assert_eq!(Message::Reply(Reply { challenge: Some(vec![8; 48]), ..reply }).emit()[8], 1);

    let success1 = Success1 { transaction: 0x0102, hash_bytes: 64, response: Some(vec![7; 64]) };
    let bytes = Message::Success1(success1).emit();
    assert_eq!((bytes.len(), &bytes[..17]), (80, &[1, 3, 0, 0, 2, 1, 64, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7][..]));

    let bytes = Message::Success2 { transaction: 0x0102 }.emit();
    assert_eq!(bytes, [1, 4, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

    let refusal = Refusal::new(0x0102, Explanation::GroupUnusable);
    assert_eq!(Message::Failure1(refusal).emit(), [0, 0xf1, 0, 0, 2, 1, 1, 5]);
    assert_eq!(Message::Failure2(refusal).emit(), [0, 0xf0, 0, 0, 2, 1, 1, 5]);
}

#[test]
fn protocols_other_than_dh_hmac_chap_are_skipped() {
    let negotiate =
        Message::Negotiate(Negotiate { transaction: 1, concatenation: 0, hashes: vec![1], groups: vec![0] });
    let mut bytes = negotiate.emit();
    bytes[7] = 2;
    bytes.splice(8..8, [2; 64]);
    assert_eq!(Message::parse(&bytes), Ok(negotiate));
    bytes[7] = 1;
    assert_eq!(Message::parse(&bytes), Err(MessageError::NoProtocol { offered: 1 }));
}

#[test]
fn wrong_fields_are_named() {
    let name = |bytes: &[u8]| match Message::parse(bytes) {
        Err(MessageError::Field { field, value, .. }) => (field, value),
        other => panic!("{other:?}"),
    };
    let negotiate =
        Message::Negotiate(Negotiate { transaction: 1, concatenation: 0, hashes: vec![1], groups: vec![0] });
    for (at, field) in [(10, "HALEN"), (11, "DHLEN")] {
        let mut bytes = negotiate.emit();
        bytes[at] = 31;
        assert_eq!(name(&bytes), (field, 31));
    }
    let mut bytes = vec![0; 2000];
    bytes[..2].copy_from_slice(&[1, 2]);
    assert_eq!(name(&bytes), ("HL", 0));
    bytes[6] = 32;
    bytes[10..12].copy_from_slice(&1025_u16.to_le_bytes());
    assert_eq!(name(&bytes), ("DHVLEN", 1025));
    bytes[10..12].fill(0);
    bytes[8] = 2;
    assert_eq!(name(&bytes), ("CVALID", 2));
    bytes[1] = 3;
    assert_eq!(name(&bytes), ("RVALID", 2));
}

#[test]
fn lengths_and_kinds_are_checked() {
    assert_eq!(Message::parse(&[0]), Err(MessageError::NoHeader { bytes: 1 }));
    assert_eq!(Message::parse(&[2, 0]), Err(MessageError::UnknownKind { auth_type: 2, auth_id: 0 }));
    let bytes = MESSAGE_BYTES_MAX + 1;
    assert_eq!(Message::parse(&vec![0; bytes]), Err(MessageError::TooLong { bytes }));
    let error = MessageError::TooShort { kind: MessageKind::Success2, bytes: 15, needed: 16 };
    assert_eq!(Message::parse(&[1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(error));
    assert_eq!(error.to_string(), "DH-HMAC-CHAP_Success2 has 15 bytes and needs 16");
}
