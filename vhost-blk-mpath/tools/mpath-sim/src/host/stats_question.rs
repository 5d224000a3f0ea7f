//! A question to all I/O threads for their statistics. They answer one after the other, as in
//! `vhost-blk-mpath/src/io_threads/mod.rs`.

use std::sync::mpsc;

use mpath_core::GroupStats;

/// What an I/O thread calls with its answer.
type Reply = Box<dyn FnOnce(GroupStats) + Send>;

/// A question with the answers that have come.
#[derive(Debug)]
pub(super) struct StatsQuestion {
    answers: mpsc::Receiver<GroupStats>,
    /// The sum of the answers so far. `None` before the first answer, and if a thread has ended.
    sum: Option<GroupStats>,
    /// The number of threads that have not answered.
    missing: usize,
}

impl StatsQuestion {
    /// A question, and a function that makes the reply function for each thread.
    pub(super) fn new(threads: usize) -> (Self, impl Fn() -> Reply) {
        let (sender, answers) = mpsc::channel();
        let reply = move || -> Reply {
            let sender = sender.clone();
            // The receiver is gone if the task has asked another question since.
            Box::new(move |stats| drop(sender.send(stats)))
        };
        (Self { answers, sum: None, missing: threads }, reply)
    }

    /// Takes answers that have come. Returns whether the last one is among them.
    pub(super) fn has_last_answer(&mut self) -> bool {
        let was_answered = self.is_answered();
        while !self.is_answered() {
            match (self.answers.try_recv(), &mut self.sum) {
                (Ok(stats), sum @ None) => *sum = Some(stats),
                (Ok(stats), Some(sum)) => sum.merge(&stats),
                (Err(mpsc::TryRecvError::Empty), _) => return false,
                (Err(mpsc::TryRecvError::Disconnected), _) => (self.sum, self.missing) = (None, 1),
            }
            self.missing -= 1;
        }
        !was_answered
    }

    /// Whether all threads have answered, or one has ended.
    pub(super) fn is_answered(&self) -> bool {
        self.missing == 0
    }

    /// The sum of all answers; `None` if a thread has ended.
    pub(super) fn into_sum(self) -> Option<GroupStats> {
        self.sum
    }
}
