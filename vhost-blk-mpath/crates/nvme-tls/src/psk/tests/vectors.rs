//! Keys and identities as releases of libnvme derive them from the configured PSKs of libnvme's `test/psk.c`.
//!
//! The PSK digests of hash 01 and 02 in [`SPECIFICATION`] and [`OLD_LIBNVME`] are those of `test/psk.c` in libnvme 1.16.2. All other
//! values come from runs of the named releases. `nvme check-tls-key` of Debian 13 (nvme-cli 2.13-2, libnvme 1.13-2) printed the
//! digests of hash 00 with 32 bytes, 01 and 02 in [`OLD_LIBNVME`] with its OpenSSL 3.5.9, and those in
//! [`OLD_LIBNVME_OLD_OPENSSL`] with OpenSSL 3.0.13-0ubuntu3 of Ubuntu 24.04.

use crate::psk::{IdentityVersion, RetainedHash};

pub(super) const HOSTNQN: &str = "nqn.psk-test-host";
pub(super) const SUBNQN: &str = "nqn.psk-test-subsys";

/// The configured PSK of 48 bytes. Its first 32 bytes are that of 32 bytes.
pub(super) const CONFIGURED: [u8; 48] = [
    0x55, 0x12, 0xdb, 0xb6, 0x73, 0x7d, 0x01, 0x06, 0xf6, 0x59, 0x75, 0xb7, 0x73, 0xdf, 0xb0, 0x11, 0xff, 0xc3, 0x44,
    0xbc, 0xf4, 0x42, 0xe2, 0xdd, 0x6d, 0x8b, 0xc4, 0x87, 0x0b, 0x5d, 0x5b, 0x03, 0xff, 0xc3, 0x44, 0xbc, 0xf4, 0x42,
    0xe2, 0xdd, 0x6d, 0x8b, 0xc4, 0x87, 0x0b, 0x5d, 0x5b, 0x03,
];

/// What a release derives from the first `bytes` of [`CONFIGURED`].
pub(super) struct Vector {
    pub(super) hash: RetainedHash,
    pub(super) bytes: usize,
    pub(super) version: IdentityVersion,
    /// Base64. Empty with version 0.
    pub(super) digest: &'static str,
    /// Hexadecimal, as is the next field.
    pub(super) retained: &'static str,
    pub(super) tls_psk: &'static str,
}

/// libnvme 1.16.2, `derive_retained_key` and `derive_nvme_keys`. OpenSSL 3.0.13 and 3.0.22 agree.
/// SPDK derives the same keys of hash 01 and 02 for identities of version 0.
pub(super) const SPECIFICATION: &[Vector] = &[
    Vector {
        hash: RetainedHash::None,
        bytes: 32,
        version: IdentityVersion::V0,
        digest: "",
        retained: "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03",
        tls_psk: "ec85300ba827726bd3bc4fc07f3a34aec5fe7c8ccac05fefc2f021c74e0df9ef",
    },
    Vector {
        hash: RetainedHash::None,
        bytes: 32,
        version: IdentityVersion::V1,
        digest: "quJVUJjp/BImWR0UQay/MjSfEgyAr6TyBOWybS/B404=",
        retained: "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03",
        tls_psk: "a45d08ee4639c7570729bb3e57e905e466a49a15ece5401af906830c4d3bdb0b",
    },
    Vector {
        hash: RetainedHash::None,
        bytes: 48,
        version: IdentityVersion::V0,
        digest: "",
        retained: "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03ffc344bcf442e2dd6d8bc4870b5d5b03",
        tls_psk: "b5dd464067a9378ba2226d71f005d7ac90ed8696e4b2142084384365597201d33ba26f8aeeb529574d4267bd294a828e",
    },
    Vector {
        hash: RetainedHash::None,
        bytes: 48,
        version: IdentityVersion::V1,
        digest: "dyoPfSR5TBRaPMI5/FXUlJv2XMDtmQ7Q9Xrj89aBKbyRYkQeT5V1wNvIpnMDRTQW",
        retained: "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03ffc344bcf442e2dd6d8bc4870b5d5b03",
        tls_psk: "1569317890995e207ab4cf148bc53470561e148030cb019b1d87fb4bc5794a791ed5ee68676c952ce5f11f3786e900d4",
    },
    Vector {
        hash: RetainedHash::Sha256,
        bytes: 32,
        version: IdentityVersion::V0,
        digest: "",
        retained: "073311dec37e219ff3acd43f130130c5bdd443c066e1cc3424e49030234ff7d5",
        tls_psk: "05c6503551ad136e6ee32e6eeb3f6d500b69701d84ec71e328f65c7f51566f68",
    },
    Vector {
        hash: RetainedHash::Sha256,
        bytes: 32,
        version: IdentityVersion::V1,
        digest: "iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=",
        retained: "073311dec37e219ff3acd43f130130c5bdd443c066e1cc3424e49030234ff7d5",
        tls_psk: "8fc3c0badfd4c0c66fa3ca33aadd0314f85536cc9bc47338b60f3e6e563786ca",
    },
    Vector {
        hash: RetainedHash::Sha384,
        bytes: 48,
        version: IdentityVersion::V0,
        digest: "",
        retained: "73973a1b51a9acdde29a0610ac6a3ef852cf45936cca6830a661d18f68502f1a4c7a8ecb37524e0b1f7087cb4d680ad9",
        tls_psk: "f42ba63824cdfe421914c582921f85b5b5b7e2d4df084caeedc9be20b212e8bb0fe8a23e9d59a1c8fc6449da4970a78d",
    },
    Vector {
        hash: RetainedHash::Sha384,
        bytes: 48,
        version: IdentityVersion::V1,
        digest: "QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a",
        retained: "73973a1b51a9acdde29a0610ac6a3ef852cf45936cca6830a661d18f68502f1a4c7a8ecb37524e0b1f7087cb4d680ad9",
        tls_psk: "a2b2f943f479fc682555cec89857c80ed004ce92f32a973d5764155bb7e36b17a85368a0666d250afac9282dda2e62ca",
    },
];

