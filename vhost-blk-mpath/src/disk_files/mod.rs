//! The files of a disk, next to its vhost-user socket: what a daemon leaves to the next one.
//!
//! * `.fence`: the [fence record](fence_record), and `.fence.lock`, its [lock](lock).
//! * `.shown`: the disk as front-ends [were shown](shown_disk) it.
//! * `.state`: [hints](state_file).
//! * `.history`: its [history](history_file).

pub(crate) mod fence_record;
mod file;
pub(crate) mod history_file;
pub(crate) mod lock;
pub(crate) mod shown_disk;
pub(crate) mod state_file;

pub(crate) use file::with_suffix;
