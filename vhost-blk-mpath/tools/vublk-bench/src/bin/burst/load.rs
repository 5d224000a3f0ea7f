//! A connected disk under load: the first flows send bursts, the others keep their queues full.
//!
//! One thread drives all of them. With a thread for each virtqueue, up to 65 threads would compete with daemon and target for the
//! processors. The scheduling of a thread would then move the begin and end of a burst. With one thread, all requests of a burst
//! leave at one moment, with one notification.

use crate::bursts::Bursts;
use crate::cell::CellMeasurement;
use crate::flow::{Flow, FlowError, Region};
use crate::rows::RowSpec;
use mpath_sim::bursts::scenario::{BYTES, DEPTH};
use mpath_sim::rng::Rng;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use virtio_driver::VirtioBlkFeatureFlags;
use vublk_bench::front_end::{BlkQueue, ConnectError, Device, QueueShape, wait_for_any};

/// The part of the disk that is read.
const DISK_BYTES: u64 = 64 << 20;
const DESCRIPTORS_A_REQUEST: u16 = 3;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest sleep: how soon an interrupt or a lost request is noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// Several times as long as the longest queue takes.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// Why the load could not start or go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the back-end offers {offered} queues, {wanted} are needed")]
    TooFewQueues { offered: u16, wanted: u16 },
    #[error("queue {queue}: {error}")]
    Flow { queue: usize, error: FlowError },
    #[error("cannot wait for completions: {0}")]
    Wait(#[source] io::Error),
    #[error("interrupted")]
    Interrupted,
}

/// The flows of a row.
pub(crate) struct Load<'a> {
    spec: RowSpec,
    flows: Vec<Flow<BlkQueue>>,
    /// One for each flow that sends bursts, which are the first flows.
    bursts: Vec<Bursts>,
    interrupted: &'a AtomicBool,
    next_check: Instant,
}

impl<'a> Load<'a> {
    /// Connects, and fills the busy queues.
    pub(crate) fn connect(
        socket: &Path,
        spec: RowSpec,
        (seed, stream): (u64, u64),
        interrupted: &'a AtomicBool,
    ) -> Result<Self, LoadError> {
        let slots = spec.bursts().map(|(count, _)| count).fold(DEPTH, u32::max) as u16;
        let shape = QueueShape {
            queues: spec.queues() as u16,
            ring_size: (slots * DESCRIPTORS_A_REQUEST).next_power_of_two(),
            slots,
            slot_bytes: BYTES as usize,
        };
        let (_, queues) = Device::connect(socket, VirtioBlkFeatureFlags::empty(), CONNECT_TIMEOUT, |info| {
            let (offered, wanted) = (info.queues_offered, shape.queues);
            if offered < wanted { Err(LoadError::TooFewQueues { offered, wanted }) } else { Ok(shape) }
        })?;
        let region = Region { blocks: DISK_BYTES / u64::from(BYTES), block_bytes: BYTES };
        let flow = |(queue, index): (BlkQueue, u16)| {
            let places = Rng::new(seed, (stream << 16) | u64::from(index));
            Flow::new(queue, index, slots, shape.ring_size, region, places)
        };
        let now = Instant::now();
        let bursts = |((count, pauses), index): ((u32, bool), u64)| {
            let pauses = pauses.then(|| Rng::new(seed, (stream << 16) | (u64::from(u16::MAX) - index)));
            Bursts::new(count, pauses, now)
        };
        let mut load = Self {
            spec,
            flows: queues.into_iter().zip(0..).map(flow).collect(),
            bursts: spec.bursts().zip(0..).map(bursts).collect(),
            interrupted,
            next_check: now + LONGEST_WAIT,
        };
        for (queue, flow) in load.flows.iter_mut().enumerate().skip(load.bursts.len()) {
            flow.send(DEPTH).map_err(|error| LoadError::Flow { queue, error })?;
        }
        Ok(load)
    }

    /// Measures one cell, until the last burst that counts has ended. The load goes on into the next cell.
    pub(crate) fn measure(&mut self, warmup: Duration, time: Duration) -> Result<CellMeasurement, LoadError> {
        let mut counted = CellMeasurement::new(self.spec, Instant::now(), warmup, time);
        loop {
            let now = Instant::now();
            let mut under_way = self.bursts.iter().filter_map(Bursts::since);
            if counted.is_over(now) && !under_way.any(|since| counted.covers(since)) {
                return Ok(counted);
            }
            for (queue, (bursts, flow)) in self.bursts.iter_mut().zip(&mut self.flows).enumerate() {
                if let Some(count) = bursts.begin(now) {
                    flow.send(count).map_err(|error| LoadError::Flow { queue, error })?;
                }
            }
            let due = self.bursts.iter().filter_map(Bursts::due).min();
            let sleep = due.map_or(LONGEST_WAIT, |due| due.saturating_duration_since(now));
            self.wait(sleep.min(LONGEST_WAIT))?;
            self.reap(Some(&mut counted))?;
        }
    }

    /// Waits for all requests under way. Sends nothing more.
    pub(crate) fn finish(mut self) -> Result<(), LoadError> {
        while !self.flows.iter().all(Flow::is_idle) {
            self.wait(LONGEST_WAIT)?;
            self.reap(None)?;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), LoadError> {
        let mut queues: Vec<&mut BlkQueue> = self.flows.iter_mut().map(Flow::backend).collect();
        wait_for_any(&mut queues, timeout).map_err(LoadError::Wait)?;
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(LoadError::Interrupted);
        }
        let now = Instant::now();
        if now >= self.next_check {
            self.next_check = now + LONGEST_WAIT;
            for (queue, flow) in self.flows.iter().enumerate() {
                flow.check_for_lost(LOST_AFTER, now).map_err(|error| LoadError::Flow { queue, error })?;
            }
        }
        Ok(())
    }

    /// Takes the answers. Busy flows send again while a cell is measured.
    fn reap(&mut self, mut counted: Option<&mut CellMeasurement>) -> Result<(), LoadError> {
        let now = Instant::now();
        for (queue, flow) in self.flows.iter_mut().enumerate() {
            let failed = |error| LoadError::Flow { queue, error };
            let answers = flow.reap().map_err(failed)?;
            let Some(counted) = counted.as_deref_mut().filter(|_| answers > 0) else { continue };
            counted.answered(now, queue, answers);
            match self.bursts.get_mut(queue) {
                Some(bursts) => {
                    bursts.answered(now, answers).into_iter().for_each(|burst| counted.burst(queue, burst));
                }
                None => flow.send(answers).map_err(failed)?,
            }
        }
        Ok(())
    }
}
