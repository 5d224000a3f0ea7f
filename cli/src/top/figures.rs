//! Short forms of numbers, and percentiles over several paths.

use mpath_api::types::{Latency, OpStats};

/// A count in at most four characters.
pub(super) fn count(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", count / 1_000),
        1_000_000..10_000_000 => format!("{}.{}M", count / 1_000_000, count / 100_000 % 10),
        10_000_000..1_000_000_000 => format!("{}M", count / 1_000_000),
        _ => format!("{}G", count / 1_000_000_000),
    }
}

/// A time in at most five characters.
pub(super) fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..10_000 => format!("{}.{}ms", us / 1_000, us / 100 % 10),
        10_000..1_000_000 => format!("{}ms", us / 1_000),
        1_000_000..10_000_000 => format!("{}.{}s", us / 1_000_000, us / 100_000 % 10),
        _ => format!("{}s", us / 1_000_000),
    }
}

/// MiB a second in at most five characters.
pub(super) fn mib(bytes_per_s: u64) -> String {
    match bytes_per_s {
        0..0xa0_0000 => format!("{}.{}", bytes_per_s >> 20, ((bytes_per_s & 0xf_ffff) * 10) >> 20),
        _ => (bytes_per_s >> 20).to_string(),
    }
}

/// Values of several classes in one cell.
pub(super) fn joined<const N: usize>(values: [Option<String>; N]) -> String {
    if values.iter().all(Option::is_none) {
        return "-".into();
    }
    values.map(|value| value.unwrap_or_else(|| "-".into())).join("/")
}

/// The parts of a distribution that are known: what share of the I/Os took at most what time.
fn points(of: &Latency) -> [(f64, u64); 5] {
    [(0.0, 0), (0.5, of.p50_us), (0.99, of.p99_us), (0.999, of.p999_us), (1.0, of.max_us)]
}

/// The share of the I/Os that took at most this time, by straight lines between the known parts.
fn share_within(of: &Latency, us: u64) -> f64 {
    let points = points(of);
    if us >= of.max_us {
        return 1.0;
    }
    let Some(above) = points.iter().position(|(_, time)| *time > us) else { return 1.0 };
    // The first time is 0, so there is one below.
    let ((low, from), (high, to)) = (points[above.saturating_sub(1)], points[above]);
    let part = as_f64(us.saturating_sub(from)) / as_f64(to.saturating_sub(from)).max(1.0);
    low + (high - low) * part
}

/// A quantile of the last second's I/Os of all these paths. It is exact for one path, and interpolated for several.
pub(super) fn quantile<'a>(paths: impl Iterator<Item = &'a OpStats> + Clone, quantile: f64) -> Option<u64> {
    let busy = paths.filter_map(|of| Some((of.latency_1s?, of.ios_1s.max(1)))).collect::<Vec<_>>();
    let total: u64 = busy.iter().map(|(_, ios)| ios).sum();
    let (mut low, mut high) = (0, busy.iter().map(|(latency, _)| latency.max_us).max()?);
    if let [(latency, _)] = &*busy {
        let known = points(latency).into_iter().find(|(share, _)| *share >= quantile);
        return known.map(|(_, time)| time);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        let within: f64 = busy.iter().map(|(latency, ios)| share_within(latency, middle) * as_f64(*ios)).sum();
        if within >= quantile * as_f64(total) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

// Beyond 2^52 the last digit may be wrong.
#[allow(clippy::cast_precision_loss)]
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms() {
        let counts = [0, 9_999, 12_345, 999_999, 1_250_000, 25_000_000, 4_000_000_000].map(count);
        assert_eq!(counts, ["0", "9999", "12k", "999k", "1.2M", "25M", "4G"]);
        let times = [0, 999, 1_260, 30_417, 999_999, 1_260_000, 61_000_000].map(time);
        assert_eq!(times, ["0us", "999us", "1.2ms", "30ms", "999ms", "1.2s", "61s"]);
        let rates = [0, 1 << 19, 10 << 20, 1500 << 20].map(mib);
        assert_eq!(rates, ["0.0", "0.5", "10", "1500"]);
        assert_eq!(joined([Some("1".to_owned()), None]), "1/-");
        assert_eq!(joined::<2>([None, None]), "-");
    }

    #[test]
    fn percentiles_over_paths_lie_between_those_of_the_paths() {
        let path = |ios_1s, p50_us| {
            let latency_1s = Some(Latency { p50_us, p99_us: p50_us * 3, p999_us: p50_us * 7, max_us: p50_us * 20 });
            OpStats { ios_1s, latency_1s, ..OpStats::default() }
        };
        let (fast, slow, idle) = (path(9_000, 100), path(1_000, 30_000), OpStats::default());
        assert_eq!(quantile([&fast, &idle].into_iter(), 0.5), Some(100));
        assert_eq!(quantile([&fast].into_iter(), 0.99), Some(300));
        assert_eq!(quantile([&idle].into_iter(), 0.5), None);
        // The slow path has a tenth of the I/Os: more than a hundredth, and less than half.
        let of_both = |share| quantile([&fast, &slow].into_iter(), share).unwrap();
        assert!((100..300).contains(&of_both(0.5)), "{}", of_both(0.5));
        assert!((30_000..90_000).contains(&of_both(0.99)), "{}", of_both(0.99));
    }
}
