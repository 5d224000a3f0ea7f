//! Estimates of paths by policies.

use monotonic::Duration;

/// The estimate of a path by the policy of a class; `None`: the policy has no such value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathEstimate {
    /// Requests per round that go to the path. For several groups the sum: see [`PathEstimate::average_weight`].
    pub weight: Option<u64>,
    /// The estimated latency. For several groups the sum: see [`PathEstimate::average_latency`].
    pub latency: Option<Duration>,
    /// Bytes that the policy allows in flight.
    pub window_bytes: Option<u64>,
    /// Requests that could have gone to the path since the last one that did. Below 0: requests that are still to go
    /// there to measure it again.
    pub age: Option<i64>,
    /// Requests that could have gone to the path and did not, since it came up.
    pub ignored: Option<u64>,
    /// How often a new measurement of the path began because it was not chosen.
    pub checkpoints: Option<u64>,
    /// Requests that the path has answered since the last checkpoint.
    pub checkpoint_ios: Option<u64>,
    /// The sum of the latencies of these requests.
    pub checkpoint_wait: Option<Duration>,
    /// The number of groups in the sums; 0: not merged yet.
    pub groups: u32,
}

impl PathEstimate {
    /// The average latency since the last checkpoint.
    #[must_use]
    pub fn checkpoint_average(&self) -> Option<Duration> {
        let ios = u32::try_from(self.checkpoint_ios?).unwrap_or(u32::MAX);
        self.checkpoint_wait?.checked_div(ios)
    }

    /// The mean weight over the groups that know the path.
    #[must_use]
    pub fn average_weight(&self) -> Option<u64> {
        let groups = u64::from(self.groups.max(1));
        self.weight.map(|sum| (sum + groups / 2) / groups)
    }

    /// The mean latency over the groups that know the path.
    #[must_use]
    pub fn average_latency(&self) -> Option<Duration> {
        self.latency.map(|sum| sum / self.groups.max(1))
    }

    /// Adds the estimate of another group. The age is the least of all; everything else is added.
    pub fn merge(&mut self, other: &Self) {
        self.groups = self.known_to() + other.known_to();
        self.weight = both(self.weight, other.weight, |a, b| a + b);
        self.latency = both(self.latency, other.latency, |a, b| a + b);
        self.window_bytes = both(self.window_bytes, other.window_bytes, |a, b| a + b);
        self.age = both(self.age, other.age, i64::min);
        self.ignored = both(self.ignored, other.ignored, |a, b| a + b);
        self.checkpoints = both(self.checkpoints, other.checkpoints, |a, b| a + b);
        self.checkpoint_ios = both(self.checkpoint_ios, other.checkpoint_ios, |a, b| a + b);
        self.checkpoint_wait = both(self.checkpoint_wait, other.checkpoint_wait, |a, b| a + b);
    }

    fn known_to(&self) -> u32 {
        if self.latency.is_some() { self.groups.max(1) } else { self.groups }
    }
}

fn both<T>(a: Option<T>, b: Option<T>, merge: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(merge(a, b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn groups_are_merged_as_equals() {
        let estimate = |ms: u32, age| PathEstimate {
            weight: Some(u64::from(ms)),
            latency: Some(ms * MS),
            age: Some(age),
            ignored: Some(10),
            checkpoint_ios: Some(2),
            checkpoint_wait: Some(2 * ms * MS),
            ..PathEstimate::default()
        };
        let nothing = PathEstimate::default();
        let mut sum = nothing;
        for other in [estimate(1, 7), nothing, estimate(2, -3), estimate(6, 9)] {
            sum.merge(&other);
        }
        assert_eq!((sum.average_weight(), sum.average_latency(), sum.age), (Some(3), Some(3 * MS), Some(-3)));
        assert_eq!((sum.ignored, sum.window_bytes, sum.checkpoint_average()), (Some(30), None, Some(3 * MS)));
        let mut idle = nothing;
        idle.merge(&nothing);
        assert_eq!((idle, idle.checkpoint_average()), (nothing, None));
    }
}
