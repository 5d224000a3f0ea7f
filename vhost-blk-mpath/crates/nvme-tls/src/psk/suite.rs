//! The cipher suites of NVMe/TCP.

use openssl::hash::MessageDigest;

/// A TLS 1.3 cipher suite of NVMe/TCP. Each PSK belongs to one, by its length.
///
/// Source: NVM Express TCP Transport Specification 3.6.1.1 and 3.6.1.3 (hash specifiers of PSK identities).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Suite {
    /// `TLS_AES_128_GCM_SHA256`, hash specifier `01`, with PSKs of 32 bytes.
    Aes128GcmSha256,
    /// `TLS_AES_256_GCM_SHA384`, hash specifier `02`, with PSKs of 48 bytes.
    Aes256GcmSha384,
}

impl Suite {
    /// The suite for PSKs of `bytes` bytes: 32 or 48. Other lengths have none.
    ///
    /// libnvme (`default_hmac`) and SPDK (`nvme_tcp_generate_tls_credentials`) choose the suite by the length too.
    #[must_use]
    pub fn of_psk_len(bytes: usize) -> Option<Self> {
        [Self::Aes128GcmSha256, Self::Aes256GcmSha384].into_iter().find(|suite| suite.psk_len() == bytes)
    }

    /// Bytes of a PSK, and of the output of the suite's hash function: 32 or 48.
    #[must_use]
    pub fn psk_len(self) -> usize {
        match self {
            Self::Aes128GcmSha256 => 32,
            Self::Aes256GcmSha384 => 48,
        }
    }

    /// The hash specifier in PSK identities: `01` or `02`.
    #[must_use]
    pub fn hash_specifier(self) -> &'static str {
        match self {
            Self::Aes128GcmSha256 => "01",
            Self::Aes256GcmSha384 => "02",
        }
    }

    /// The name in RFC 8446, as OpenSSL's `SSL_CTX_set_ciphersuites` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128GcmSha256 => "TLS_AES_128_GCM_SHA256",
            Self::Aes256GcmSha384 => "TLS_AES_256_GCM_SHA384",
        }
    }

    /// The two bytes of the suite in TLS messages (RFC 8446 B.4).
    #[must_use]
    pub fn code(self) -> [u8; 2] {
        match self {
            Self::Aes128GcmSha256 => [0x13, 0x01],
            Self::Aes256GcmSha384 => [0x13, 0x02],
        }
    }

    /// The suite's hash function.
    pub(super) fn hash(self) -> MessageDigest {
        match self {
            Self::Aes128GcmSha256 => MessageDigest::sha256(),
            Self::Aes256GcmSha384 => MessageDigest::sha384(),
        }
    }
}

/// The name in RFC 8446.
impl std::fmt::Display for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
