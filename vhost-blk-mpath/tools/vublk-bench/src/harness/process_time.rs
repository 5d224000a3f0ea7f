//! The CPU time that the processes under test take for a request.

use super::program::Failure;
use super::results::Sample;
use crate::process::{Managed, cpu_time};
use std::time::Duration;

/// CPU times of processes at one moment.
#[derive(Debug)]
pub struct ProcessTime(Vec<(&'static str, Duration)>);

impl ProcessTime {
    /// User and system time so far, by the role of the process.
    pub fn now(processes: &[(&'static str, &Managed)]) -> Result<Self, Failure> {
        let times = processes.iter().map(|(role, process)| {
            let time = cpu_time(process.pid());
            time.map(|time| (*role, time)).ok_or_else(|| {
                Failure::Failed(format!("the {role} ended during the measurement; its log:\n{}", process.log_tail()))
            })
        });
        times.collect::<Result<_, _>>().map(Self)
    }

    /// Adds `cpu_ROLE_us` to a sample: what each process used between two moments, in µs for each request.
    pub fn add_to(sample: &mut Sample, before: &Self, after: &Self, requests: u64) {
        for ((role, before), (_, after)) in before.0.iter().zip(&after.0) {
            let micros = after.saturating_sub(*before).as_secs_f64() * 1e6;
            sample.figures.insert(format!("cpu_{role}_us"), micros / requests.max(1) as f64);
        }
    }
}
