//! Decides: what an earlier daemon discovered counts.
//!
//! What discovery controllers listed to an earlier daemon. It counts until this daemon has read their logs.

use mpath_core::MAX_PATHS;
use serde::{Deserialize, Serialize};

use super::controller::Controller;

/// The paths in the last log of a discovery controller, for the next daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedLog<A> {
    /// The controller's address.
    pub address: A,
    /// Its NQN.
    pub subnqn: String,
    /// The listed paths of the disk's subsystem.
    pub paths: Vec<A>,
}

/// Drops what does not count any more. A log counts until its controller has given another. The log of an unknown controller counts
/// while a controller is to be heard that may refer to it.
pub(super) fn forget_heard<A: Eq>(saved: &mut Vec<SavedLog<A>>, controllers: &[Controller<A>]) {
    let some_unheard = controllers.iter().any(|controller| controller.log.is_none());
    saved.retain(|log| {
        let is_by = |of: &&Controller<A>| of.source.address == log.address && of.source.subnqn.as_str() == log.subnqn;
        controllers.iter().find(is_by).map_or(some_unheard, |controller| controller.log.is_none())
    });
}

/// The logs with the first [`MAX_PATHS`] addresses.
pub(super) fn bounded<A>(logs: impl Iterator<Item = SavedLog<A>>) -> Vec<SavedLog<A>> {
    let mut room = MAX_PATHS;
    let cut = |mut log: SavedLog<A>| {
        log.paths.truncate(room);
        room -= log.paths.len();
        log
    };
    logs.map(cut).filter(|log| !log.paths.is_empty()).collect()
}
