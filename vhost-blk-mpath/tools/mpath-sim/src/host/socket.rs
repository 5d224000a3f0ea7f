//! The sockets of the tasks of paths and of discovery.

use std::collections::VecDeque;
use std::fmt;

use crate::connection::{ConnId, Side};
use crate::context::Ctx;

/// A socket or a write of the fence record failed.
#[derive(Debug)]
pub(crate) struct IoFailure;

impl fmt::Display for IoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed")
    }
}

impl std::error::Error for IoFailure {}

/// Sends as many bytes as the socket takes.
pub(super) fn send_all(ctx: &mut Ctx, conn: ConnId, out: &mut VecDeque<u8>) {
    while !out.is_empty() {
        let sent = ctx.net.send(&mut ctx.clock, conn, Side::Host, out.make_contiguous());
        out.drain(..sent);
        if sent == 0 {
            break;
        }
    }
}