/// libnvme 1.13 and 1.15 with OpenSSL 3.0.22, and the functions `…_compat` of libnvme 1.16.2.
pub(super) const OLD_LIBNVME: &[Vector] = &[
    Vector {
        hash: RetainedHash::None,
        bytes: 32,
        version: IdentityVersion::V0,
        digest: "",
        retained: "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03",
        tls_psk: "e2b16189378b34adba9fec995ab479040cedec0bc7c6b47728ee4d8de6ff52ba",
    },
    Vector {
        hash: RetainedHash::None,
        bytes: 32,
        version: IdentityVersion::V1,
        digest: "quJVUJjp/BImWR0UQay/MjSfEgyAr6TyBOWybS/B404=",
        retained: "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03",
        tls_psk: "d50f6d3dd79345b6e8217744524df5ac0dc66964ff70cc5fd18e1b9d57ce7fcf",
    },
    Vector {
        hash: RetainedHash::None,
        bytes: 48,
        version: IdentityVersion::V0,
        digest: "",
        retained: "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03ffc344bcf442e2dd6d8bc4870b5d5b03",
        tls_psk: "9cb989c1d40fdcdc1bb729d6691901bfcd0b310f060f558d4a63c7afc2a0923f2d0610073fded349d25d6b3f91980826",
    },
    Vector {
        hash: RetainedHash::None,
        bytes: 48,
        version: IdentityVersion::V1,
        digest: "dyoPfSR5TBRaPMI5/FXUlJv2XMDtmQ7Q9Xrj89aBKbyRYkQeT5V1wNvIpnMDRTQW",
        retained: "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03ffc344bcf442e2dd6d8bc4870b5d5b03",
        tls_psk: "f6259eaeaab509d2e42bc494098bd1ccc4334b2528a1a34ea95fbe27e3fa75e3422d260a299110afa42170521b02d689",
    },
    Vector {
        hash: RetainedHash::Sha256,
        bytes: 32,
        version: IdentityVersion::V0,
        digest: "",
        retained: "ad4cdadfcbaf4e353fcbd09aac891c4d75c5300fe5ee7bb04ae87726a312eddc",
        tls_psk: "09fb1983ac6d6d0353e7cae4f23daddd651c367fa347c59d9cf6936f5a83eafb",
    },
    Vector {
        hash: RetainedHash::Sha256,
        bytes: 32,
        version: IdentityVersion::V1,
        digest: "66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=",
        retained: "ad4cdadfcbaf4e353fcbd09aac891c4d75c5300fe5ee7bb04ae87726a312eddc",
        tls_psk: "b9f5ab2a41ba6e72a23a12066302a2f775fa6c0942c8e0b18ca8ac07edf305e2",
    },
    Vector {
        hash: RetainedHash::Sha384,
        bytes: 48,
        version: IdentityVersion::V0,
        digest: "",
        retained: "12d2452bc4783f50286bf940ad1caa05a304065e379024d9278ca7c9d8a42400c47029f198bfcdf5f14c07cb04eb7306",
        tls_psk: "2ee4754186a625b28a3936ef4a40d839c3ad958b2e017562ee07e2501f172ce999dc9c29033ea7ee33f814f192c13f47",
    },
    Vector {
        hash: RetainedHash::Sha384,
        bytes: 48,
        version: IdentityVersion::V1,
        digest: "RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz",
        retained: "12d2452bc4783f50286bf940ad1caa05a304065e379024d9278ca7c9d8a42400c47029f198bfcdf5f14c07cb04eb7306",
        tls_psk: "fcefe2e2a2e682b1447dcabf1ec268f78f08c63cd075753abcc8bda2c5c34d48d3014aa8d76ad80107e4f5c9f27e2149",
    },
];

