//! How a path behaves.

use std::time::Duration;

use crate::rng::Rng;

/// Random addition to the delay of each request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jitter {
    /// Nothing.
    None,
    /// Evenly distributed from zero to twice this mean.
    Uniform(Duration),
    /// Exponentially distributed with this mean.
    Exponential(Duration),
}

impl Jitter {
    fn draw(self, rng: &mut Rng) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Uniform(mean) => mean.mul_f64(2.0 * rng.unit()),
            Self::Exponential(mean) => mean.mul_f64(-rng.unit().ln()),
        }
    }

    fn mean(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Uniform(mean) | Self::Exponential(mean) => mean,
        }
    }
}

/// What limits a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Server {
    /// A full-duplex link: reads one way, everything else the other, each first in, first out, at this rate.
    Pipe {
        /// Bytes per second each way.
        bytes_per_s: f64,
    },
    /// A disk that serves `slots` requests at a time. Each has a time of its own, whatever its size.
    Disk {
        /// Requests at a time.
        slots: usize,
        /// Mean time of one; evenly distributed from half to one and a half times that.
        service: Duration,
    },
}

/// A path as the simulation has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// What limits it.
    pub server: Server,
    /// Delay of every request in addition to the server's time, there and back.
    pub delay: Duration,
    /// Random further delay.
    pub jitter: Jitter,
}

impl Model {
    /// A link of `gbit_per_s` Gb/s with this delay.
    #[must_use]
    pub fn pipe(gbit_per_s: f64, delay: Duration) -> Self {
        Self { server: Server::Pipe { bytes_per_s: gbit_per_s * 125e6 }, delay, jitter: Jitter::None }
    }

    /// A disk next door.
    #[must_use]
    pub fn disk(slots: usize, service: Duration) -> Self {
        Self { server: Server::Disk { slots, service }, delay: Duration::from_micros(100), jitter: Jitter::None }
    }

    /// The same with jitter.
    #[must_use]
    pub fn with_jitter(self, jitter: Jitter) -> Self {
        Self { jitter, ..self }
    }

    /// Most bytes per second, of requests of this mean size of which `one_way` use the busier direction.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn capacity(&self, mean_bytes: f64, one_way: f64) -> f64 {
        match self.server {
            Server::Pipe { bytes_per_s } => bytes_per_s / one_way,
            Server::Disk { slots, service } => slots as f64 * mean_bytes / service.as_secs_f64(),
        }
    }

    /// Mean latency in seconds of a request of this mean size that meets no other.
    #[must_use]
    pub fn latency(&self, mean_bytes: f64) -> f64 {
        let service = match self.server {
            Server::Pipe { bytes_per_s } => mean_bytes / bytes_per_s,
            Server::Disk { service, .. } => service.as_secs_f64(),
        };
        (self.delay + self.jitter.mean()).as_secs_f64() + service
    }
}

/// When a server is free again, since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy {
    /// When each direction of a pipe is free.
    directions: [Duration; 2],
    /// When each slot of a disk is free.
    slots: Vec<Duration>,
}

impl Busy {
    /// How long the path takes to answer a request that it is given now.
    pub(crate) fn serve(&mut self, now: Duration, model: &Model, bytes: u32, read: bool, rng: &mut Rng) -> Duration {
        let there = model.delay / 2;
        let back = model.delay.saturating_sub(there) + model.jitter.draw(rng);
        let arrives = now + there;
        let (free, service) = match model.server {
            Server::Pipe { bytes_per_s } => {
                (&mut self.directions[usize::from(read)], Duration::from_secs_f64(f64::from(bytes) / bytes_per_s))
            }
            Server::Disk { slots, service } => {
                self.slots.resize(slots, Duration::ZERO);
                let first = self.slots.iter_mut().min().expect("a disk has a slot");
                (first, service.mul_f64(0.5 + rng.unit()))
            }
        };
        *free = arrives.max(*free) + service;
        (*free + back).saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_pipe_delays_each_and_carries_one_after_the_other() {
        let model = Model { server: Server::Pipe { bytes_per_s: 1e6 }, delay: 2 * MS, jitter: Jitter::None };
        let (mut busy, mut rng) = (Busy::default(), Rng::single(1));
        let mut serve = |now, read| busy.serve(now, &model, 1000, read, &mut rng);
        assert_eq!([serve(Duration::ZERO, true), serve(Duration::ZERO, true)], [3 * MS, 4 * MS]);
        assert_eq!(serve(Duration::ZERO, false), 3 * MS, "the other way is free");
        assert_eq!(serve(10 * MS, true), 3 * MS);
    }

    #[test]
    fn a_disk_serves_as_many_as_it_has_slots() {
        let model = Model { delay: Duration::ZERO, ..Model::disk(2, 10 * MS) };
        let (mut busy, mut rng) = (Busy::default(), Rng::single(1));
        let mut ends = [(); 4].map(|()| busy.serve(Duration::ZERO, &model, 1 << 20, true, &mut rng));
        ends.sort_unstable();
        assert!(ends[1] <= 15 * MS && ends[2] >= 10 * MS, "{ends:?}");
    }
}
