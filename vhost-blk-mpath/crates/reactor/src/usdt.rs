//! Static probes (USDT) in the life of a request, for bpftrace and perf. A probe that is not traced is one
//! `nop`. The page `docs/operating/slow-requests.md` lists the probes and their arguments.

use mpath_core::{Io, IoError, PathId, Tag};
use probe::probe;

/// A request was fetched from its virtqueue.
#[inline]
pub(crate) fn fetched(io: &Io) {
    probe!(vhost_blk_mpath, request_fetched, io.tag.0, io.flow.0, io.op.index(), io.bytes);
}

/// A request goes to the queue pair of a path.
#[inline]
pub(crate) fn issued(tag: Tag, path: PathId) {
    probe!(vhost_blk_mpath, request_issued, tag.0, path.0);
}

/// A path has answered, or has given back, a request.
#[inline]
pub(crate) fn answered(tag: Tag, path: PathId) {
    probe!(vhost_blk_mpath, request_answered, tag.0, path.0);
}

/// A request is over.
#[inline]
pub(crate) fn finished(tag: Tag, result: Result<(), IoError>) {
    probe!(vhost_blk_mpath, request_finished, tag.0, result.is_err());
}
