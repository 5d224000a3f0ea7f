//! Decides: a modelled path behaves like this.
//!
//! How a path behaves.

use monotonic::Duration;

use crate::rng::Rng;

/// What limits a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Server {
    /// A full-duplex link: reads one way, everything else the other, each first in, first out, at this rate.
    Pipe { bytes_per_s: f64 },
    /// A disk that serves `slots` requests at a time. The time of a request is drawn, and does not depend on its size.
    Disk {
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
    /// Mean of an exponentially distributed addition to the delay.
    pub jitter: Duration,
}

impl Model {
    /// A link of `gbit_per_s` Gb/s with this delay.
    pub fn pipe(gbit_per_s: f64, delay: Duration) -> Self {
        Self { server: Server::Pipe { bytes_per_s: gbit_per_s * 125e6 }, delay, jitter: Duration::ZERO }
    }

    /// A disk next door.
    pub fn disk(slots: usize, service: Duration) -> Self {
        Self { server: Server::Disk { slots, service }, delay: Duration::from_micros(100), jitter: Duration::ZERO }
    }

    pub fn with_jitter(self, jitter: Duration) -> Self {
        Self { jitter, ..self }
    }

    /// Most bytes per second, of requests of this mean size of which `one_way` use the busier direction.
    #[allow(clippy::cast_precision_loss)]
    pub fn capacity(&self, mean_bytes: f64, one_way: f64) -> f64 {
        match self.server {
            Server::Pipe { bytes_per_s } => bytes_per_s / one_way,
            Server::Disk { slots, service } => slots as f64 * mean_bytes / service.as_secs_f64(),
        }
    }

    /// Mean latency in seconds of a request of this mean size that meets no other.
    pub fn latency(&self, mean_bytes: f64) -> f64 {
        let service = match self.server {
            Server::Pipe { bytes_per_s } => mean_bytes / bytes_per_s,
            Server::Disk { service, .. } => service.as_secs_f64(),
        };
        (self.delay + self.jitter).as_secs_f64() + service
    }
}

/// When the server of a path is free again, counted from the start.
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
        let jitter = if model.jitter.is_zero() { Duration::ZERO } else { model.jitter.mul_f64(-rng.unit().ln()) };
        let back = model.delay.saturating_sub(there) + jitter;
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
        let model = Model { server: Server::Pipe { bytes_per_s: 1e6 }, delay: 2 * MS, jitter: Duration::ZERO };
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
