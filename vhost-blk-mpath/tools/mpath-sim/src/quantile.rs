//! Quantiles of what was measured.

/// The value that this share of `values` does not exceed. Reorders `values`.
#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // a count below 2^52, and a positive share
pub(crate) fn quantile<T: Copy + Ord>(values: &mut [T], share: f64) -> Option<T> {
    let last = values.len().checked_sub(1)?;
    let at = ((last as f64 * share).ceil() as usize).min(last);
    Some(*values.select_nth_unstable(at).1)
}
