//! Diffie-Hellman groups: none, and the FFDHE groups of RFC 7919.

use openssl::bn::{BigNum, BigNumRef};
use openssl::error::ErrorStack;

/// A Diffie-Hellman group: `DHgID` of messages (Base 8.3.4.5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DhGroup {
    /// 00h: no Diffie-Hellman exchange. The transaction has no session key.
    Null,
    /// 01h: FFDHE2048.
    Ffdhe2048,
    /// 02h: FFDHE3072.
    Ffdhe3072,
    /// 03h: FFDHE4096.
    Ffdhe4096,
    /// 04h: FFDHE6144.
    Ffdhe6144,
    /// 05h: FFDHE8192.
    Ffdhe8192,
}

impl DhGroup {
    /// Every group, the weakest first.
    pub const ALL: [Self; 6] =
        [Self::Null, Self::Ffdhe2048, Self::Ffdhe3072, Self::Ffdhe4096, Self::Ffdhe6144, Self::Ffdhe8192];

    /// The identifier on the wire.
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 1,
            Self::Ffdhe3072 => 2,
            Self::Ffdhe4096 => 3,
            Self::Ffdhe6144 => 4,
            Self::Ffdhe8192 => 5,
        }
    }

    /// The group of an identifier. `None` for an unknown identifier.
    #[must_use]
    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::Null),
            1 => Some(Self::Ffdhe2048),
            2 => Some(Self::Ffdhe3072),
            3 => Some(Self::Ffdhe4096),
            4 => Some(Self::Ffdhe6144),
            5 => Some(Self::Ffdhe8192),
            _ => None,
        }
    }

    /// Bytes of the prime and of a public value: 256 to 1024, and 0 for [`DhGroup::Null`].
    #[must_use]
    pub const fn bytes(self) -> usize {
        (self.bits() / 8) as usize
    }

    /// Bits of the prime.
    pub(crate) const fn bits(self) -> u16 {
        self.parameters().0
    }

    /// Bits of the prime, and the X of its formula (RFC 7919, appendix A).
    const fn parameters(self) -> (u16, u32) {
        match self {
            Self::Null => (0, 0),
            Self::Ffdhe2048 => (2048, 560_316),
            Self::Ffdhe3072 => (3072, 2_625_351),
            Self::Ffdhe4096 => (4096, 5_736_041),
            Self::Ffdhe6144 => (6144, 15_705_020),
            Self::Ffdhe8192 => (8192, 10_965_728),
        }
    }

    /// The prime p of a group other than [`DhGroup::Null`]. Its generator is 2.
    ///
    /// p = 2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1, where b is the number of bits.
    pub(crate) fn prime(self) -> Result<BigNum, ErrorStack> {
        let (bits, x) = self.parameters();
        let bits = i32::from(bits);
        let mut middle = shifted(&*BigNum::from_hex_str(E_DIGITS)?, bits - E_BITS)?;
        middle.add_word(x)?;
        let one = BigNum::from_u32(1)?;
        let top = &*shifted(&one, bits)? - &*shifted(&one, bits - 64)?;
        let mut prime = &*top + &*shifted(&middle, 64)?;
        prime.sub_word(1)?;
        Ok(prime)
    }
}

/// `number` shifted to the left, or to the right if `bits` is negative.
fn shifted(number: &BigNumRef, bits: i32) -> Result<BigNum, ErrorStack> {
    let mut result = BigNum::new()?;
    if bits < 0 {
        result.rshift(number, -bits)?;
    } else {
        result.lshift(number, bits)?;
    }
    Ok(result)
}

impl std::fmt::Display for DhGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.parameters() {
            (0, _) => f.write_str("null"),
            (bits, _) => write!(f, "ffdhe{bits}"),
        }
    }
}

/// Bits of the group for which [`E_DIGITS`] is long enough. Shorter groups use its first digits.
const E_BITS: i32 = 8192;

