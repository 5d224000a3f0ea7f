//! The performance workloads: sequential or random reads and writes, of one size or several.

use crate::backend::Backend;
use crate::options::Mode;
use crate::request::{Kind, Request, Status};
use crate::runner::{Next, Workload};
use crate::sizes::Sizes;
use mpath_sim::rng::Rng;

/// One queue's requests.
#[derive(Debug)]
pub(crate) struct Load {
    is_sequential: bool,
    read_percent: u8,
    sizes: Sizes,
    offset: u64,
    /// Length, in units of the smallest size.
    units: u64,
    next_unit: u64,
    rng: Rng,
}

impl Load {
    /// The first `bytes` of the disk hold at least one of the largest requests for each queue. Requests are aligned to the smallest of
    /// `sizes`. Sequential requests ascend and wrap in the equal share of these bytes that is number `queue` of `queues`. Random ones
    /// are uniform over all of them.
    pub(crate) fn new(mode: Mode, sizes: Sizes, bytes: u64, (queue, queues): (u16, u16), seed: u64) -> Self {
        let is_sequential = matches!(mode, Mode::Read | Mode::Write);
        let read_percent = match mode {
            Mode::Read | Mode::Randread => 100,
            Mode::Write | Mode::Randwrite => 0,
            Mode::Randrw | Mode::Verify => 50,
        };
        let unit = u64::from(sizes.smallest());
        let all_units = bytes / unit;
        let share = all_units / u64::from(queues);
        let (first, units) = if is_sequential { (u64::from(queue) * share, share) } else { (0, all_units) };
        assert!(units * unit >= u64::from(sizes.largest()), "each queue has room for its largest request");
        let rng = Rng::new(seed, u64::from(queue));
        Self { is_sequential, read_percent, sizes, offset: first * unit, units, next_unit: 0, rng }
    }

    fn draw(&mut self) -> Request {
        let len = self.sizes.draw(&mut self.rng);
        let unit = u64::from(self.sizes.smallest());
        let takes = u64::from(len) / unit;
        let first = if self.is_sequential {
            let first = if self.next_unit + takes <= self.units { self.next_unit } else { 0 };
            self.next_unit = first + takes;
            first
        } else {
            self.rng.below(self.units - takes + 1)
        };
        let read = match self.read_percent {
            0 => false,
            100 => true,
            percent => self.rng.percent(percent.into()),
        };
        Request { kind: if read { Kind::Read } else { Kind::Write }, offset: self.offset + first * unit, len }
    }
}

impl<B: Backend> Workload<B> for Load {
    fn next(&mut self, _slot: u16, _backend: &mut B) -> Next {
        Next::Submit(self.draw())
    }

    fn completed(&mut self, _slot: u16, _request: &Request, _status: Status, _backend: &mut B) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 64 << 10;

    #[test]
    fn sequential_shares_tile_the_region() {
        let mut offsets: Vec<u64> = (0..4)
            .flat_map(|queue| {
                let mut load = Load::new(Mode::Read, Sizes::one(4096), BYTES, (queue, 4), 1);
                (0..4).map(move |_| load.draw().offset).collect::<Vec<_>>()
            })
            .collect();
        offsets.sort_unstable();
        let expected: Vec<u64> = (0..16).map(|block| block * 4096).collect();
        assert_eq!(offsets, expected);
    }

    #[test]
    fn sequential_wraps() {
        let mut load = Load::new(Mode::Write, Sizes::one(4096), 8192, (0, 1), 1);
        let offsets: Vec<_> = (0..4).map(|_| load.draw().offset).collect();
        assert_eq!(offsets, [0, 4096, 0, 4096]);
        assert_eq!(load.draw().kind, Kind::Write);
    }

    #[test]
    fn random_stays_inside_aligned_and_mixes() {
        let mut load = Load::new(Mode::Randrw, Sizes::one(4096), BYTES, (1, 2), 9);
        let drawn: Vec<_> = (0..2000).map(|_| load.draw()).collect();
        for request in &drawn {
            assert!(request.offset + 4096 <= BYTES);
            assert_eq!(request.offset % 4096, 0);
        }
        let reads = drawn.iter().filter(|request| request.kind == Kind::Read).count();
        assert!((900..1100).contains(&reads), "{reads} of 2000 are reads");
    }

    #[test]
    fn mixed_sizes_stay_inside_and_aligned() {
        for mode in [Mode::Randread, Mode::Read] {
            let sizes = Sizes::mixed(&[(4, 50), (8, 20), (32, 30)]);
            let mut load = Load::new(mode, sizes, BYTES, (0, 1), 5);
            let drawn: Vec<_> = (0..2000).map(|_| load.draw()).collect();
            for request in &drawn {
                assert!(request.offset + u64::from(request.len) <= BYTES, "{request}");
                assert_eq!(request.offset % 4096, 0, "{request}");
            }
            let end = drawn.iter().map(|request| request.offset + u64::from(request.len)).max();
            assert_eq!(end, Some(BYTES), "{mode:?} reaches the end");
            if mode == Mode::Read {
                let follows = |pair: &[Request]| pair[0].offset + u64::from(pair[0].len) == pair[1].offset;
                assert!(drawn.windows(2).all(|pair| follows(pair) || pair[1].offset == 0));
            }
        }
    }
}
