use super::vectors::{CONFIGURED, HOSTNQN, OLD_LIBNVME, OLD_LIBNVME_OLD_OPENSSL, SPECIFICATION, SUBNQN, Vector};
use super::*;

fn check(derivation: Derivation, vectors: &[Vector]) {
    let (host, sub) = (nqn(HOSTNQN), nqn(SUBNQN));
    for vector in vectors {
        let psk = ConfiguredPsk::new(vector.hash, &CONFIGURED[..vector.bytes]).unwrap();
        let retained = psk.retained(&host, derivation).unwrap();
        assert_eq!(hex(retained.secret().expose()), vector.retained);
        let candidate = retained.candidate(vector.version, derivation, &host, &sub).unwrap();
        let specifier = if vector.bytes == 32 { "01" } else { "02" };
        let identity = format!("NVMe{}R{specifier} {HOSTNQN} {SUBNQN} {}", vector.version, vector.digest);
        assert_eq!(candidate.identity(), identity.trim_end());
        assert_eq!(hex(candidate.tls_psk().expose()), vector.tls_psk);
        assert_eq!((candidate.suite(), candidate.derivation()), (psk.suite(), derivation));
        assert!(candidates(&psk, &host, &sub).unwrap().contains(&candidate));
    }
}

#[test]
fn keys_of_the_specification() {
    check(Derivation::Specification, SPECIFICATION);
}

#[test]
fn keys_of_old_libnvme() {
    check(Derivation::OldLibnvme, OLD_LIBNVME);
}

#[test]
fn keys_of_old_libnvme_with_old_openssl() {
    check(Derivation::OldLibnvmeOldOpenssl, OLD_LIBNVME_OLD_OPENSSL);
}

#[test]
fn candidates_begin_with_the_specification_and_with_version_1() {
    let psk = ConfiguredPsk::new(RetainedHash::Sha384, &CONFIGURED).unwrap();
    let list = candidates(&psk, &nqn(HOSTNQN), &nqn(SUBNQN)).unwrap();
    let lines: Vec<String> = list.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "identity version 1, derived as in the specification",
            "identity version 0, derived as in the specification",
            "identity version 1, derived as by libnvme before 1.16",
            "identity version 0, derived as by libnvme before 1.16",
            "identity version 1, derived as by libnvme before 1.16 with OpenSSL before 3.0.14",
            "identity version 0, derived as by libnvme before 1.16 with OpenSSL before 3.0.14",
        ]
    );
}

#[test]
fn all_candidates_have_different_keys() {
    for hash in [RetainedHash::None, RetainedHash::Sha256] {
        let psk = ConfiguredPsk::new(hash, &CONFIGURED[..32]).unwrap();
        let list = candidates(&psk, &nqn(HOSTNQN), &nqn(SUBNQN)).unwrap();
        for (index, candidate) in list.iter().enumerate() {
            assert!(list[..index].iter().all(|earlier| earlier.tls_psk() != candidate.tls_psk()));
        }
    }
}

/// The context of HKDF-Expand-Label has at most 255 bytes.
#[test]
fn a_long_identity_of_version_0_has_no_key_by_the_specification() {
    let psk = ConfiguredPsk::new(RetainedHash::Sha256, &CONFIGURED[..32]).unwrap();
    let specification = |sub_bytes: usize| {
        let (host, sub) = (nqn(&"h".repeat(223)), nqn(&"s".repeat(sub_bytes)));
        let retained = psk.retained(&host, Derivation::Specification).unwrap();
        (retained.candidate(IdentityVersion::V0, Derivation::Specification, &host, &sub), candidates(&psk, &host, &sub))
    };
    let (fits, list) = specification(22);
    assert_eq!((fits.unwrap().identity().len(), list.unwrap().len()), (255, 6));
    let (too_long, list) = specification(23);
    assert!(matches!(too_long, Err(DeriveError::ContextLength { bytes: 256 })));
    assert_eq!(list.unwrap().len(), 5);
    let longest = specification(223).1.unwrap();
    assert_eq!(longest.iter().map(|candidate| candidate.identity().len()).max(), Some(9 + 223 + 1 + 223 + 1 + 44));
}

#[test]
fn debug_output_has_no_bytes_of_the_keys() {
    let psk = ConfiguredPsk::new(RetainedHash::Sha256, &CONFIGURED[..32]).unwrap();
    let retained = psk.retained(&nqn(HOSTNQN), Derivation::Specification).unwrap();
    assert_eq!(
        format!("{retained:?}"),
        "InputPsk { origin: Retained, suite: Aes128GcmSha256, secret: Secret(32 bytes) }"
    );
    let candidate =
        retained.candidate(IdentityVersion::V0, Derivation::Specification, &nqn(HOSTNQN), &nqn(SUBNQN)).unwrap();
    assert!(format!("{candidate:?}").contains("tls_psk: Secret(32 bytes)"));
}

#[test]
fn suites_have_the_names_and_codes_of_rfc_8446() {
    assert_eq!(Suite::Aes128GcmSha256.to_string(), "TLS_AES_128_GCM_SHA256");
    assert_eq!(Suite::Aes128GcmSha256.code(), [0x13, 1]);
    assert_eq!(Suite::Aes256GcmSha384.to_string(), "TLS_AES_256_GCM_SHA384");
    assert_eq!(Suite::Aes256GcmSha384.code(), [0x13, 2]);
    assert_eq!(Suite::of_psk_len(64), None);
}
