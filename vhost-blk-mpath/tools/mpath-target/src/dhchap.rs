//! The secrets of in-band authentication (DH-HMAC-CHAP), the same for every host.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nvme_auth::{DhGroup, Hash, RANDOM_BYTES, Secret, SecretError};
use nvme_tcp::Authentication;

/// The groups that a target allows, in the order in which it chooses. The first is fast and has a key exchange.
const GROUPS: [DhGroup; 6] =
    [DhGroup::Ffdhe2048, DhGroup::Ffdhe3072, DhGroup::Ffdhe4096, DhGroup::Ffdhe6144, DhGroup::Ffdhe8192, DhGroup::Null];

/// Why a file of a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    #[error("cannot read the secret file {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("secret file {}: {source}", path.display())]
    Invalid { path: PathBuf, source: SecretError },
}

/// Reads a secret (`DHHC-1:…`).
pub fn read_secret(path: &Path) -> Result<Secret, SecretFileError> {
    let text = std::fs::read_to_string(path).map_err(|source| SecretFileError::Read { path: path.into(), source })?;
    Secret::parse(text.trim_ascii_end()).map_err(|source| SecretFileError::Invalid { path: path.into(), source })
}

/// The authentication of every host with this secret. All hashes and groups are allowed.
pub fn authentication(host_secret: Secret, controller_secret: Option<Secret>) -> Authentication {
    let groups = GROUPS.to_vec();
    Authentication { groups, ..Authentication::new(host_secret, controller_secret, Arc::new(fill_random)) }
}

fn fill_random(bytes: &mut [u8; RANDOM_BYTES]) {
    openssl::rand::rand_priv_bytes(bytes).expect("OpenSSL has random numbers");
}

/// Parses `sha256`, `sha384` or `sha512`.
pub(crate) fn parse_hash(text: &str) -> Result<Hash, String> {
    match text {
        "sha256" => Ok(Hash::Sha256),
        "sha384" => Ok(Hash::Sha384),
        "sha512" => Ok(Hash::Sha512),
        _ => Err("give sha256, sha384 or sha512".into()),
    }
}

/// Parses `null` or `ffdhe2048` to `ffdhe8192`.
pub(crate) fn parse_group(text: &str) -> Result<DhGroup, String> {
    let known = DhGroup::ALL.into_iter().find(|group| group.to_string() == text);
    known.ok_or_else(|| "give null, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144 or ffdhe8192".into())
}
