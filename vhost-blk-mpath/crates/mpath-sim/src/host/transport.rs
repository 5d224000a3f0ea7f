//! An admin connection, and a queue pair on its way to an I/O thread, as `vhost-blk-mpath/src/transport.rs` has them.

use std::collections::VecDeque;
use std::time::Instant;

use nvme_tcp::host::{
    ControllerEvent, ControllerInfo, HostController, HostQueue, PayloadSink, PayloadSource, STAGING_MIN, Tag,
};
use nvme_tcp::wire::ControllerInstance;

use crate::net::{ConnId, Side};
use crate::rng::Rng;
use crate::target::Ctx;

#[derive(Debug)]
pub(super) struct Admin {
    pub(super) conn: ConnId,
    /// Made when TCP is connected.
    pub(super) controller: Option<Box<HostController>>,
    pub(super) out: VecDeque<u8>,
}

#[derive(Debug)]
pub(super) struct Handshake {
    pub(super) conn: ConnId,
    pub(super) queue: HostQueue,
    pub(super) deadline: Instant,
}

/// The association is over, or never came to be.
pub(super) struct Lost;

impl Admin {
    /// Asks the controller to reset another one, if it can.
    pub(super) fn reset(&mut self, other: ControllerInstance) -> bool {
        self.controller.as_mut().is_some_and(|controller| controller.cross_controller_reset(other).is_ok())
    }

    pub(super) fn reread_ana(&mut self, now: Instant) {
        if let Some(controller) = &mut self.controller {
            controller.reread_ana(now);
        }
    }

    /// What is known of a live controller by now.
    pub(super) fn info(&self) -> &ControllerInfo {
        let controller = self.controller.as_ref().expect("made before it was live");
        controller.info().expect("the controller is live")
    }

    /// Runs the controller until it has something to say, or waits.
    pub(super) fn next_event(&mut self, ctx: &mut Ctx<'_>, rng: &mut Rng) -> Result<Option<ControllerEvent>, Lost> {
        let now = ctx.clock.now();
        let Some(controller) = &mut self.controller else { return Ok(None) };
        loop {
            let mut out = Vec::new();
            controller.fill_tx(&mut out);
            self.out.extend(out);
            while !self.out.is_empty() {
                let sent = ctx.net.send(ctx.clock, self.conn, Side::Host, self.out.make_contiguous());
                self.out.drain(..sent);
                if sent == 0 {
                    break;
                }
            }
            if let Some(event) = controller.poll_event() {
                return Ok(Some(event));
            }
            let most = rng.pick(&[7, 512, 16 * 1024]);
            let bytes = ctx.net.receive(ctx.clock, self.conn, Side::Host, most);
            if !bytes.is_empty() {
                controller.receive(now, &bytes).map_err(|_| Lost)?;
            } else if ctx.net.is_reset(self.conn, Side::Host) {
                return Err(Lost);
            } else if controller.next_timeout().is_some_and(|at| at <= now) {
                controller.handle_timeout(now).map_err(|_| Lost)?;
            } else {
                return Ok(None);
            }
        }
    }
}

impl Handshake {
    pub(super) fn go_on(&mut self, ctx: &mut Ctx<'_>) -> Result<(), Lost> {
        if ctx.net.is_reset(self.conn, Side::Host) {
            return Err(Lost);
        }
        if !ctx.net.is_established(self.conn) {
            return Ok(());
        }
        while !self.queue.is_ready() {
            let (mut staging, mut plan) = (Vec::with_capacity(STAGING_MIN), Vec::new());
            self.queue.fill_tx(ctx.clock.now(), &mut staging, &NoPayload, &mut plan, u32::MAX);
            ctx.net.send(ctx.clock, self.conn, Side::Host, &staging);
            let bytes = ctx.net.receive(ctx.clock, self.conn, Side::Host, 512);
            if bytes.is_empty() {
                break;
            }
            self.queue.receive(&bytes, &mut NoPayload).map_err(|_| Lost)?;
        }
        Ok(())
    }
}

/// During the handshake there is no request, and so no payload.
struct NoPayload;

impl PayloadSource for NoPayload {
    fn gather(&self, _: Tag, _: u32, _: &mut [u8]) {
        unreachable!("no request before the queue pair is ready");
    }
}

impl PayloadSink for NoPayload {
    fn scatter(&mut self, _: Tag, _: u32, _: &[u8]) {
        unreachable!("no request before the queue pair is ready");
    }
}
