//! Request sizes: one, or several with a share each.

use crate::units::{UnitError, parse_size};
use mpath_sim::rng::Rng;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Sizes of requests. There is at least one size, and the shares add up to 100 %.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(Vec<Part>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    bytes: u32,
    percent: u8,
}

/// What is wrong with a list of sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizesError {
    /// No `SIZE/PERCENT`.
    #[error("'{0}' is not SIZE/PERCENT, as in 4k/10")]
    NoPart(String),
    /// A size.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A size that no request may have.
    #[error("{0} bytes: a size is a multiple of 512, up to 16 MiB")]
    BadSize(u64),
    /// A size that is no multiple of the smallest, to which offsets are aligned.
    #[error("{bytes} bytes: every size must be a multiple of the smallest one ({smallest})")]
    Unaligned {
        /// It.
        bytes: u32,
        /// The smallest.
        smallest: u32,
    },
    /// The shares.
    #[error("the shares are {0} % together; they must be 100 %")]
    BadSum(u32),
}

/// The largest request.
pub(crate) const LARGEST_BYTES: u64 = 16 << 20;

impl Sizes {
    /// All requests alike; `bytes` is not 0.
    #[must_use]
    pub fn one(bytes: u32) -> Self {
        Self(vec![Part { bytes, percent: 100 }])
    }

    /// The largest size.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.0.iter().map(|part| part.bytes).max().unwrap_or_default()
    }

    /// The smallest size: what offsets are aligned to.
    #[must_use]
    pub fn smallest(&self) -> u32 {
        self.0.iter().map(|part| part.bytes).min().unwrap_or_default()
    }

    /// The mean over many requests.
    #[must_use]
    pub fn mean_bytes(&self) -> f64 {
        self.0.iter().map(|part| f64::from(part.bytes) * f64::from(part.percent) / 100.0).sum()
    }

    /// The size of the next request.
    pub(crate) fn draw(&self, rng: &mut Rng) -> u32 {
        if let [only] = *self.0 {
            return only.bytes;
        }
        let mut left = rng.below(100);
        for part in &self.0 {
            match left.checked_sub(u64::from(part.percent)) {
                Some(rest) => left = rest,
                None => return part.bytes,
            }
        }
        unreachable!("the shares are 100 % together")
    }
}

impl FromStr for Sizes {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Self, SizesError> {
        let part = |text: &str| {
            let no_part = || SizesError::NoPart(text.to_owned());
            let (size, percent) = text.split_once('/').ok_or_else(no_part)?;
            let size = parse_size(size)?;
            if size == 0 || size > LARGEST_BYTES || !size.is_multiple_of(512) {
                return Err(SizesError::BadSize(size));
            }
            Ok(Part { bytes: size as u32, percent: percent.parse().map_err(|_| no_part())? })
        };
        let sizes = Self(text.split(':').map(part).collect::<Result<_, _>>()?);
        let sum = sizes.0.iter().map(|part| u32::from(part.percent)).sum();
        if sum != 100 {
            return Err(SizesError::BadSum(sum));
        }
        let smallest = sizes.smallest();
        match sizes.0.iter().find(|part| !part.bytes.is_multiple_of(smallest)) {
            Some(part) => Err(SizesError::Unaligned { bytes: part.bytes, smallest }),
            None => Ok(sizes),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            let (number, unit) =
                if part.bytes.is_multiple_of(1024) { (part.bytes / 1024, "k") } else { (part.bytes, "") };
            write!(f, "{colon}{number}{unit}/{}", part.percent)?;
        }
        Ok(())
    }
}

impl Serialize for Sizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "4k/10:32k/10:64k/10:128k/30:256k/10:512k/30";

    #[test]
    fn read_and_written() {
        let sizes: Sizes = MIXED.parse().unwrap();
        assert_eq!(sizes.to_string(), MIXED);
        assert_eq!((sizes.smallest(), sizes.largest()), (4096, 512 << 10));
        assert!((sizes.mean_bytes() - 227.6 * 1024.0).abs() < 1e-6, "{}", sizes.mean_bytes());
        assert!((Sizes::one(4096).mean_bytes() - 4096.0).abs() < 1e-9);
    }

    #[test]
    fn bad_ones_are_named() {
        let error = |text: &str| text.parse::<Sizes>().unwrap_err();
        assert_eq!(error("4k"), SizesError::NoPart("4k".into()));
        assert_eq!(error("4k/x"), SizesError::NoPart("4k/x".into()));
        assert_eq!(error("4k/300"), SizesError::NoPart("4k/300".into()));
        assert_eq!(error("4k/50:8k/40"), SizesError::BadSum(90));
        assert_eq!(error("0/100"), SizesError::BadSize(0));
        assert_eq!(error("17M/100"), SizesError::BadSize(17 << 20));
        assert_eq!(error("4k/50:6k/50"), SizesError::Unaligned { bytes: 6144, smallest: 4096 });
        assert!(matches!(error("4x/100"), SizesError::Unit(_)));
    }

    #[test]
    fn drawn_in_their_shares() {
        let sizes: Sizes = MIXED.parse().unwrap();
        let mut rng = Rng::new(3, 0);
        let drawn: Vec<u32> = (0..10_000).map(|_| sizes.draw(&mut rng)).collect();
        for (kib, percent) in [(4, 10), (32, 10), (64, 10), (128, 30), (256, 10), (512, 30)] {
            let count = drawn.iter().filter(|&&bytes| bytes == kib * 1024).count();
            assert!(count.abs_diff(percent * 100) < 200, "{kib}k: {count} of 10000");
        }
    }
}
