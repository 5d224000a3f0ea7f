//! A connected disk under load: the first flows send bursts, the others keep their queues full.
//!
//! One thread drives all of them. With a thread for each virtqueue, up to 65 threads would compete with daemon and target for the
//! processors. The scheduling of a thread would then move the begin and end of a burst. With one thread, all requests of a burst
//! leave at one moment, with one notification.

use crate::bursts::Bursts;
use crate::cell::CellMeasurement;
use crate::rows::RowSpec;
use mpath_sim::bursts::scenario::{BYTES, DEPTH};
use mpath_sim::rng::Rng;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use virtio_driver::VirtioBlkFeatureFlags;
use vublk_bench::backend::Backend;
use vublk_bench::front_end::{BlkQueue, ConnectError, Device, QueueShape, wait_for_any};
use vublk_bench::ledger::{AccountedQueue, Fatal};
use vublk_bench::request::{Kind, Request, Status};

/// The part of the disk that is read.
const BLOCKS: u64 = (64 << 20) / BYTES as u64;
const DESCRIPTORS_A_REQUEST: u16 = 3;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest sleep: how soon an interrupt or a lost request is noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// A request that takes longer is lost. The longest queue takes a fraction of this time.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// Why the load could not start or go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the back-end offers {offered} queues, {wanted} are needed")]
    TooFewQueues { offered: u16, wanted: u16 },
    #[error("{0}")]
    Flow(#[from] Fatal),
    #[error("{request} ended with {status:?}")]
    Failed { request: Request, status: Status },
    #[error("cannot wait for completions: {0}")]
    Wait(#[source] io::Error),
    #[error("interrupted")]
    Interrupted,
}

/// A virtqueue with its requests: random reads.
struct Flow<B> {
    queue: AccountedQueue<B>,
    places: Rng,
}

impl<B: Backend> Flow<B> {
    /// Sends `count` requests with one notification. There must be buffers for them.
    fn send(&mut self, count: u32) -> Result<(), Fatal> {
        for _ in 0..count {
            let offset = self.places.below(BLOCKS) * u64::from(BYTES);
            self.queue.submit(Request { kind: Kind::Read, offset, len: BYTES })?;
        }
        self.queue.kick()
    }

    /// Takes the answers since the last call, and returns how many there were.
    fn reap(&mut self) -> Result<u32, LoadError> {
        let mut answers = 0;
        while let Some((done, status)) = self.queue.next_completed()? {
            if status != Status::Ok {
                return Err(LoadError::Failed { request: done.request, status });
            }
            answers += 1;
        }
        Ok(answers)
    }
}

/// The flows of a row.
pub(crate) struct Load<'a> {
    spec: RowSpec,
    flows: Vec<Flow<BlkQueue>>,
    /// The bursts of each flow that sends bursts. These flows are the first ones.
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
        let flow = |(queue, index): (BlkQueue, u16)| {
            let places = Rng::new(seed, (stream << 16) | u64::from(index));
            Flow { queue: AccountedQueue::new(queue, index, slots, shape.ring_size), places }
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
        load.flows.iter_mut().skip(load.bursts.len()).try_for_each(|flow| flow.send(DEPTH))?;
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
            for (bursts, flow) in self.bursts.iter_mut().zip(&mut self.flows) {
                bursts.begin(now).map_or(Ok(()), |count| flow.send(count))?;
            }
            let due = self.bursts.iter().filter_map(Bursts::due).min();
            let sleep = due.map_or(LONGEST_WAIT, |due| due.saturating_duration_since(now));
            self.wait(sleep.min(LONGEST_WAIT))?;
            self.reap(Some(&mut counted))?;
        }
    }

    /// Waits for all requests under way. Sends nothing more.
    pub(crate) fn finish(mut self) -> Result<(), LoadError> {
        while !self.flows.iter().all(|flow| flow.queue.is_idle()) {
            self.wait(LONGEST_WAIT)?;
            self.reap(None)?;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), LoadError> {
        let mut queues: Vec<&mut BlkQueue> = self.flows.iter_mut().map(|flow| &mut flow.queue.backend).collect();
        wait_for_any(&mut queues, timeout).map_err(LoadError::Wait)?;
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(LoadError::Interrupted);
        }
        let now = Instant::now();
        if now >= self.next_check {
            self.next_check = now + LONGEST_WAIT;
            self.flows.iter().try_for_each(|flow| flow.queue.check_for_lost(LOST_AFTER, now))?;
        }
        Ok(())
    }

    /// Takes the answers. Busy flows send again while a cell is measured.
    fn reap(&mut self, mut counted: Option<&mut CellMeasurement>) -> Result<(), LoadError> {
        let now = Instant::now();
        for (queue, flow) in self.flows.iter_mut().enumerate() {
            let answers = flow.reap()?;
            let Some(counted) = counted.as_deref_mut().filter(|_| answers > 0) else { continue };
            counted.answered(now, queue, answers);
            match self.bursts.get_mut(queue) {
                Some(bursts) => {
                    bursts.answered(now, answers).into_iter().for_each(|burst| counted.burst(queue, burst));
                }
                None => flow.send(answers)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::io;
    use vublk_bench::backend::{Head, Used};

    /// A queue that answers when it is told to.
    #[derive(Default)]
    struct Queue {
        sent: VecDeque<(Head, Request)>,
        used: VecDeque<Used>,
        kicks: u32,
    }

    impl Queue {
        fn answer(&mut self, count: usize, status: Status) {
            self.used.extend(self.sent.drain(..count).map(|(head, _)| Used { head, status }));
        }
    }

    impl Backend for Queue {
        fn fill(&mut self, _slot: u16, _data: &[u8]) {}
        fn fetch(&mut self, _slot: u16, _data: &mut [u8]) {}
        fn submit(&mut self, slot: u16, request: &Request) -> io::Result<Head> {
            self.sent.push_back((slot, *request));
            Ok(slot)
        }
        fn kick(&mut self) -> io::Result<()> {
            self.kicks += 1;
            Ok(())
        }
        fn next_used(&mut self) -> Option<Used> {
            self.used.pop_front()
        }
        fn wait(&mut self, _timeout: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    fn flow(slots: u16) -> Flow<Queue> {
        Flow { queue: AccountedQueue::new(Queue::default(), 3, slots, 16), places: Rng::new(1, 3) }
    }

    #[test]
    fn sends_reads_within_its_region_with_one_notification() {
        let mut flow = flow(8);
        flow.send(8).unwrap();
        assert_eq!((flow.queue.backend.sent.len(), flow.queue.backend.kicks), (8, 1));
        for (_, request) in &flow.queue.backend.sent {
            assert!(request.kind == Kind::Read && request.len == 4096, "{request}");
            assert!(request.offset % 4096 == 0 && request.offset < 64 << 20, "{request}");
        }
        assert!(!flow.queue.is_idle());
        flow.queue.backend.answer(8, Status::Ok);
        assert_eq!((flow.reap().unwrap(), flow.reap().unwrap(), flow.queue.is_idle()), (8, 0, true));
    }

    #[test]
    fn buffers_are_free_again_when_answered() {
        let mut flow = flow(4);
        flow.send(4).unwrap();
        for answers in [1, 3, 2, 4] {
            flow.queue.backend.answer(answers, Status::Ok);
            assert_eq!(flow.reap().unwrap() as usize, answers);
            flow.send(answers as u32).unwrap();
        }
    }

    #[test]
    fn a_failed_lost_or_doubled_request_ends_the_flow() {
        let mut failing = flow(2);
        failing.send(2).unwrap();
        failing.queue.backend.answer(1, Status::IoError);
        assert!(matches!(failing.reap(), Err(LoadError::Failed { status: Status::IoError, .. })));

        let mut losing = flow(2);
        losing.send(1).unwrap();
        assert!(losing.queue.check_for_lost(Duration::from_secs(1), Instant::now()).is_ok());
        let later = Instant::now() + Duration::from_secs(2);
        assert!(matches!(losing.queue.check_for_lost(Duration::from_secs(1), later), Err(Fatal::Lost(_))));

        let mut twice = flow(2);
        twice.send(1).unwrap();
        twice.queue.backend.answer(1, Status::Ok);
        let again = twice.queue.backend.used[0];
        twice.queue.backend.used.push_back(again);
        assert!(matches!(twice.reap(), Err(LoadError::Flow(Fatal::Ledger(_)))));
    }
}