/// floor(2^8062 e), where e is the base of the natural logarithm.
const E_DIGITS: &str = concat!(
    "ADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF97D2FE363630C75D8F681",
    "B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935984F0C70E0E68B77E2A689DA",
    "F3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324FB61D108A94BB2C8E3FBB96ADAB760D7F4681D4F42A3DE39",
    "4DF4AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F619172FE9CE98583FF8E4F1232EEF28183",
    "C3FE3B1B4C6FAD733BB5FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA886B4238611FCFDCDE355B3B6519035BBC34",
    "F4DEF99C023861B46FC9D6E6C9077AD91D2691F7F7EE598CB0FAC186D91CAEFE130985139270B4130C93BC437944F4FD4452",
    "E2D74DD364F2E21E71F54BFF5CAE82AB9C9DF69EE86D2BC522363A0DABC521979B0DEADA1DBF9A42D5C4484E0ABCD06BFA53",
    "DDEF3C1B20EE3FD59D7C25E41D2B669E1EF16E6F52C3164DF4FB7930E9E4E58857B6AC7D5F42D69F6D187763CF1D55034004",
    "87F55BA57E31CC7A7135C886EFB4318AED6A1E012D9E6832A907600A918130C46DC778F971AD0038092999A333CB8B7A1A1D",
    "B93D7140003C2A4ECEA9F98D0ACC0A8291CDCEC97DCF8EC9B55A7F88A46B4DB5A851F44182E1C68A007E5E0DD9020BFD64B6",
    "45036C7A4E677D2C38532A3A23BA4442CAF53EA63BB454329B7624C8917BDD64B1C0FD4CB38E8C334C701C3ACDAD0657FCCF",
    "EC719B1F5C3E4E46041F388147FB4CFDB477A52471F7A9A96910B855322EDB6340D8A00EF092350511E30ABEC1FFF9E3A26E",
    "7FB29F8C183023C3587E38DA0077D9B4763E4E4B94B2BBC194C6651E77CAF992EEAAC0232A281BF6B3A739C1226116820AE8",
    "DB5847A67CBEF9C9091B462D538CD72B03746AE77F5E62292C311562A846505DC82DB854338AE49F5235C95B91178CCF2DD5",
    "CACEF403EC9D1810C6272B045B3B71F9DC6B80D63FDD4A8E9ADB1E6962A69526D43161C1A41D570D7938DAD4A40E329CCFF4",
    "6AAA36AD004CF600C8381E425A31D951AE64FDB23FCEC9509D43687FEB69EDD1CC5E0B8CC3BDF64B10EF86B63142A3AB8829",
    "555B2F747C932665CB2C0F1CC01BD70229388839D2AF05E454504AC78B7582822846C0BA35C35F5C59160CC046FD8251541F",
    "C68C9C86B022BB7099876A460E7451A8A93109703FEE1C217E6C3826E52C51AA691E0E423CFC99E9E31650C1217B624816CD",
    "AD9A95F9D5B8019488D9C0A0A1FE3075A577E23183F81D4A3F2FA4571EFC8CE0BA8A4FE8B6855DFE72B0A66EDED2FBABFBE5",
    "8A30FAFABE1C5D71A87E2F741EF8C1FE86FEA6BBFDE530677F0D97D11D49F7A8443D0822E506A9F4614E011E2A94838FF88C",
    "D68C8BB7C51EEF6D",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::hex;

    /// SHA-256 of each prime as OpenSSL 3.0 has it: `openssl genpkey -algorithm DH -pkeyopt group:ffdhe2048`, and so on.
    const PRIMES: [(DhGroup, &str); 5] = [
        (DhGroup::Ffdhe2048, "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966"),
        (DhGroup::Ffdhe3072, "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17"),
        (DhGroup::Ffdhe4096, "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e"),
        (DhGroup::Ffdhe6144, "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7"),
        (DhGroup::Ffdhe8192, "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833"),
    ];

    #[test]
    fn primes_are_those_of_openssl() {
        for (group, sha256) in PRIMES {
            let prime = group.prime().unwrap().to_vec();
            assert_eq!(prime.len(), group.bytes());
            assert_eq!(crate::Hash::Sha256.digest(&prime).unwrap().to_vec(), hex(sha256), "{group}");
        }
    }

    #[test]
    fn ids_and_names() {
        for group in DhGroup::ALL {
            assert_eq!(DhGroup::from_id(group.id()), Some(group));
        }
        assert_eq!(DhGroup::from_id(6), None);
        assert_eq!((DhGroup::Null.bytes(), DhGroup::Ffdhe8192.bytes()), (0, 1024));
        assert_eq!((DhGroup::Null.to_string(), DhGroup::Ffdhe3072.to_string()), ("null".into(), "ffdhe3072".into()));
    }
}
