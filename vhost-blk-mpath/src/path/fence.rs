//! Drives the fences of a subsystem's lost associations: time, the drain of their sockets, and the paths that can have their
//! controllers reset.

use std::future::pending;
use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpath_core::{Epoch, PathId};
use mpath_host::{AssociationId, DRAIN_MAX, Ended, Fences, Left, Lifted};
use nvme_tcp::host::CrossResetOutcome;
use nvme_tcp::wire::ControllerInstance;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout};

use crate::subsystem::Subsystem;
use crate::transport::AdminConnection;

/// The fences of a subsystem, and who waits for a change of them.
#[derive(Default)]
pub(crate) struct SharedFences(watch::Sender<Fences>);

impl SharedFences {
    fn change(&self, change: impl FnOnce(&mut Fences, Instant)) {
        self.0.send_modify(|fences| change(fences, now()));
    }

    /// A live association's controller can reset others, until [`withdraw_resets`](Self::withdraw_resets).
    pub(crate) fn offer_resets(&self, id: AssociationId) {
        self.change(|fences, _| fences.offer_resets(id));
    }

    pub(crate) fn withdraw_resets(&self, path: PathId) {
        self.change(|fences, _| fences.withdraw_resets(path));
    }

    /// Waits for the next controller that this path's is to reset; [`reset_answered`](Self::reset_answered) is to follow. Dropping
    /// the future loses nothing.
    pub(crate) async fn next_reset(&self, path: PathId) -> ControllerInstance {
        let mut changes = self.0.subscribe();
        loop {
            let mut next = None;
            self.0.send_if_modified(|fences| {
                next = fences.next_reset(now(), path);
                next.is_some()
            });
            if let Some(next) = next {
                return next;
            }
            changes.changed().await.expect("the sender is this one's own");
        }
    }

    /// What came of it; `None` if the controller was not asked.
    pub(crate) fn reset_answered(&self, path: PathId, outcome: Option<CrossResetOutcome>) {
        self.change(|fences, now| fences.reset_answered(now, path, outcome));
    }

    /// Waits until nothing that was sent on the path can be executed any more.
    pub(crate) async fn lifted(&self, path: PathId) {
        let _ = self.0.subscribe().wait_for(|fences| !fences.holds(path)).await;
    }

