//! The callbacks by which OpenSSL asks for pre-shared keys. The callbacks of the `openssl` crate know only SHA-256.

use std::os::raw::{c_int, c_uchar};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::nid::Nid;
use openssl::ssl::{Ssl, SslRef};
use openssl_sys as ffi;

use crate::psk::{Candidate, Suite};

/// `TLS1_3_VERSION` of OpenSSL.
const TLS_1_3: c_int = 0x0304;

/// The keys of a controller.
pub trait KeyLookup: Send + Sync {
    /// The key with this identity, if there is one.
    fn find(&self, identity: &str) -> Option<Candidate>;
}

/// What a connection knows of keys. OpenSSL owns this value, and drops it with the connection.
enum Keys {
    Host(Candidate),
    Controller { lookup: Arc<dyn KeyLookup>, offered: Mutex<Option<OfferedIdentity>> },
}

/// The most characters of an identity in an error. The longest valid identity has 521 bytes.
const IDENTITY_CHARS_MAX: usize = 521;

/// An identity that a host has offered.
#[derive(Debug, Clone)]
pub(crate) struct OfferedIdentity {
    pub(crate) identity: String,
    /// Whether the controller has a key with this identity.
    pub(crate) is_known: bool,
}

static KEYS: LazyLock<Index<Ssl, Keys>> =
    LazyLock::new(|| Ssl::new_ex_index().expect("OpenSSL has memory at the start"));

/// Makes the connection offer this key, and no other.
pub(crate) fn offer(ssl: &mut SslRef, key: Candidate) {
    ssl.set_ex_data(*KEYS, Keys::Host(key));
    // SAFETY: the pointer is that of a live connection. The callback has the type that OpenSSL documents.
    unsafe { SSL_set_psk_use_session_callback(ssl.as_ptr(), Some(use_session)) }
}

/// Makes the connection look up the keys that the host offers.
pub(crate) fn look_up(ssl: &mut SslRef, lookup: Arc<dyn KeyLookup>) {
    ssl.set_ex_data(*KEYS, Keys::Controller { lookup, offered: Mutex::new(None) });
    // SAFETY: as above.
    unsafe { SSL_set_psk_find_session_callback(ssl.as_ptr(), Some(find_session)) }
}

/// The last identity that the host has offered to this connection of a controller.
pub(crate) fn offered_identity(ssl: &SslRef) -> Option<OfferedIdentity> {
    match ssl.ex_data(*KEYS) {
        Some(Keys::Controller { offered, .. }) => offered.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        Some(Keys::Host(_)) | None => None,
    }
}

/// Makes the next handshake call send a `KeyUpdate`, which asks for none in return.
#[cfg(test)]
pub(crate) fn update_key(ssl: &SslRef) {
    // SAFETY: the pointer is that of a live connection. 0 is `SSL_KEY_UPDATE_NOT_REQUESTED`.
    assert_eq!(unsafe { SSL_key_update(ssl.as_ptr(), 0) }, 1);
}

/// Gives OpenSSL the key of a host. A key whose hash is not `md` may not be used: then OpenSSL gets none.
unsafe extern "C" fn use_session(
    ssl: *mut ffi::SSL,
    md: *const ffi::EVP_MD,
    id: *mut *const c_uchar,
    id_len: *mut usize,
    session: *mut *mut ffi::SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL passes a live connection, and places for its results.
    unsafe {
        *session = std::ptr::null_mut();
        let Some(Keys::Host(key)) = SslRef::from_ptr(ssl).ex_data(*KEYS) else { return 0 };
        if !md.is_null() && ffi::EVP_MD_get_type(md) != digest_nid(key.suite()) {
            return 1;
        }
        let Ok(made) = new_session(ssl, key) else { return 0 };
        // The key, and so the identity, lives as long as the connection.
        *id = key.identity().as_ptr();
        *id_len = key.identity().len();
        *session = made;
        1
    }
}

