use proptest::prelude::*;

use super::vectors::CONFIGURED;
use super::*;

/// libnvme 1.16.2, `test/psk.c`. `nvme gen-tls-key` of Debian 13 (nvme-cli 2.13) prints the latter two for the same secret, and
/// `nvme check-tls-key` of Debian 12 (nvme-cli 2.3) accepts them.
const NONE_32: &str = "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const SHA256: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const SHA384: &str = "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:";

fn error(text: &str) -> InterchangeError {
    ConfiguredPsk::parse(text).unwrap_err()
}

#[test]
fn keys_of_nvme_cli() {
    let known =
        [(NONE_32, RetainedHash::None, 32), (SHA256, RetainedHash::Sha256, 32), (SHA384, RetainedHash::Sha384, 48)];
    for (text, hash, bytes) in known {
        let psk = ConfiguredPsk::new(hash, &CONFIGURED[..bytes]).unwrap();
        assert_eq!(text.parse(), Ok(psk.clone()));
        assert_eq!(*psk.to_interchange(), text);
        assert_eq!((psk.hash(), psk.suite().psk_len()), (hash, bytes));
    }
}

/// Output of `nvme gen-tls-key` and `nvme gen-tls-key --hmac=2` of Debian 12 (nvme-cli 2.3, libnvme 1.3).
#[test]
fn random_keys_of_debian_12() {
    for (text, hash) in [
        ("NVMeTLSkey-1:01:pH2UcnZK8MrgFcJ9oZMC3laKqIAMn4WdKrrRfAgMBMcL4oW8:", RetainedHash::Sha256),
        (
            "NVMeTLSkey-1:02:VwzXI+fKNQxMwESRb9ANKBQOKdOn4VVTzylxNWe3UfxLpp4gnyVq/gwdb+0ZhP7pkv/pJw==:",
            RetainedHash::Sha384,
        ),
    ] {
        let psk = ConfiguredPsk::parse(text).unwrap();
        assert_eq!((psk.hash(), &**psk.to_interchange()), (hash, text));
    }
}

#[test]
fn the_prefix_is_checked() {
    for text in ["", "N", "DHHC-1:01:", &SHA256[1..], &SHA256.to_lowercase(), " NVMeTLSkey-1:", "NVMeTLSkey-1"] {
        assert_eq!(error(text), InterchangeError::Prefix, "{text}");
    }
    assert_eq!(error(&SHA256.replace("-1:", "-0:")), InterchangeError::Version(0));
    assert_eq!(error(&SHA256.replace("-1:", "-2:")), InterchangeError::Version(2));
    for version in ["01", "+1", "", "1000", "x"] {
        assert_eq!(error(&format!("NVMeTLSkey-{version}:01:")), InterchangeError::Prefix, "{version}");
    }
}

#[test]
fn the_hash_field_is_checked() {
    for field in ["", "1", "001", "+1", " 1", "0x", "\u{663}"] {
        assert_eq!(error(&SHA256.replace(":01:", &format!(":{field}:"))), InterchangeError::HashDigits, "{field}");
    }
    assert_eq!(error("NVMeTLSkey-1:01"), InterchangeError::HashDigits);
    assert_eq!(error(&SHA256.replace(":01:", ":03:")), InterchangeError::Hash(3));
    assert_eq!(error(&SHA256.replace(":01:", ":99:")), InterchangeError::Hash(99));
}

#[test]
fn the_end_is_checked() {
    assert_eq!(error(SHA256.trim_end_matches(':')), InterchangeError::NoEnd);
    assert_eq!(error(&format!("{SHA256}\n")), InterchangeError::AfterEnd { bytes: 1 });
    assert_eq!(error(&format!("{SHA256}:")), InterchangeError::AfterEnd { bytes: 1 });
}

#[test]
fn each_character_of_the_key_field_is_checked() {
    for index in 16..SHA256.len() - 1 {
        for wrong in ["-", "_", " ", "\n", "\0", "é"] {
            let mut text = SHA256.to_owned();
            text.replace_range(index..=index, wrong);
            assert_eq!(error(&text), InterchangeError::Character { position: index + 1 });
        }
    }
}

#[test]
fn the_length_of_the_key_field_is_checked() {
    let length = |characters: usize| error(&format!("NVMeTLSkey-1:00:{}:", "A".repeat(characters)));
    for characters in [0, 1, 44, 47, 49, 68, 70, 71, 73, 10_000] {
        assert_eq!(length(characters), InterchangeError::FieldLength { characters });
    }
}

#[test]
fn the_padding_of_the_key_field_is_checked() {
    let field = |field: &str| error(&format!("NVMeTLSkey-1:00:{field}:"));
    for wrong in [
        "=".repeat(48),
        format!("{}=", "A".repeat(47)),
        format!("={}", "A".repeat(47)),
        "A".repeat(72),
        format!("{}=", "A".repeat(71)),
        format!("{}===", "A".repeat(69)),
        format!("{}=A=", "A".repeat(69)),
    ] {
        assert_eq!(field(&wrong), InterchangeError::Padding, "{wrong}");
    }
    assert_eq!(error(&SHA384.replace("ZQ==", "ZR==")), InterchangeError::UnusedBits);
}

