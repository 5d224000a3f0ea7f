//! One virtqueue with its requests: random reads.

use mpath_sim::rng::Rng;
use std::time::{Duration, Instant};
use vublk_bench::backend::{Backend, Used};
use vublk_bench::ledger::Ledger;
use vublk_bench::request::{Kind, Request, Status};
use vublk_bench::runner::Fatal;

/// Why a flow cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlowError {
    #[error(transparent)]
    Fatal(#[from] Fatal),
    #[error("{request} ended with {status:?}")]
    Failed { request: Request, status: Status },
}

/// The part of the disk that is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub(crate) blocks: u64,
    pub(crate) block_bytes: u32,
}

/// A virtqueue and its requests under way.
pub(crate) struct Flow<B> {
    backend: B,
    index: u16,
    ledger: Ledger,
    free_slots: Vec<u16>,
    region: Region,
    places: Rng,
}

impl<B: Backend> Flow<B> {
    /// With `slots` buffers, in a ring of `heads`.
    pub(crate) fn new(backend: B, index: u16, slots: u16, heads: u16, region: Region, places: Rng) -> Self {
        Self { backend, index, ledger: Ledger::new(heads), free_slots: (0..slots).collect(), region, places }
    }

    pub(crate) fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.ledger.in_flight() == 0
    }

    /// Sends `count` requests with one notification. There must be buffers for them.
    pub(crate) fn send(&mut self, count: u32) -> Result<(), FlowError> {
        for _ in 0..count {
            let slot = self.free_slots.pop().expect("no more is sent than there are buffers");
            let len = self.region.block_bytes;
            let offset = self.places.below(self.region.blocks) * u64::from(len);
            let request = Request { kind: Kind::Read, offset, len };
            let head = self.backend.submit(slot, &request).map_err(Fatal::Submit)?;
            self.ledger.submitted(head, slot, request, Instant::now()).map_err(Fatal::from)?;
        }
        Ok(self.backend.kick().map_err(Fatal::Kick)?)
    }

    /// Takes the answers since the last call, and returns how many there were.
    pub(crate) fn reap(&mut self) -> Result<u32, FlowError> {
        let mut answers = 0;
        while let Some(Used { head, status }) = self.backend.next_used() {
            let done = self.ledger.completed(head).map_err(Fatal::from)?;
            if status != Status::Ok {
                return Err(FlowError::Failed { request: done.request, status });
            }
            self.free_slots.push(done.slot);
            answers += 1;
        }
        Ok(answers)
    }

    /// Fails if a request has been under way for longer than `timeout`.
    pub(crate) fn check_for_lost(&self, timeout: Duration, now: Instant) -> Result<(), FlowError> {
        let lost = self.ledger.older_than(self.index, timeout, now);
        if lost.is_empty() { Ok(()) } else { Err(Fatal::Lost(lost).into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::io;
    use vublk_bench::backend::Head;

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
        Flow::new(Queue::default(), 3, slots, 16, Region { blocks: 4, block_bytes: 4096 }, Rng::new(1, 3))
    }

    #[test]
    fn sends_reads_within_its_region_with_one_notification() {
        let mut flow = flow(8);
        flow.send(8).unwrap();
        assert_eq!((flow.backend.sent.len(), flow.backend.kicks), (8, 1));
        for (_, request) in &flow.backend.sent {
            assert!(request.kind == Kind::Read && request.len == 4096, "{request}");
            assert!(request.offset % 4096 == 0 && request.offset < 16384, "{request}");
        }
        assert!(!flow.is_idle());
        flow.backend.answer(8, Status::Ok);
        assert_eq!((flow.reap().unwrap(), flow.reap().unwrap(), flow.is_idle()), (8, 0, true));
    }

    #[test]
    fn buffers_are_free_again_when_answered() {
        let mut flow = flow(4);
        flow.send(4).unwrap();
        for answers in [1, 3, 2, 4] {
            flow.backend.answer(answers, Status::Ok);
            assert_eq!(flow.reap().unwrap() as usize, answers);
            flow.send(answers as u32).unwrap();
        }
    }

    #[test]
    fn a_failed_lost_or_doubled_request_ends_the_flow() {
        let mut failing = flow(2);
        failing.send(2).unwrap();
        failing.backend.answer(1, Status::IoError);
        assert!(matches!(failing.reap(), Err(FlowError::Failed { status: Status::IoError, .. })));

        let mut losing = flow(2);
        losing.send(1).unwrap();
        assert!(losing.check_for_lost(Duration::from_secs(1), Instant::now()).is_ok());
        let later = Instant::now() + Duration::from_secs(2);
        assert!(matches!(losing.check_for_lost(Duration::from_secs(1), later), Err(FlowError::Fatal(Fatal::Lost(_)))));

        let mut twice = flow(2);
        twice.send(1).unwrap();
        twice.backend.answer(1, Status::Ok);
        let again = twice.backend.used[0];
        twice.backend.used.push_back(again);
        assert!(matches!(twice.reap(), Err(FlowError::Fatal(Fatal::Ledger(_)))));
    }
}
