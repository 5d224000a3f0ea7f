//! How the task of a lost path has its controller reset by another one: live paths whose controllers can do that offer it
//! here, and answer.
//!
//! Asking never holds up whom it asks. It sends one command on its admin queue beside all else, one at a time.

use std::time::Duration;

use mpath_core::PathId;
use nvme_tcp::host::{ControllerInfo, CrossResetOutcome, CrossResetRefusal};
use nvme_tcp::wire::ControllerInstance;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

/// How many requests a path keeps while its controller is busy with one. They come from lost paths, of which there are few.
const WAITING_MAX: usize = 64;
/// How long one controller may take before another one is asked.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

/// What came of a request.
type Answer = Result<CrossResetOutcome, CrossResetRefusal>;

struct Request {
    lost: ControllerInstance,
    reply: oneshot::Sender<Answer>,
}

/// Whom a disk's paths can ask.
pub(crate) struct Resetters {
    /// By path: the way to its latest association that has offered itself.
    offers: watch::Sender<Vec<Option<mpsc::Sender<Request>>>>,
}

impl Resetters {
    /// Of a disk with so many paths, none of which is live.
    pub(crate) fn new(paths: usize) -> Self {
        Self { offers: watch::Sender::new(vec![None; paths]) }
    }

    /// Offers what a live association's controller can do, which may be nothing. The offer ends with what is returned.
    pub(crate) fn offer(&self, path: PathId, info: &ControllerInfo) -> Resetter {
        let (sender, requests) = mpsc::channel(WAITING_MAX);
        let offer = (info.cross_resets > 0).then_some(sender);
        self.offers.send_modify(|offers| offers[usize::from(path.0)] = offer);
        Resetter { requests, under_way: None }
    }

    /// Has the controller of an ended association reset. Each association that offers itself is asked once, those too that
    /// come while this waits. Ends with the first success: the path by way of which it came.
    pub(crate) async fn reset(&self, lost: ControllerInstance) -> PathId {
        let mut offers = self.offers.subscribe();
        let mut asked: Vec<Option<mpsc::Sender<Request>>> = vec![None; offers.borrow().len()];
        loop {
            let now = offers.borrow_and_update().clone();
            for (index, offer) in now.into_iter().enumerate() {
                let Some(offer) = offer else { continue };
                if asked[index].as_ref().is_some_and(|asked| asked.same_channel(&offer)) {
                    continue;
                }
                asked[index] = Some(offer.clone());
                match ask(&offer, lost).await {
                    Some(Ok(CrossResetOutcome::Done)) => return PathId(index as u16),
                    answer => tracing::debug!(cntlid = lost.cntlid, by = index, ?answer, "no cross-controller reset"),
                }
            }
            if offers.changed().await.is_err() {
                unreachable!("the sender is this one's own");
            }
        }
    }
}

/// `None`: no answer, or nobody there any more.
async fn ask(offer: &mpsc::Sender<Request>, lost: ControllerInstance) -> Option<Answer> {
    let (reply, answer) = oneshot::channel();
    offer.try_send(Request { lost, reply }).ok()?;
    timeout(ATTEMPT_MAX, answer).await.ok()?.ok()
}

/// The side of the path that is asked.
pub(crate) struct Resetter {
    requests: mpsc::Receiver<Request>,
    /// Whom the controller's answer is for.
    under_way: Option<oneshot::Sender<Answer>>,
}

impl Resetter {
    /// The next controller to reset; [`answer`](Self::answer) is to follow, until then there is none. Dropping the future
    /// loses nothing.
    pub(crate) async fn next(&mut self) -> ControllerInstance {
        while self.under_way.is_none()
            && let Some(Request { lost, reply }) = self.requests.recv().await
        {
            // Who has another fence by now asks no more.
            if !reply.is_closed() {
                self.under_way = Some(reply);
                return lost;
            }
        }
        std::future::pending().await
    }

    /// What has come of it.
    pub(crate) fn answer(&mut self, answer: Answer) {
        if let Some(reply) = self.under_way.take() {
            // Nobody listens any more if another fence was first.
            let _ = reply.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use nvme_tcp::wire::Status;
    use tokio::time::Instant;

    use super::*;
    use crate::geometry::tests::controller;

    const A: PathId = PathId(0);
    const B: PathId = PathId(1);
    const C: PathId = PathId(2);
    const LOST: ControllerInstance = ControllerInstance { cntlid: 7, ciu: 1, cirn: 2 };

    fn able() -> ControllerInfo {
        ControllerInfo { cross_resets: 1, ..controller() }
    }

    /// Answers one request.
    async fn serve(mut resetter: Resetter, answer: Answer) -> Resetter {
        assert_eq!(resetter.next().await, LOST);
        resetter.answer(answer);
        resetter
    }

    /// Runs in virtual time.
    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(future)
    }

    #[test]
    fn the_first_success_counts_and_nobody_is_asked_twice() {
        run(async {
            let resetters = Resetters::new(3);
            let unable = resetters.offer(A, &ControllerInfo { cross_resets: 0, ..controller() });
            let failing = resetters.offer(B, &able());
            let failed = tokio::spawn(serve(failing, Ok(CrossResetOutcome::Failed(Status::INTERNAL_ERROR))));
            let later = async {
                tokio::time::sleep(Duration::from_secs(3)).await;
                // The one that failed is there still.
                let begun = serve(resetters.offer(A, &able()), Ok(CrossResetOutcome::Begun)).await;
                let done = serve(resetters.offer(C, &able()), Ok(CrossResetOutcome::Done)).await;
                (begun, done)
            };
            let (by, _others) = tokio::join!(resetters.reset(LOST), later);
            assert_eq!(by, C);
            let mut failed = failed.await.unwrap();
            assert!(timeout(Duration::from_secs(9), failed.next()).await.is_err(), "asked once");
            drop(unable);
        });
    }

    #[test]
    fn who_does_not_answer_or_is_lost_meanwhile_is_passed_over() {
        run(async {
            let resetters = Resetters::new(3);
            let mut silent = resetters.offer(A, &able());
            let mut lost = resetters.offer(B, &able());
            let done = resetters.offer(C, &able());
            let start = Instant::now();
            let losing = async {
                lost.next().await;
                drop(lost);
            };
            let (by, ..) =
                tokio::join!(resetters.reset(LOST), silent.next(), losing, serve(done, Ok(CrossResetOutcome::Done)));
            assert_eq!((by, start.elapsed()), (C, ATTEMPT_MAX));
            // Its controller is still busy; a late answer is for nobody.
            assert!(timeout(Duration::from_secs(9), silent.next()).await.is_err());
            silent.answer(Ok(CrossResetOutcome::Done));
        });
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_asked() {
        run(async {
            let resetters = Resetters::new(1);
            let mut one = resetters.offer(A, &able());
            assert!(timeout(Duration::from_secs(1), resetters.reset(LOST)).await.is_err());
            let other = ControllerInstance { cntlid: 8, ..LOST };
            let (_, asked) = tokio::join!(timeout(Duration::from_secs(1), resetters.reset(other)), one.next());
            assert_eq!(asked, other);
        });
    }
}