/// Looks up a key for a controller. For an unknown identity OpenSSL gets none, and goes on with the next identity.
unsafe extern "C" fn find_session(
    ssl: *mut ffi::SSL,
    identity: *const c_uchar,
    identity_len: usize,
    session: *mut *mut ffi::SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL passes a live connection, the bytes of an identity, and a place for its result.
    unsafe {
        *session = std::ptr::null_mut();
        let Some(Keys::Controller { lookup, offered }) = SslRef::from_ptr(ssl).ex_data(*KEYS) else { return 0 };
        let identity = std::slice::from_raw_parts(identity, identity_len);
        let key = std::str::from_utf8(identity).ok().and_then(|identity| lookup.find(identity));
        let identity = String::from_utf8_lossy(identity).chars().take(IDENTITY_CHARS_MAX).collect();
        *offered.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(OfferedIdentity { identity, is_known: key.is_some() });
        let Some(key) = key else { return 1 };
        let Ok(made) = new_session(ssl, &key) else { return 0 };
        *session = made;
        1
    }
}

/// A session of TLS 1.3 that stands for an external key. The caller passes it on to OpenSSL, which frees it.
///
/// # Safety
///
/// `ssl` is a live connection.
unsafe fn new_session(ssl: *mut ffi::SSL, key: &Candidate) -> Result<*mut ffi::SSL_SESSION, ErrorStack> {
    let secret = key.tls_psk().expose();
    // SAFETY: the key has `len` bytes, and the id of a cipher suite two. All results are checked. A session that is not
    // complete is freed here, and nowhere else.
    unsafe {
        let cipher = SSL_CIPHER_find(ssl, key.suite().code().as_ptr());
        let session = SSL_SESSION_new();
        if cipher.is_null() || session.is_null() {
            ffi::SSL_SESSION_free(session);
            return Err(ErrorStack::get());
        }
        if SSL_SESSION_set1_master_key(session, secret.as_ptr(), secret.len()) != 1
            || SSL_SESSION_set_cipher(session, cipher) != 1
            || SSL_SESSION_set_protocol_version(session, TLS_1_3) != 1
        {
            ffi::SSL_SESSION_free(session);
            return Err(ErrorStack::get());
        }
        Ok(session)
    }
}

fn digest_nid(suite: Suite) -> c_int {
    match suite {
        Suite::Aes128GcmSha256 => Nid::SHA256.as_raw(),
        Suite::Aes256GcmSha384 => Nid::SHA384.as_raw(),
    }
}

type UseSession = unsafe extern "C" fn(
    *mut ffi::SSL,
    *const ffi::EVP_MD,
    *mut *const c_uchar,
    *mut usize,
    *mut *mut ffi::SSL_SESSION,
) -> c_int;
type FindSession = unsafe extern "C" fn(*mut ffi::SSL, *const c_uchar, usize, *mut *mut ffi::SSL_SESSION) -> c_int;

// Functions of OpenSSL 1.1.1 and later that the `openssl-sys` crate does not declare.
unsafe extern "C" {
    fn SSL_set_psk_use_session_callback(ssl: *mut ffi::SSL, callback: Option<UseSession>);
    fn SSL_set_psk_find_session_callback(ssl: *mut ffi::SSL, callback: Option<FindSession>);
    #[cfg(test)]
    fn SSL_key_update(ssl: *mut ffi::SSL, kind: c_int) -> c_int;
    fn SSL_SESSION_new() -> *mut ffi::SSL_SESSION;
    fn SSL_SESSION_set1_master_key(session: *mut ffi::SSL_SESSION, key: *const c_uchar, len: usize) -> c_int;
    fn SSL_SESSION_set_cipher(session: *mut ffi::SSL_SESSION, cipher: *const ffi::SSL_CIPHER) -> c_int;
    fn SSL_SESSION_set_protocol_version(session: *mut ffi::SSL_SESSION, version: c_int) -> c_int;
    fn SSL_CIPHER_find(ssl: *mut ffi::SSL, id: *const c_uchar) -> *const ffi::SSL_CIPHER;
}
