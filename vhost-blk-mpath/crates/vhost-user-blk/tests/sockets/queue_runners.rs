//! Connections with a runner that fails.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vhost::VhostBackend;
use vhost::vhost_user::Error::{Disconnected, PartialMessage, SocketBroken};
use vhost::vhost_user::VhostUserFrontend;
use vhost_user_blk::{BlkStatus, FrontEndConnection, Queue, QueueRunner, ServeError, VirtioDisk, serve_connection};
use virtio_guest::features::{FLUSH, LOG_ALL, PROTOCOL_FEATURES};

use crate::geometry;
use crate::guest::Guest;

/// Takes queues and does nothing with them. `stop` gives them back, or not.
#[derive(Default)]
pub(crate) struct QueueHolder {
    pub(crate) accepts: bool,
    pub(crate) gives_back: bool,
    pub(crate) queues: Mutex<Vec<Queue>>,
}

impl QueueRunner for QueueHolder {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        if !self.accepts {
            return Err(queue);
        }
        self.queues.lock().unwrap().push(queue);
        Ok(())
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        let mut queues = self.queues.lock().unwrap();
        let mut take = |index: &u16| {
            let at = queues.iter().position(|queue| queue.index() == *index)?;
            self.gives_back.then(|| queues.remove(at))
        };
        indices.iter().map(&mut take).collect()
    }
}

/// Serves one connection with `runner`, driven by `front_end`. Returns how it ended.
fn serve(runner: &QueueHolder, front_end: impl FnOnce(Guest)) -> Result<(), ServeError> {
    serve_stream(runner, |stream| front_end(Guest::over(stream, PROTOCOL_FEATURES | FLUSH)))
}

/// Like [`serve`], for a front-end that gets the stream.
pub(crate) fn serve_stream(runner: &QueueHolder, front_end: impl FnOnce(UnixStream)) -> Result<(), ServeError> {
    let disk = Arc::new(VirtioDisk::new(geometry()).unwrap());
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        let served = scope.spawn(|| serve_connection(ours, &disk, runner));
        front_end(theirs);
        served.join().unwrap()
    })
}

#[test]
fn a_queue_that_no_thread_takes_ends_the_connection() {
    let outcome = serve(&QueueHolder::default(), |mut guest| {
        guest.share_memory();
        let ring = guest.set_up(0);
        guest.frontend.set_vring_kick(0, &ring.kick).unwrap();
        assert!(guest.frontend.set_vring_enable(0, true).is_err());
    });
    assert!(matches!(outcome, Err(ServeError::NotStarted(0))));
}

#[test]
fn a_queue_that_is_not_drained_in_time_ends_the_connection_unanswered() {
    let holder = QueueHolder { accepts: true, ..QueueHolder::default() };
    let outcome = serve(&holder, |mut guest| {
        guest.share_memory();
        let _ring = guest.start(2);
        assert!(guest.frontend.get_vring_base(2).is_err(), "any answer would be a false promise");
    });
    assert!(matches!(outcome, Err(ServeError::NotDrained(2))));
}

/// The connection ends without an answer. QEMU before 10.1 would end itself on an error, but not on a hang-up.
#[test]
fn a_migration_that_cannot_begin_is_a_hang_up() {
    let holder = QueueHolder { accepts: true, ..QueueHolder::default() };
    let outcome = serve(&holder, |mut guest| {
        guest.share_memory();
        let _ring = guest.start(1);
        let error = guest.frontend.set_features(PROTOCOL_FEATURES | FLUSH | LOG_ALL).unwrap_err();
        let hang_up = matches!(error, vhost::Error::VhostUserProtocol(Disconnected | PartialMessage | SocketBroken(_)));
        assert!(hang_up, "{error:?}");
    });
    assert!(matches!(outcome, Err(ServeError::NotDrained(1))));
}

#[test]
fn a_queue_given_back_with_requests_outstanding_was_not_drained() {
    let holder = QueueHolder { accepts: true, gives_back: true, ..QueueHolder::default() };
    let taken = Mutex::new(None);
    let outcome = serve(&holder, |mut guest| {
        guest.share_memory();
        let mut ring = guest.start(0);
        ring.submit(0, 1, 0, &[7; 512]);
        *taken.lock().unwrap() = holder.queues.lock().unwrap()[0].pop().unwrap();
        assert!(guest.frontend.get_vring_base(0).is_err());
    });
    assert!(matches!(outcome, Err(ServeError::NotDrained(0))));
    // Front-end and queue are gone. The request's buffers are still mapped.
    let request = taken.into_inner().unwrap().unwrap();
    let mut data = [0; 512];
    request.segments.copy_to(0, &mut data);
    assert_eq!(data, [7; 512]);
}

#[test]
fn a_hang_up_takes_all_queues_back() {
    let holder = QueueHolder { accepts: true, gives_back: true, ..QueueHolder::default() };
    let outcome = serve(&holder, |mut guest| {
        guest.share_memory();
        for index in 0..4 {
            guest.start(index);
        }
        assert_eq!(holder.queues.lock().unwrap().len(), 4);
    });
    outcome.unwrap();
    assert!(holder.queues.lock().unwrap().is_empty());
}

#[test]
fn completions_left_unpublished_are_published_when_a_queue_stops() {
    let holder = QueueHolder { accepts: true, gives_back: true, ..QueueHolder::default() };
    let outcome = serve(&holder, |mut guest| {
        guest.share_memory();
        let mut ring = guest.start(0);
        ring.submit(0, 0, 0, &[0; 512]);
        {
            let mut queues = holder.queues.lock().unwrap();
            let request = queues[0].pop().unwrap().unwrap();
            queues[0].complete(request, BlkStatus::IoErr);
        }
        assert!(ring.reap().is_empty());
        assert_eq!(guest.frontend.get_vring_base(0).unwrap(), 1);
        assert_eq!((ring.reap(), ring.status(0)), (vec![0], 1));
    });
    outcome.unwrap();
}

/// Its thread has something else to do, and another one goes on.
#[test]
fn a_quiet_connection_is_given_back_with_its_virtqueues() {
    let holder = QueueHolder { accepts: true, gives_back: true, ..QueueHolder::default() };
    let disk = Arc::new(VirtioDisk::new(geometry()).unwrap());
    let (ours, theirs) = UnixStream::pair().unwrap();
    let connection = FrontEndConnection::new(ours, &disk, Box::new(&holder)).unwrap();
    let front_end = thread::spawn(|| {
        let mut guest = Guest::over(theirs, PROTOCOL_FEATURES | FLUSH);
        guest.share_memory();
        (guest.start(0), guest)
    });
    let mut connection = connection;
    while !front_end.is_finished() {
        connection = connection.serve(Duration::ZERO).continue_value().unwrap();
    }
    let (_ring, guest) = front_end.join().unwrap();
    assert_eq!(holder.queues.lock().unwrap().len(), 1);
    let is_readable = |connection: &FrontEndConnection<'_>| {
        let mut fds = connection.wakers().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    };
    assert!(!is_readable(&connection));
    drop(guest);
    assert!(is_readable(&connection));
    connection.serve(Duration::ZERO).break_value().expect("it has left").unwrap();
    assert!(holder.queues.lock().unwrap().is_empty());
}
