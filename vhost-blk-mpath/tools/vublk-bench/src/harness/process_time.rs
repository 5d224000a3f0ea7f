//! The CPU time that the processes under test take for a request.

use super::program::Failure;
use super::results::Sample;
use crate::process::cpu_time;
use crate::stack::Stack;
use std::time::Duration;

/// CPU times of a stack's processes at one moment, by the role of the process.
#[derive(Debug)]
pub struct ProcessTime(Vec<(&'static str, Duration)>);

impl ProcessTime {
    /// Reads the user and system time that each process has used so far.
    pub fn now(stack: &Stack) -> Result<Self, Failure> {
        let time = |(role, pid)| cpu_time(pid).map(|time| (role, time));
        let times: Option<Vec<_>> = stack.processes().map(|(role, process)| (role, process.pid())).map(time).collect();
        times.map(Self).ok_or_else(|| Failure::Failed(format!("a program has ended\n{}", stack.logs())))
    }

    /// Adds `cpu_ROLE_us` to a sample: what each process has used since then, in µs for each request.
    pub fn add_since(&self, sample: &mut Sample, stack: &Stack, requests: u64) -> Result<(), Failure> {
        for ((role, before), (_, after)) in self.0.iter().zip(Self::now(stack)?.0) {
            let micros = after.saturating_sub(*before).as_secs_f64() * 1e6;
            // A stack may have several targets.
            *sample.figures.entry(format!("cpu_{role}_us")).or_default() += micros / requests.max(1) as f64;
        }
        Ok(())
    }
}