#[test]
fn each_bit_of_the_key_is_covered_by_the_checksum() {
    for (index, old) in SHA256.char_indices().filter(|(index, _)| (16..64).contains(index)) {
        let mut text = SHA256.to_owned();
        text.replace_range(index..=index, if old == 'A' { "B" } else { "A" });
        assert_eq!(error(&text), InterchangeError::Checksum);
    }
}

#[test]
fn hash_and_length_of_a_key_belong_together() {
    use RetainedHash::{None, Sha256, Sha384};
    assert_eq!(error(&SHA256.replace(":01:", ":02:")), InterchangeError::HashKeyLength { hash: Sha384, bytes: 32 });
    assert_eq!(error(&SHA384.replace(":02:", ":01:")), InterchangeError::HashKeyLength { hash: Sha256, bytes: 48 });
    for bytes in [0, 31, 33, 47, 49, 64] {
        for hash in [None, Sha256, Sha384] {
            assert_eq!(ConfiguredPsk::new(hash, &vec![1; bytes]), Err(InterchangeError::KeyLength { bytes }));
        }
    }
    assert!(ConfiguredPsk::new(None, &[1; 48]).is_ok());
}

#[test]
fn messages_name_the_field_and_the_remedy() {
    let hash = InterchangeError::HashKeyLength { hash: RetainedHash::Sha256, bytes: 48 };
    assert_eq!(
        hash.to_string(),
        "the TLS key has 48 bytes, and hash 01 (SHA-256) requires 32; generate a key with `nvme gen-tls-key --hmac=1`"
    );
    assert_eq!(
        InterchangeError::Hash(3).to_string(),
        "the hash field of the TLS key is 03; use 00 (no transform), 01 (SHA-256) or 02 (SHA-384)"
    );
}

#[test]
fn debug_output_has_no_bytes_of_the_key() {
    let psk = ConfiguredPsk::parse(SHA256).unwrap();
    let expected = "ConfiguredPsk { hash: Sha256, suite: Aes128GcmSha256, key: Secret(32 bytes) }";
    assert_eq!(format!("{psk:?}"), expected);
}

#[test]
fn keys_that_differ_in_one_byte_or_in_the_hash_are_unequal() {
    let psk = ConfiguredPsk::new(RetainedHash::None, &CONFIGURED).unwrap();
    let mut other = CONFIGURED;
    other[47] ^= 1;
    assert_ne!(psk, ConfiguredPsk::new(RetainedHash::None, &other).unwrap());
    assert_ne!(psk, ConfiguredPsk::new(RetainedHash::None, &CONFIGURED[..32]).unwrap());
    assert_ne!(psk, ConfiguredPsk::new(RetainedHash::Sha384, &CONFIGURED).unwrap());
}

fn any_psk() -> impl Strategy<Value = ConfiguredPsk> {
    let bytes = proptest::collection::vec(any::<u8>(), 48);
    (bytes, 0..4_usize).prop_map(|(bytes, kind)| {
        let (hash, len) = [
            (RetainedHash::None, 32),
            (RetainedHash::None, 48),
            (RetainedHash::Sha256, 32),
            (RetainedHash::Sha384, 48),
        ][kind];
        ConfiguredPsk::new(hash, &bytes[..len]).unwrap()
    })
}

proptest! {
    #[test]
    fn parse_inverts_to_interchange(psk in any_psk()) {
        prop_assert_eq!(ConfiguredPsk::parse(&psk.to_interchange()), Ok(psk));
    }

    #[test]
    fn any_text_parses_or_fails(text in any::<String>()) {
        let _ = ConfiguredPsk::parse(&text);
    }

    #[test]
    fn any_fields_parse_or_fail(text in "NVMeTLSkey-[0-2]:0[0-3]:([A-Za-z0-9+/]{48}|[A-Za-z0-9+/]{70}==|.{0,80}):?.{0,2}") {
        if let Ok(psk) = ConfiguredPsk::parse(&text) {
            prop_assert_eq!(&*psk.to_interchange(), &text);
        }
    }

    #[test]
    fn a_key_with_one_other_character_is_refused(psk in any_psk(), index: prop::sample::Index, other: char) {
        let text = psk.to_interchange();
        let mut characters: Vec<char> = text.chars().collect();
        let index = index.index(characters.len());
        prop_assume!(characters[index] != other);
        characters[index] = other;
        let text: String = characters.into_iter().collect();
        // Another digit of the hash may leave a valid key.
        prop_assert!(index == 14 || ConfiguredPsk::parse(&text).is_err());
    }

    #[test]
    fn messages_show_nothing_of_the_key(psk in any_psk(), cut in 17..60_usize) {
        let text = psk.to_interchange();
        let field = &text[16..text.len() - 1];
        for text in [&text[..cut], &text[16..], &text.replace(':', "-"), &text.replacen(':', "", 1)] {
            let error = ConfiguredPsk::parse(text).unwrap_err();
            let message = format!("{error} {error:?}");
            prop_assert!(!field.as_bytes().windows(8).any(|part| message.contains(std::str::from_utf8(part).unwrap())));
        }
    }
}
