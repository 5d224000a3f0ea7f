//! The responses that prove a host or a controller (Base 8.3.4.5.4 and 8.3.4.5.5).

use zeroize::Zeroizing;

use crate::session::SessionKey;
use crate::{AuthConfig, CryptoError, Hash, Secret};

/// The inputs of the responses of both sides of a transaction.
pub(crate) struct Proof<'a> {
    pub config: &'a AuthConfig,
    pub hash: Hash,
    pub transaction: u16,
    pub session_key: Option<&'a SessionKey>,
}

impl Proof<'_> {
    /// The response of the host to C1 and S1.
    pub(crate) fn host(&self, challenge: &[u8], sequence_number: u32) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        let AuthConfig { hostnqn, subnqn, host_secret, .. } = self.config;
        self.response(host_secret, "HostHost", [hostnqn, subnqn], challenge, sequence_number)
    }

    /// The response of the controller to C2 and S2.
    pub(crate) fn controller(
        &self,
        secret: &Secret,
        challenge: &[u8],
        sequence_number: u32,
    ) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        let AuthConfig { hostnqn, subnqn, .. } = self.config;
        self.response(secret, "Controller", [subnqn, hostnqn], challenge, sequence_number)
    }

    /// HMAC(key, Ca ‖ S ‖ `T_ID` ‖ `SC_C` ‖ role ‖ NQN of the prover ‖ 00h ‖ NQN of the verifier).
    ///
    /// Linux before 7.1 puts 00h in place of `SC_C` into the response of the controller. This matters only for a bidirectional
    /// transaction with a secure channel.
    fn response(
        &self,
        secret: &Secret,
        role: &str,
        [prover, verifier]: [&str; 2],
        challenge: &[u8],
        sequence_number: u32,
    ) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        let key = secret.transformed(prover)?;
        // Ca: the challenge, bound to the session key if there is one.
        let augmented = match self.session_key {
            Some(session_key) => self.hash.hmac(session_key.as_bytes(), &[challenge])?,
            None => Zeroizing::new(challenge.to_vec()),
        };
        self.hash.hmac(
            &key,
            &[
                &augmented,
                &sequence_number.to_le_bytes(),
                &self.transaction.to_le_bytes(),
                &[self.config.concatenation.code()],
                role.as_bytes(),
                prover.as_bytes(),
                &[0],
                verifier.as_bytes(),
            ],
        )
    }
}
