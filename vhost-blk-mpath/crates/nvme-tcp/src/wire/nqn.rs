//! NVMe Qualified Names (Base 4.5).

/// The most bytes of an NQN.
pub const NQN_LEN_MAX: usize = 223;

/// A valid NQN: 1 to 223 bytes of UTF-8 without NUL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Nqn(String);

/// Why a string is not an NQN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NqnError {
    /// The name is empty or longer than 223 bytes.
    #[error("an NQN must have 1 to {NQN_LEN_MAX} bytes; this one has {0}")]
    Length(usize),
    /// The name contains a NUL.
    #[error("an NQN must not contain a NUL")]
    Nul,
    /// The name is not UTF-8.
    #[error("an NQN must be UTF-8")]
    Utf8,
}

impl Nqn {
    /// Checks `name`.
    pub fn new(name: impl Into<String>) -> Result<Self, NqnError> {
        let name = name.into();
        if !(1..=NQN_LEN_MAX).contains(&name.len()) {
            return Err(NqnError::Length(name.len()));
        }
        if name.contains('\0') {
            return Err(NqnError::Nul);
        }
        Ok(Self(name))
    }

    /// The NQN of the discovery service.
    #[must_use]
    pub fn discovery() -> Self {
        Self("nqn.2014-08.org.nvmexpress.discovery".to_owned())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses the NUL-padded field of a data structure.
    pub(super) fn parse(field: &[u8; 256]) -> Result<Self, NqnError> {
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        let name = std::str::from_utf8(&field[..end]).map_err(|_| NqnError::Utf8)?;
        Self::new(name)
    }

    /// The name as NUL-padded field of a data structure.
    pub(super) fn emit(&self) -> [u8; 256] {
        let mut field = [0; 256];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }
}

impl std::fmt::Display for Nqn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Nqn {
    type Err = NqnError;

    fn from_str(name: &str) -> Result<Self, NqnError> {
        Self::new(name)
    }
}

impl AsRef<str> for Nqn {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
pub(crate) fn any_nqn() -> impl proptest::strategy::Strategy<Value = Nqn> {
    use proptest::strategy::Strategy;
    "[ -~é]{1,111}".prop_map(|name| Nqn::new(name).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(nqn in any_nqn()) {
            prop_assert_eq!(Nqn::parse(&nqn.emit()), Ok(nqn));
        }

        #[test]
        fn any_field_parses_or_fails(field in proptest::array::uniform32(any::<[u8; 8]>())) {
            let _ = Nqn::parse(&zerocopy::transmute!(field));
        }
    }

    #[test]
    fn length_limits_and_nul() {
        assert_eq!(Nqn::new(""), Err(NqnError::Length(0)));
        assert_eq!(Nqn::new("x".repeat(224)), Err(NqnError::Length(224)));
        assert!(Nqn::new("x".repeat(223)).is_ok());
        assert_eq!(Nqn::new("a\0b"), Err(NqnError::Nul));
        assert_eq!(Nqn::parse(&[b'x'; 256]), Err(NqnError::Length(256)));
    }
}
