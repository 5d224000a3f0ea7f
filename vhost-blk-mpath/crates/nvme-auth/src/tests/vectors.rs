//! Whole transactions as another implementation computes them: `vectors.py`, with Python's `hmac`, `hashlib` and integers.

use super::*;

/// SHA-256 of Challenge, Reply and Success1 of a transaction, and its session.
fn transaction(config: &AuthConfig) -> (Vec<Vec<u8>>, Vec<u8>, Session) {
    let (mut messages, mut response) = (vec![], vec![]);
    let (host, _) = Pair::new(config.clone(), config.clone()).run(0x1234, |bytes| {
        messages.push(Hash::Sha256.digest(bytes).unwrap().to_vec());
        if let Ok(Message::Reply(reply)) = Message::parse(bytes) {
            response = reply.response;
        }
    });
    (messages[1..4].to_vec(), response, host.unwrap().unwrap())
}

#[test]
fn sha_256_and_group_null() {
    let (messages, response, session) =
        transaction(&AuthConfig { hashes: vec![Hash::Sha256], groups: vec![DhGroup::Null], ..config() });
    assert_eq!(
        messages,
        [
            "5cc042f6c4a801a7631a754e44226e2adf8e241c9a403339b2782235ee4ce498",
            "6d4bfad5ef40f39262cfed67c1af03cce713ffd84935d81de7ad4a860453c62c",
            "7bf3919cd5d9e5e8d57889cf3bf0cb2010fb154a37096d757ef934408abdd012",
        ]
        .map(hex)
    );
    assert_eq!(response, hex("1cc3c716f4be33568dbef0aed6bbeca127f5e14c51cd7020d21c0b14b89d69d7"));
    assert_eq!(session.session_key, None);
}

#[test]
fn sha_384_and_ffdhe2048_with_a_secure_channel() {
    let (messages, response, session) = transaction(&AuthConfig {
        hashes: vec![Hash::Sha384],
        groups: vec![DhGroup::Ffdhe2048],
        concatenation: Concatenation::NewTlsPsk,
        ..config()
    });
    assert_eq!(
        messages,
        [
            "7702e6fd0d78a7102e1e073841275facc601bad3a95044fc83cc59fa6e89a733",
            "22a419f94df354586a6112d86d6df892f35eafffec755e7078629511aefdc0ee",
            "f5a783e35d0122f2ca846344783dc4aac7fef68b156b276fac9bf1094fb4084d",
        ]
        .map(hex)
    );
    assert_eq!(
        response,
        hex("a15de87d3aa232a0575722da5f8e477d6fd47a020eff8c1a1c5f4fa3c097ca94c2a67b4f4b2aa29ad0eeb34f6a7d6d21")
    );
    assert_eq!(
        session.session_key.as_ref().unwrap().as_bytes(),
        hex("a25b2d36d204ece2e45268c7d718b2e0674aeb5d43a213ac287a55438861d86260e533f5c81241bc7cc46e20cdfc496b")
    );
    assert_eq!(
        session.generated_psk().unwrap().unwrap().as_bytes(),
        hex("3192469833ef6d9a00d13714ddd03c48883473a617b5a6b5aafde62242d2ccf5be158519265b300f1d36f62132b969e2")
    );
}
