//! Both sides against each other, with bytes cut anywhere.

use std::sync::Arc;

use nvme_tcp::wire::Nqn;

use crate::psk::{Candidate, ConfiguredPsk, IdentityVersion, RetainedHash, Suite, candidates};
use crate::{KeyLookup, Session, TlsError};

const SUITES: [Suite; 2] = [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384];

/// The key of a subsystem whose name is `name` for a host, derived as in the specification.
fn key(name: &str, byte: u8, suite: Suite) -> Candidate {
    let hash = match suite {
        Suite::Aes128GcmSha256 => RetainedHash::Sha256,
        Suite::Aes256GcmSha384 => RetainedHash::Sha384,
    };
    let psk = ConfiguredPsk::new(hash, &vec![byte; suite.psk_len()]).unwrap();
    let (hostnqn, subnqn) = (Nqn::new("nqn.host").unwrap(), Nqn::new(name).unwrap());
    candidates(&psk, &hostnqn, &subnqn).unwrap().into_iter().find(|key| key.version() == IdentityVersion::V0).unwrap()
}

/// The keys of a controller, by name, byte and suite.
struct Keys(Vec<(&'static str, u8, Suite)>);

impl KeyLookup for Keys {
    fn find(&self, identity: &str) -> Option<Candidate> {
        let keys = self.0.iter().map(|(name, byte, suite)| key(name, *byte, *suite));
        keys.into_iter().find(|key| key.identity() == identity)
    }
}

/// Moves up to `cut` bytes at a time until neither side has bytes.
fn exchange(
    host: &mut Session,
    controller: &mut Session,
    cut: usize,
) -> (Result<bool, TlsError>, Result<bool, TlsError>) {
    let (mut of_host, mut of_controller) = (host.handshake(), Ok(false));
    loop {
        let to_controller: Vec<u8> = take(host, cut);
        if !to_controller.is_empty() {
            controller.receive(&to_controller);
            if of_controller.is_ok() {
                of_controller = controller.handshake();
            }
        }
        let to_host = take(controller, cut);
        if !to_host.is_empty() {
            host.receive(&to_host);
            if of_host.is_ok() {
                of_host = host.handshake();
            }
        }
        if to_controller.is_empty() && to_host.is_empty() {
            return (of_host, of_controller);
        }
    }
}

fn take(session: &mut Session, cut: usize) -> Vec<u8> {
    let pending = session.pending();
    let bytes = pending.len().min(cut);
    pending.drain(..bytes).collect()
}

fn pair(offered: Candidate, known: Vec<(&'static str, u8, Suite)>) -> (Session, Session) {
    (Session::host(offered).unwrap(), Session::controller(Arc::new(Keys(known))).unwrap())
}

fn connected(suite: Suite, cut: usize) -> (Session, Session) {
    let (mut host, mut controller) = pair(key("a", 7, suite), vec![("a", 7, suite)]);
    let done = exchange(&mut host, &mut controller, cut);
    assert!(matches!(done, (Ok(true), Ok(true))), "{done:?}");
    (host, controller)
}

#[test]
fn both_suites_connect_with_bytes_cut_anywhere() {
    for suite in SUITES {
        for cut in [1, 3, 100, usize::MAX] {
            let (mut host, mut controller) = connected(suite, cut);
            assert_eq!((host.suite(), controller.suite()), (Some(suite), Some(suite)));
            let text: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
            for (from, to) in [(0, 1), (1, 0)] {
                let sides = [&mut host, &mut controller];
                let [from, to] = if from < to {
                    sides
                } else {
                    let [host, controller] = sides;
                    [controller, host]
                };
                from.write(&text).unwrap();
                assert!(!from.pending().windows(16).any(|window| window == &text[..16]), "clear text");
                let mut got = Vec::new();
                let mut plain = [0; 5000];
                while !from.pending().is_empty() {
                    let piece = take(from, cut.max(50));
                    to.receive(&piece);
                    while let bytes @ 1.. = to.read(&mut plain).unwrap() {
                        got.extend_from_slice(&plain[..bytes]);
                    }
                }
                assert!(got == text);
            }
        }
    }
}

#[test]
fn a_host_with_several_suites_at_the_controller_gets_that_of_its_key() {
    for suite in SUITES {
        let (mut host, mut controller) =
            pair(key("b", 3, suite), vec![("a", 3, Suite::Aes256GcmSha384), ("b", 3, suite)]);
        let done = exchange(&mut host, &mut controller, usize::MAX);
        assert!(matches!(done, (Ok(true), Ok(true))), "{done:?}");
    }
}

#[test]
fn wrong_keys_and_identities_name_themselves() {
    let suite = Suite::Aes128GcmSha256;
    let (mut host, mut controller) = pair(key("a", 1, suite), vec![("a", 2, suite)]);
    let (of_host, of_controller) = exchange(&mut host, &mut controller, usize::MAX);
    assert!(
        matches!(&of_controller, Err(TlsError::WrongKey { identity }) if identity == "NVMe0R01 nqn.host a"),
        "{of_controller:?}"
    );
    assert!(matches!(of_host, Err(TlsError::Alert { .. })), "{of_host:?}");

    let (mut host, mut controller) = pair(key("a", 1, suite), vec![("b", 1, suite)]);
    let (of_host, of_controller) = exchange(&mut host, &mut controller, usize::MAX);
    assert!(
        matches!(&of_controller, Err(TlsError::UnknownIdentity { identity }) if identity == "NVMe0R01 nqn.host a"),
        "{of_controller:?}"
    );
    assert!(matches!(of_host, Err(TlsError::Alert { .. })), "{of_host:?}");

    let (mut host, mut controller) = pair(key("a", 1, suite), vec![("a", 1, Suite::Aes256GcmSha384)]);
    let (of_host, of_controller) = exchange(&mut host, &mut controller, usize::MAX);
    assert!(matches!(&of_controller, Err(TlsError::UnknownIdentity { .. })), "{of_controller:?}");
    assert!(matches!(of_host, Err(TlsError::Alert { .. })), "{of_host:?}");
}

#[test]
fn clear_text_is_refused() {
    let icreq = {
        let mut icreq = vec![0, 0, 128, 0, 128, 0, 0, 0];
        icreq.resize(128, 0);
        icreq
    };
    let (mut host, mut controller) = pair(key("a", 1, SUITES[0]), vec![]);
    controller.receive(&icreq);
    assert!(matches!(controller.handshake(), Err(TlsError::ClearText)));
    host.handshake().unwrap();
    let icresp = {
        let mut icresp = icreq.clone();
        icresp[0] = 1;
        icresp
    };
    host.receive(&icresp);
    assert!(matches!(host.handshake(), Err(TlsError::ClearText)));
}

#[test]
fn a_changed_record_ends_the_connection() {
    let (mut host, mut controller) = connected(SUITES[1], usize::MAX);
    host.write(b"data").unwrap();
    let mut record = take(&mut host, usize::MAX);
    *record.last_mut().unwrap() ^= 1;
    controller.receive(&record);
    assert!(matches!(controller.read(&mut [0; 10]), Err(TlsError::Protocol(_))));
}

#[test]
fn close_notify_is_the_end() {
    let (mut host, mut controller) = connected(SUITES[0], usize::MAX);
    host.close();
    let alert = take(&mut host, usize::MAX);
    controller.receive(&alert);
    assert!(matches!(controller.read(&mut [0; 10]), Err(TlsError::Closed)));
}

/// A server with a certificate, and without the key.
struct CertificateServer(openssl::ssl::SslStream<crate::pipe::Pipe>);

impl CertificateServer {
    fn new() -> Self {
        use openssl::asn1::Asn1Time;
        use openssl::bn::BigNum;
        use openssl::ec::{EcGroup, EcKey};
        use openssl::hash::MessageDigest;
        use openssl::nid::Nid;
        use openssl::pkey::PKey;
        use openssl::ssl::{Ssl, SslContextBuilder, SslMethod};
        use openssl::x509::{X509Builder, X509NameBuilder};
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
        let mut name = X509NameBuilder::new().unwrap();
        name.append_entry_by_text("CN", "nqn.disk").unwrap();
        let (name, mut certificate) = (name.build(), X509Builder::new().unwrap());
        certificate.set_version(2).unwrap();
        certificate.set_serial_number(&BigNum::from_u32(1).unwrap().to_asn1_integer().unwrap()).unwrap();
        certificate.set_subject_name(&name).unwrap();
        certificate.set_issuer_name(&name).unwrap();
        certificate.set_pubkey(&key).unwrap();
        certificate.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
        certificate.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
        certificate.sign(&key, MessageDigest::sha256()).unwrap();
        let mut context = SslContextBuilder::new(SslMethod::tls_server()).unwrap();
        context.set_certificate(&certificate.build()).unwrap();
        context.set_private_key(&key).unwrap();
        let mut ssl = Ssl::new(&context.build()).unwrap();
        ssl.set_accept_state();
        Self(openssl::ssl::SslStream::new(ssl, crate::pipe::Pipe::default()).unwrap())
    }

    fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.get_mut().receive(bytes);
        let _ = self.0.do_handshake();
        std::mem::take(&mut self.0.get_mut().to_send)
    }
}

#[test]
fn a_certificate_in_place_of_the_key_is_refused() {
    let mut host = Session::host(key("a", 1, SUITES[0])).unwrap();
    let mut server = CertificateServer::new();
    let outcome = loop {
        let outcome = host.handshake();
        if !matches!(outcome, Ok(false)) {
            break outcome;
        }
        let answer = server.answer(&take(&mut host, usize::MAX));
        assert!(!answer.is_empty(), "the server answers");
        host.receive(&answer);
    };
    assert!(matches!(outcome, Err(TlsError::NoPsk)), "{outcome:?}");
}

#[test]
fn a_few_records_without_data_are_fine_and_many_end_the_connection() {
    let (mut host, mut controller) = connected(SUITES[0], usize::MAX);
    let mut plain = [0; 10];
    for _ in 0..3 {
        controller.update_key();
    }
    controller.write(b"data").unwrap();
    host.receive(&take(&mut controller, usize::MAX));
    assert_eq!(host.read(&mut plain).unwrap(), 4);
    for _ in 0..20 {
        controller.update_key();
    }
    host.receive(&take(&mut controller, usize::MAX));
    assert!(matches!(host.read(&mut plain), Err(TlsError::TooManyRecords)));
    assert!(matches!(host.write(b"data"), Err(TlsError::TooManyRecords)), "the error stays");
}
