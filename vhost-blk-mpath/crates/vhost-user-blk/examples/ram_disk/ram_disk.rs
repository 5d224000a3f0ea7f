//! A disk in memory: one thread per queue, blocking on the kick descriptor.

#![allow(clippy::unwrap_used)] // a panic is the right end here

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use vhost_user_blk::{BlkStatus, Op, Queue, QueueRunner, Request, SECTOR_BYTES, VirtioDisk};

/// Time limit of `stop`.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Counts of the disk's operations.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) flushes: u64,
    pub(crate) durable_writes: u64,
    pub(crate) starts: u64,
}

pub(crate) struct RamDisk {
    bytes: Arc<RwLock<Vec<u8>>>,
    counters: Arc<Mutex<Counters>>,
    running: Mutex<HashMap<u16, Worker>>,
}

struct Worker {
    /// A write to it stops the worker.
    stop: UnixStream,
    queue: Receiver<Queue>,
}

impl RamDisk {
    pub(crate) fn new(disk: &VirtioDisk) -> Self {
        let bytes = vec![0; (disk.geometry().capacity_sectors * SECTOR_BYTES) as usize];
        let (bytes, counters) = (Arc::new(RwLock::new(bytes)), Arc::default());
        Self { bytes, counters, running: Mutex::default() }
    }

    /// Puts `contents` at the start of the disk.
    #[allow(dead_code)] // the tests have no use for it
    pub(crate) fn load(&self, contents: &[u8]) {
        let mut bytes = self.bytes.write().unwrap();
        for (byte, value) in bytes.iter_mut().zip(contents) {
            *byte = *value;
        }
    }

    /// Makes room for a disk that grows.
    #[allow(dead_code)] // the example has no use for it
    pub(crate) fn grow(&self, capacity_sectors: u64) {
        self.bytes.write().unwrap().resize((capacity_sectors * SECTOR_BYTES) as usize, 0);
    }

    #[allow(dead_code)] // the example has no use for it
    pub(crate) fn counters(&self) -> Arc<Mutex<Counters>> {
        Arc::clone(&self.counters)
    }

    #[allow(dead_code)] // the example has no use for it
    pub(crate) fn running(&self) -> usize {
        self.running.lock().unwrap().len()
    }
}

impl QueueRunner for RamDisk {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        let index = queue.index();
        let (stop, stopped) = UnixStream::pair().expect("a socket pair");
        let (give_back, taken_back) = channel();
        let (bytes, counters) = (Arc::clone(&self.bytes), Arc::clone(&self.counters));
        counters.lock().unwrap().starts += 1;
        thread::spawn(move || {
            // The receiver waits, unless its time limit has passed.
            let _ = give_back.send(run(queue, stopped, &bytes, &counters));
        });
        self.running.lock().unwrap().insert(index, Worker { stop, queue: taken_back });
        Ok(())
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        let mut running = self.running.lock().unwrap();
        let workers: Vec<_> = indices.iter().map(|index| running.remove(index)).collect();
        for worker in workers.iter().flatten() {
            (&worker.stop).write_all(&[1]).unwrap();
        }
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let left = || deadline.saturating_duration_since(Instant::now());
        workers.iter().map(|worker| worker.as_ref()?.queue.recv_timeout(left()).ok()).collect()
    }
}

fn run(mut queue: Queue, mut stopped: UnixStream, bytes: &RwLock<Vec<u8>>, counters: &Mutex<Counters>) -> Queue {
    loop {
        queue.disable_notifications();
        // A broken queue waits to be stopped like an idle one.
        while let Ok(Some(request)) = queue.pop() {
            execute(&request, bytes, counters);
            queue.complete(request, BlkStatus::Ok);
        }
        queue.publish();
        if queue.enable_notifications() {
            continue;
        }
        let kick = queue.kick_fd();
        let mut fds = [PollFd::from_borrowed_fd(kick, PollFlags::IN), PollFd::new(&stopped, PollFlags::IN)];
        poll(&mut fds, None).expect("poll on two descriptors of ours");
        if !fds[1].revents().is_empty() {
            let _ = stopped.read(&mut [0]);
            return queue;
        }
        queue.clear_kick();
    }
}

fn execute(request: &Request, bytes: &RwLock<Vec<u8>>, counters: &Mutex<Counters>) {
    let start = (request.sector * SECTOR_BYTES) as usize;
    let range = start..start + request.bytes as usize;
    match request.op {
        Op::Read => request.segments.copy_from(0, &bytes.read().unwrap()[range]),
        Op::Write { fua } => {
            request.segments.copy_to(0, &mut bytes.write().unwrap()[range]);
            counters.lock().unwrap().durable_writes += u64::from(fua);
        }
        Op::Flush => counters.lock().unwrap().flushes += 1,
        Op::Discard | Op::WriteZeroes { .. } => bytes.write().unwrap()[range].fill(0),
    }
}
