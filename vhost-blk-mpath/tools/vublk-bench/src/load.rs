//! The performance workloads: sequential or random reads and writes, of one size or several.

use crate::backend::Backend;
use crate::request::{Kind, Request, Status};
use crate::runner::{Next, Workload};
use crate::sizes::Sizes;
use mpath_sim::rng::Rng;

/// The order of offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Ascending, wrapping at the end of the queue's share of the region.
    Sequential,
    /// Uniform over the whole region.
    Random,
}

/// One queue's requests.
#[derive(Debug)]
pub struct Load {
    order: Order,
    read_percent: u8,
    sizes: Sizes,
    /// First byte.
    offset: u64,
    /// Length, in units of the smallest size.
    units: u64,
    next_unit: u64,
    rng: Rng,
}

impl Load {
    /// `region` is `(offset, bytes)` and holds at least one of the largest requests for each queue; requests are aligned to
    /// the smallest of `sizes` within it. With [`Order::Sequential`] the region is cut into `queues` equal shares and queue
    /// number `queue` gets its own.
    pub fn new(
        order: Order,
        read_percent: u8,
        sizes: Sizes,
        region: (u64, u64),
        (queue, queues): (u16, u16),
        seed: u64,
    ) -> Self {
        let unit = u64::from(sizes.smallest());
        let all_units = region.1 / unit;
        let (first, units) = match order {
            Order::Sequential => {
                let share = all_units / u64::from(queues);
                (u64::from(queue) * share, share)
            }
            Order::Random => (0, all_units),
        };
        assert!(units * unit >= u64::from(sizes.largest()), "each queue has room for its largest request");
        Self {
            order,
            read_percent,
            sizes,
            offset: region.0 + first * unit,
            units,
            next_unit: 0,
            rng: Rng::new(seed, u64::from(queue)),
        }
    }

    fn draw(&mut self) -> Request {
        let len = self.sizes.draw(&mut self.rng);
        let unit = u64::from(self.sizes.smallest());
        let takes = u64::from(len) / unit;
        let first = match self.order {
            Order::Random => self.rng.below(self.units - takes + 1),
            Order::Sequential => {
                let first = if self.next_unit + takes <= self.units { self.next_unit } else { 0 };
                self.next_unit = first + takes;
                first
            }
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

    const REGION: (u64, u64) = (1 << 20, 64 << 10);

    #[test]
    fn sequential_shares_tile_the_region() {
        let mut offsets: Vec<u64> = (0..4)
            .flat_map(|queue| {
                let mut load = Load::new(Order::Sequential, 100, Sizes::one(4096), REGION, (queue, 4), 1);
                (0..4).map(move |_| load.draw().offset).collect::<Vec<_>>()
            })
            .collect();
        offsets.sort_unstable();
        let expected: Vec<u64> = (0..16).map(|block| REGION.0 + block * 4096).collect();
        assert_eq!(offsets, expected);
    }

    #[test]
    fn sequential_wraps() {
        let mut load = Load::new(Order::Sequential, 0, Sizes::one(4096), (0, 8192), (0, 1), 1);
        let offsets: Vec<_> = (0..4).map(|_| load.draw().offset).collect();
        assert_eq!(offsets, [0, 4096, 0, 4096]);
        assert_eq!(load.draw().kind, Kind::Write);
    }

    #[test]
    fn random_stays_inside_aligned_and_mixes() {
        let mut load = Load::new(Order::Random, 30, Sizes::one(4096), REGION, (1, 2), 9);
        let drawn: Vec<_> = (0..2000).map(|_| load.draw()).collect();
        for request in &drawn {
            assert!(request.offset >= REGION.0 && request.offset + 4096 <= REGION.0 + REGION.1);
            assert_eq!((request.offset - REGION.0) % 4096, 0);
        }
        let reads = drawn.iter().filter(|request| request.kind == Kind::Read).count();
        assert!((500..700).contains(&reads), "{reads} of 2000 are reads");
    }

    #[test]
    fn mixed_sizes_stay_inside_and_aligned() {
        for order in [Order::Random, Order::Sequential] {
            let sizes = Sizes::mixed(&[(4, 50), (8, 20), (32, 30)]);
            let mut load = Load::new(order, 100, sizes, REGION, (0, 1), 5);
            let drawn: Vec<_> = (0..2000).map(|_| load.draw()).collect();
            for request in &drawn {
                assert!(request.offset >= REGION.0, "{request}");
                assert!(request.offset + u64::from(request.len) <= REGION.0 + REGION.1, "{request}");
                assert_eq!((request.offset - REGION.0) % 4096, 0, "{request}");
            }
            let end = drawn.iter().map(|request| request.offset + u64::from(request.len)).max();
            assert_eq!(end, Some(REGION.0 + REGION.1), "{order:?} reaches the end");
            if order == Order::Sequential {
                let follows = |pair: &[Request]| pair[0].offset + u64::from(pair[0].len) == pair[1].offset;
                assert!(drawn.windows(2).all(|pair| follows(pair) || pair[1].offset == REGION.0));
            }
        }
    }
}
