//! Converts injections of the API into those of an I/O thread's group.

use std::num::NonZeroU64;

use monotonic::Duration;
use mpath_api::types::{InjectedLatency, InjectedStatus, Injection};
use mpath_core::{InjectedError, Outcome, PathId};
use nvme_tcp::wire::Status;
use reactor::{IoThreadHandle, outcome_of};

/// Sets an injection on a path in all I/O threads. Each thread draws its own random numbers and gets its share of the
/// rate, so that all together never exceed it.
pub(crate) fn set(threads: &[IoThreadHandle], path: PathId, injection: &Injection) {
    let (class, whole) = (injection.class, of(injection));
    let count = threads.len().max(1) as u64;
    for (thread, index) in threads.iter().zip(0..) {
        let rate = whole.rate.map(|rate| NonZeroU64::new(rate.get() / count).unwrap_or(NonZeroU64::MIN));
        thread.set_injection(path, class, mpath_core::Injection { rate, ..whole }.of_thread(index));
    }
}

/// Ends one injection of a path in all I/O threads.
pub(crate) fn end(threads: &[IoThreadHandle], path: PathId, injection: &Injection) {
    for thread in threads {
        thread.end_injection(path, injection.class);
    }
}

fn of(injection: &Injection) -> mpath_core::Injection {
    let time = |time: Option<InjectedLatency>| time.map_or(Duration::ZERO, InjectedLatency::duration);
    let error = injection.error_rate_ppm.map(|share| InjectedError {
        per_million: u64::from(share) as u32,
        outcome: outcome(injection.status.unwrap_or_default()),
    });
    mpath_core::Injection {
        direction: injection.direction,
        latency: time(injection.latency_us),
        jitter: time(injection.jitter_us),
        distribution: injection.distribution.unwrap_or_default(),
        rate: injection.rate.and_then(|rate| NonZeroU64::new(rate.into())),
        error,
        stall: injection.stall,
        seed: injection.seed,
    }
}

/// The outcome as if the target had answered with this status, without a retry delay.
fn outcome(status: InjectedStatus) -> Outcome {
    let status = match status {
        InjectedStatus::PathError => Status::INTERNAL_PATH_ERROR,
        InjectedStatus::AnaInaccessible => Status::ANA_INACCESSIBLE,
        InjectedStatus::AnaTransition => Status::ANA_TRANSITION,
        InjectedStatus::InternalError => Status::INTERNAL_ERROR,
        InjectedStatus::NamespaceNotReady => Status::NAMESPACE_NOT_READY,
        InjectedStatus::CommandInterrupted => Status::COMMAND_INTERRUPTED,
        InjectedStatus::MediaError => Status::UNRECOVERED_READ_ERROR.with_dnr(),
        InjectedStatus::InternalErrorDnr => Status::INTERNAL_ERROR.with_dnr(),
    };
    outcome_of(Err(status), &[Duration::ZERO; 3])
}

#[cfg(test)]
mod tests {
    use mpath_core::{Direction, Distribution, IoError, RetryCause};

    use super::*;

    #[test]
    fn statuses_are_classified_as_the_targets_own() {
        let retry = |cause| Outcome::Retry { after: Duration::ZERO, cause };
        let (internal, passing) = (retry(RetryCause::Internal), retry(RetryCause::NotExecuted));
        let (medium, failed) = (Outcome::Failed(IoError::Medium), Outcome::Failed(IoError::Controller));
        let outcomes: Vec<_> = InjectedStatus::ALL.iter().map(|status| outcome(*status)).collect();
        let path_error = Outcome::PathError;
        assert_eq!(outcomes, [path_error, path_error, path_error, internal, passing, passing, medium, failed]);
    }

    #[test]
    fn all_fields_are_converted() {
        let text = r#"{"latency-us":5,"jitter-us":3,"distribution":"pareto","rate":65536,"error-rate-ppm":7,"seed":9}"#;
        let injection: Injection = serde_json::from_str(text).unwrap();
        let expected = mpath_core::Injection {
            direction: Direction::Request,
            latency: Duration::from_micros(5),
            jitter: Duration::from_micros(3),
            distribution: Distribution::Pareto,
            rate: NonZeroU64::new(65536),
            error: Some(InjectedError { per_million: 7, outcome: Outcome::PathError }),
            stall: false,
            seed: 9,
        };
        assert_eq!(of(&injection), expected);
    }
}