/// libnvme 1.13 and 1.15 with OpenSSL 3.0.13.
/// libnvme 1.6 and 1.8 agree for hash 01 and 02 and identities of version 0.
pub(super) const OLD_LIBNVME_OLD_OPENSSL: &[Vector] = &[
    Vector {
        hash: RetainedHash::None,
        bytes: 32,
        version: IdentityVersion::V0,
        digest: "",
        retained: "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03",
        tls_psk: "16d719d9e86368c51e623a88159962afe3800c91fe3ba77f63cbac5cc46c5d07",
    },
    Vector {
        hash: RetainedHash::None,
        bytes: 32,
        version: IdentityVersion::V1,
        digest: "quJVUJjp/BImWR0UQay/MjSfEgyAr6TyBOWybS/B404=",
        retained: "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03",
        tls_psk: "90782cc416c103d0bbd411d047219868fc293264dfd94907b40234e85ef7e869",
    },
    Vector {
        hash: RetainedHash::None,
        bytes: 48,
        version: IdentityVersion::V0,
        digest: "",
        retained: "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03ffc344bcf442e2dd6d8bc4870b5d5b03",
        tls_psk: "3c1a1b15addeb902ac3c0e68633aa9326843fb0777ceb1fd65c5174ada0cd7e0513548473934d42d18344d6bcd7b72b8",
    },
    Vector {
        hash: RetainedHash::None,
        bytes: 48,
        version: IdentityVersion::V1,
        digest: "dyoPfSR5TBRaPMI5/FXUlJv2XMDtmQ7Q9Xrj89aBKbyRYkQeT5V1wNvIpnMDRTQW",
        retained: "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03ffc344bcf442e2dd6d8bc4870b5d5b03",
        tls_psk: "2f833d9a6ebdbaaef41bddd792a5e6fb03cf7c840692e7031e9bd33f46a457168476dfdbb04fd3cccafc27414d61370b",
    },
    Vector {
        hash: RetainedHash::Sha256,
        bytes: 32,
        version: IdentityVersion::V0,
        digest: "",
        retained: "2b972fc3cf9597f8d053c73ff6556e1fa0c016bfeaa578d8afe9836cb933d79a",
        tls_psk: "c45ffd126b73c01299c932a315772290f626038b92ca2ff01248de7807a160d8",
    },
    Vector {
        hash: RetainedHash::Sha256,
        bytes: 32,
        version: IdentityVersion::V1,
        digest: "mJUDthe4jhFVFSnaBaydV/EHJK6OvIuw8xap5IkTnG0=",
        retained: "2b972fc3cf9597f8d053c73ff6556e1fa0c016bfeaa578d8afe9836cb933d79a",
        tls_psk: "1d822f4a3b1f3da94354bc23c899a5dc8c1db901d0e0604ec1ac5fb9476b4e80",
    },
    Vector {
        hash: RetainedHash::Sha384,
        bytes: 48,
        version: IdentityVersion::V0,
        digest: "",
        retained: "b5d47e8a741d003b2eeb7c8665d62b6cc7a30b859ab051a4f339c044e31750f0054940e22d1a0b6e479a494556582fc1",
        tls_psk: "10a715cf116ba0c3068b2ba7278e7678bebdcc77fcb4c0b7b509dea46395881d6f90f408517c2c69e4f771f04f0fbcd1",
    },
    Vector {
        hash: RetainedHash::Sha384,
        bytes: 48,
        version: IdentityVersion::V1,
        digest: "J6B5sIVRCNLtZutDfmNnfPeqOFbnewwc8KEkhcOcO0dAWfdJYe/DrMyIC7znu00M",
        retained: "b5d47e8a741d003b2eeb7c8665d62b6cc7a30b859ab051a4f339c044e31750f0054940e22d1a0b6e479a494556582fc1",
        tls_psk: "f5887cac40cafd177fdd53039d179a125800103f922e3d99e5847231b98b023cd663a97f717d05326e3933255db96100",
    },
];