    /// Waits for the next fence to be lifted.
    async fn next_lifted(&self) -> Lifted {
        let mut changes = self.0.subscribe();
        loop {
            let (mut lifted, mut next) = (None, None);
            self.0.send_if_modified(|fences| {
                // Others may be asked in place of who has not answered in time.
                let is_due = fences.next_timeout().is_some_and(|at| at <= now());
                if is_due {
                    fences.handle_timeout(now());
                }
                (lifted, next) = (fences.poll_lifted(), fences.next_timeout());
                is_due || lifted.is_some()
            });
            if let Some(lifted) = lifted {
                return lifted;
            }
            let time = async {
                match next {
                    Some(at) => sleep_until(at.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = time => {}
                changed = changes.changed() => changed.expect("the sender is this one's own"),
            }
        }
    }
}

/// The time as the runtime counts it, which tests have stand still.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Lifts the fences of a subsystem until its end.
pub(crate) async fn run(subsystem: Arc<Subsystem>) {
    let mut shutdown = subsystem.shutdown.clone();
    loop {
        let Lifted { of, by, after } = tokio::select! {
            lifted = subsystem.fences.next_lifted() => lifted,
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        };
        subsystem.path_fence_lifted(of.path, by, after);
        subsystem.threads().iter().for_each(|thread| thread.fence_lifted(of.path, of.epoch));
        // The next one may be due while the record is being written.
        let subsystem = Arc::clone(&subsystem);
        tokio::spawn(async move { subsystem.record_ended(of.path, of.epoch).await });
    }
}

/// Nothing of an association that needs no fence can be executed any more.
pub(crate) async fn lift(subsystem: &Subsystem, path: PathId, epoch: Epoch) {
    subsystem.threads().iter().for_each(|thread| thread.fence_lifted(path, epoch));
    subsystem.record_ended(path, epoch).await;
}

/// An association that gets nothing more to do, and whose controller is to close the connections.
pub(crate) struct Draining {
    /// Open as long as the others: with it the controller would go.
    pub(crate) admin: AdminConnection,
    /// The sockets of its I/O queues, whose sending side is shut down.
    pub(crate) queues: Vec<OwnedFd>,
}

/// Begins the fence of an association whose sockets are all closed except for those that drain: the task that sees to these.
pub(crate) fn begin(
    subsystem: &Arc<Subsystem>,
    path: PathId,
    left: &LeftBehind,
    draining: Option<Draining>,
) -> Option<JoinHandle<()>> {
    let of = AssociationId { path, epoch: left.epoch };
    let ended = Ended { of, fence_time: left.fence_time, instance: left.instance, is_draining: draining.is_some() };
    subsystem.fences.change(|fences, now| fences.begin(now, ended));
    let draining = draining?;
    let subsystem = Arc::clone(subsystem);
    Some(tokio::spawn(async move {
        let mut changes = subsystem.fences.0.subscribe();
        let executed = tokio::select! {
            // What does not drain is closed with the future, with RST.
            drained = timeout(DRAIN_MAX, drain(draining)) => drained == Ok(true),
            _ = changes.wait_for(|fences| !fences.is_held(of)) => return,
        };
        subsystem.fences.change(|fences, now| fences.drained(now, of, executed));
    }))
}

/// What the fence of an association has to know of it.
pub(crate) struct LeftBehind {
    epoch: Epoch,
    fence_time: Duration,
    instance: Option<ControllerInstance>,
}

impl From<&Left> for LeftBehind {
    fn from(left: &Left) -> Self {
        let fence_time = if cfg!(feature = "without-fence") { Duration::ZERO } else { left.info.fence_time() };
        Self { epoch: left.epoch, fence_time, instance: left.info.instance() }
    }
}

/// Whether the controller has executed everything and said so.
async fn drain(Draining { mut admin, queues }: Draining) -> bool {
    let mut ends = pin!(read_to_end(queues));
    loop {
        tokio::select! {
            ended = &mut ends => match ended {
                Ok(()) => break,
                Err(_) => return false,
            },
            // Its keep-alives go on.
            event = admin.next_event() => if event.is_err() {
                return false;
            },
        }
    }
    // A controller that is taken down, or whose keep-alive timer has expired while this host stood still, closes its connections
    // too, and may do so before it has executed everything. This one was there after it had closed them.
    admin.shutdown().await
}

/// Reads what still comes, which is for nobody any more: the requests it answers are held, and repeated.
async fn read_to_end(sockets: Vec<OwnedFd>) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let sockets: Vec<_> = sockets.into_iter().map(ResetOnDrop).collect();
    for ResetOnDrop(socket) in &sockets {
        let socket = StdTcpStream::from(socket.try_clone()?);
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket)?;
        while socket.read(&mut buffer).await? > 0 {}
    }
    Ok(())
}

/// What has not been delivered when the time to drain is over never is.
struct ResetOnDrop(OwnedFd);

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        reactor::reset(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use mpath_host::LiftedBy;
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LOST: ControllerInstance = ControllerInstance { cntlid: 7, ciu: 1, cirn: 2 };
    const A: PathId = PathId(0);
    const B: PathId = PathId(1);
    const C: PathId = PathId(2);

    fn id(path: PathId) -> AssociationId {
        AssociationId { path, epoch: Epoch(1) }
    }

    fn ended(is_draining: bool) -> Ended {
        Ended { of: id(A), fence_time: 10 * SECOND, instance: Some(LOST), is_draining }
    }

    #[tokio::test(start_paused = true)]
    async fn another_path_is_asked_when_one_does_not_answer() {
        let fences = SharedFences::default();
        let begun = now();
        // One that waits already, and one that comes later.
        let silent = async {
            assert_eq!(fences.next_reset(B).await, LOST);
        };
        let able = async {
            sleep(SECOND).await;
            fences.offer_resets(id(C));
            assert_eq!(fences.next_reset(C).await, LOST);
            assert_eq!(now() - begun, 2 * SECOND);
            fences.reset_answered(C, Some(CrossResetOutcome::Done));
        };
        fences.offer_resets(id(B));
        fences.change(|fences, now| fences.begin(now, ended(false)));
        let (lifted, (), ()) = tokio::join!(fences.next_lifted(), silent, able);
        assert_eq!((lifted.of, lifted.by, lifted.after), (id(A), LiftedBy::CrossReset(C), 2 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn time_lifts_a_fence_and_whoever_waits_for_it_is_told_last() {
        let fences = SharedFences::default();
        fences.change(|fences, now| fences.begin(now, ended(true)));
        let drained = async {
            sleep(3 * SECOND).await;
            fences.change(|fences, now| fences.drained(now, id(A), false));
        };
        let begun = now();
        let (lifted, (), ()) = tokio::join!(fences.next_lifted(), drained, fences.lifted(A));
        assert_eq!((lifted.by, now() - begun), (LiftedBy::Time, 13 * SECOND));
    }
}
