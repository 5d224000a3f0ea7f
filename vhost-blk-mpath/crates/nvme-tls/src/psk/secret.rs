//! Secret bytes.

use zeroize::Zeroizing;

/// Bytes that are overwritten when they are dropped, compared in constant time, and never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Zeroes, to be filled through [`Secret::expose_mut`].
    pub(super) fn zeroed(bytes: usize) -> Self {
        Self(Zeroizing::new(vec![0; bytes]))
    }

    /// A copy of `bytes`.
    pub(super) fn copy_of(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }

    /// The secret bytes. The caller must neither print nor store them.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn expose_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Takes the same time wherever the first difference is. Secrets of different lengths differ at once.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && openssl::memcmp::eq(&self.0, &other.0)
    }
}

impl Eq for Secret {}

/// Prints the length alone.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}
