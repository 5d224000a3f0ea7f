//! A path's life, as `vhost-blk-mpath/src/path.rs` has it: connect, written down, live, closed by all I/O threads, connect again.
//! Its fence is that of [`super::fences`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mpath_core::{Association, Epoch, PathId};
use nvme_tcp::host::{ControllerEvent, ControllerInfo, HostController, HostQueue};

use super::fences::Fences;
use super::namespaces::{Namespaces, News, Unusable};
use super::transport::{Admin, Handshake, Lost};
use super::{HostPlan, Link, Message, Report, ReportKind};
use crate::clock::Event;
use crate::net::{ConnId, Side};
use crate::rng::Rng;
use crate::target::Ctx;

/// How long one attempt to connect may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How soon the control thread does what it has to, typically.
const WAKE: Duration = Duration::from_micros(50);
/// How long it takes to write an association down, typically.
const RECORD: Duration = Duration::from_millis(2);

/// When the operator looks why a path is not used.
const OPERATOR: Duration = Duration::from_secs(2);

/// There are four of these.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Life {
    Resting {
        until: Instant,
    },
    /// The admin connection: TCP, then everything there is to know.
    Admin {
        admin: Admin,
        deadline: Instant,
    },
    /// The queue pairs, one after the other.
    Queues {
        admin: Admin,
        info: Box<ControllerInfo>,
        namespaces: Namespaces,
        ready: Vec<(ConnId, HostQueue)>,
        next: Handshake,
    },
    /// The association is being written down.
    Recording {
        admin: Admin,
        info: Box<ControllerInfo>,
        namespaces: Namespaces,
        ready: Vec<(ConnId, HostQueue)>,
        until: Instant,
    },
    Live(Live),
    /// Waits for the I/O threads.
    Closing {
        info: Box<ControllerInfo>,
        open: usize,
    },
    /// It leads elsewhere: nothing is done with it until the operator removes it and adds it again.
    Refused {
        until: Instant,
    },
    /// It has no association, and gets none any more.
    Removed,
    /// Between two of the others.
    Changing,
}

/// A live association: its admin connection here, a queue pair in every I/O thread.
#[derive(Debug)]
struct Live {
    admin: Admin,
    info: Box<ControllerInfo>,
    namespaces: Namespaces,
    /// Queue pairs.
    open: usize,
}

#[derive(Debug)]
pub(crate) struct PathTask {
    path: PathId,
    plan: HostPlan,
    rng: Rng,
    epoch: Epoch,
    life: Life,
    /// The operator wants it to be gone.
    unwanted: bool,
    /// Every I/O thread knows that there is this path.
    pub(super) known: bool,
    reports: VecDeque<Report>,
    wake_at: Option<Instant>,
    /// For the I/O threads, to be posted after the turn.
    pub(crate) mail: Vec<(usize, Message)>,
}

impl PathTask {
    /// A path that begins to connect; its associations are counted from `epoch` on.
    pub(crate) fn new(now: Instant, path: PathId, epoch: Epoch, plan: HostPlan, rng: Rng) -> Self {
        Self {
            path,
            plan,
            rng,
            epoch,
            life: Life::Resting { until: now },
            unwanted: false,
            known: false,
            reports: VecDeque::new(),
            wake_at: None,
            mail: Vec::new(),
        }
    }

    pub(crate) fn owns(&self, id: ConnId) -> bool {
        match &self.life {
            Life::Admin { admin, .. } | Life::Live(Live { admin, .. }) => admin.conn == id,
            Life::Queues { admin, next, .. } => admin.conn == id || next.conn == id,
            Life::Resting { .. }
            | Life::Recording { .. }
            | Life::Closing { .. }
            | Life::Refused { .. }
            | Life::Removed
            | Life::Changing => false,
        }
    }

    /// Has it drop its association, if there is one.
    pub(super) fn remove(&mut self, ctx: &mut Ctx<'_>) {
        self.unwanted = true;
        self.wake(ctx);
    }

    pub(super) fn is_removed(&self) -> bool {
        matches!(self.life, Life::Removed)
    }

    /// Whether the operator finds that it leads elsewhere.
    pub(super) fn is_refused(&self, now: Instant) -> bool {
        matches!(self.life, Life::Refused { until } if until <= now)
    }

    /// The same path anew, after it was removed.
    pub(super) fn again(self, now: Instant) -> Self {
        Self::new(now, self.path, self.epoch, self.plan, self.rng)
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.life, Life::Live(_))
    }

    pub(crate) fn report(&mut self, ctx: &mut Ctx<'_>, report: Report) {
        self.reports.push_back(report);
        self.wake(ctx);
    }

    pub(crate) fn wake(&mut self, ctx: &mut Ctx<'_>) {
        let late = if self.rng.percent(2) { Duration::from_millis(10) } else { WAKE };
        let at = ctx.clock.now() + self.rng.tail(late);
        self.wake_at(ctx, at);
    }

    fn wake_at(&mut self, ctx: &mut Ctx<'_>, at: Instant) {
        if self.wake_at.is_none_or(|wake| at < wake) {
            self.wake_at = Some(at);
            ctx.clock.at(at, Event::Path(usize::from(self.path.0)));
        }
    }

    /// [`Event::Path`] has come.
    pub(super) fn turn(&mut self, ctx: &mut Ctx<'_>, fences: &mut Fences) {
        let now = ctx.clock.now();
        if self.wake_at != Some(now) {
            return;
        }
        self.wake_at = None;
        while self.go_on(ctx, fences) {}
        let next = match &self.life {
            Life::Resting { until } | Life::Refused { until } => Some(*until).filter(|until| now < *until),
            Life::Recording { until, .. } => self.known.then_some(*until),
            Life::Admin { admin, deadline } => match &admin.controller {
                None => Some(*deadline),
                Some(controller) => controller.next_timeout(),
            },
            Life::Queues { next, .. } => Some(next.deadline),
            Life::Live(Live { admin, .. }) => {
                admin.controller.as_ref().and_then(|controller| controller.next_timeout())
            }
            Life::Closing { .. } | Life::Removed | Life::Changing => None,
        };
        if let Some(at) = next {
            self.wake_at(ctx, at.max(now));
        }
    }

    fn mail_all(&mut self, message: impl Fn() -> Message) {
        (0..self.plan.threads).for_each(|thread| self.mail.push((thread, message())));
    }

    /// One step; whether there may be another.
    fn go_on(&mut self, ctx: &mut Ctx<'_>, fences: &mut Fences) -> bool {
        let now = ctx.clock.now();
        let (next, again) = match std::mem::replace(&mut self.life, Life::Changing) {
            Life::Resting { .. } | Life::Refused { .. } if self.unwanted => (Life::Removed, false),
            Life::Admin { admin, .. } if self.unwanted => {
                ctx.net.close(ctx.clock, admin.conn, Side::Host);
                (Life::Removed, false)
            }
            Life::Queues { admin, ready, next, .. } if self.unwanted => {
                let queues = ready.into_iter().map(|(conn, _)| conn);
                queues.chain([next.conn, admin.conn]).for_each(|conn| ctx.net.close(ctx.clock, conn, Side::Host));
                (Life::Removed, false)
            }
            Life::Resting { until } if until <= now => {
                self.epoch.0 += 1;
                let conn = ctx.net.connect(ctx.clock, usize::from(self.path.0));
                let admin = Admin { conn, controller: None, out: VecDeque::new() };
                (Life::Admin { admin, deadline: now + CONNECT_MAX }, true)
            }
            Life::Admin { admin, deadline } => self.learn(ctx, admin, deadline),
            Life::Queues { admin, info, namespaces, ready, next } => {
                self.shake_hands(ctx, admin, info, namespaces, ready, next)
            }
            Life::Recording { admin, info, namespaces, ready, until } if until <= now && self.known => {
                self.go_live(fences, admin, info, namespaces, ready)
            }
            Life::Live(live) => self.serve(ctx, fences, live),
            Life::Closing { info, mut open } => {
                while let Some(report) = self.reports.pop_front() {
                    open -= usize::from(report.kind == ReportKind::Closed && report.epoch == self.epoch);
                }
                if open == 0 {
                    fences.begin(now, self.path, self.epoch, &info);
                    (self.rest(now), false)
                } else {
                    (Life::Closing { info, open }, false)
                }
            }
            life => (life, false),
        };
        self.life = next;
        again
    }

    fn rest(&self, now: Instant) -> Life {
        Life::Resting { until: now + self.plan.reconnect_delay }
    }

    fn learn(&mut self, ctx: &mut Ctx<'_>, mut admin: Admin, deadline: Instant) -> (Life, bool) {
        let now = ctx.clock.now();
        if admin.controller.is_none() {
            if ctx.net.is_reset(admin.conn, Side::Host) || deadline <= now {
                ctx.net.close(ctx.clock, admin.conn, Side::Host);
                return (self.rest(now), false);
            }
            if !ctx.net.is_established(admin.conn) {
                return (Life::Admin { admin, deadline }, false);
            }
            let controller = HostController::new(self.plan.controller.clone(), now);
            admin.controller = Some(Box::new(controller.expect("the configuration is right")));
        }
        match admin.next_event(ctx, &mut self.rng) {
            Ok(Some(ControllerEvent::Live(info))) if usize::from(info.io_queues) >= self.plan.threads => {
                match Namespaces::new(&info, &self.plan.disks) {
                    Ok(namespaces) => {
                        let next = self.connect_queue(ctx, &info, &namespaces, 1);
                        (Life::Queues { admin, info, namespaces, ready: Vec::new(), next }, true)
                    }
                    Err(Unusable { refused }) => {
                        ctx.net.close(ctx.clock, admin.conn, Side::Host);
                        let until = now + OPERATOR;
                        (if refused { Life::Refused { until } } else { self.rest(now) }, false)
                    }
                }
            }
            Ok(None) => (Life::Admin { admin, deadline }, false),
            Ok(Some(_)) | Err(Lost) => {
                ctx.net.close(ctx.clock, admin.conn, Side::Host);
                (self.rest(now), false)
            }
        }
    }

    fn connect_queue(
        &mut self,
        ctx: &mut Ctx<'_>,
        info: &ControllerInfo,
        namespaces: &Namespaces,
        qid: u16,
    ) -> Handshake {
        let conn = ctx.net.connect(ctx.clock, usize::from(self.path.0));
        let mut config = info.queue_config(&self.plan.controller, qid);
        namespaces.restrict(&mut config);
        let queue = HostQueue::new(config).expect("what was learned is right");
        Handshake { conn, queue, deadline: ctx.clock.now() + CONNECT_MAX }
    }

    fn shake_hands(
        &mut self,
        ctx: &mut Ctx<'_>,
        admin: Admin,
        info: Box<ControllerInfo>,
        namespaces: Namespaces,
        mut ready: Vec<(ConnId, HostQueue)>,
        mut next: Handshake,
    ) -> (Life, bool) {
        let now = ctx.clock.now();
        if next.go_on(ctx).is_err() || next.deadline <= now {
            let queues = ready.into_iter().map(|(conn, _)| conn);
            queues.chain([next.conn, admin.conn]).for_each(|conn| ctx.net.close(ctx.clock, conn, Side::Host));
            return (self.rest(now), false);
        }
        if !next.queue.is_ready() {
            return (Life::Queues { admin, info, namespaces, ready, next }, false);
        }
        ctx.net.protect(next.conn, self.plan.controller.digests);
        ready.push((next.conn, next.queue));
        if ready.len() < self.plan.threads {
            let next = self.connect_queue(ctx, &info, &namespaces, ready.len() as u16 + 1);
            return (Life::Queues { admin, info, namespaces, ready, next }, true);
        }
        let until = now + self.rng.tail(RECORD);
        (Life::Recording { admin, info, namespaces, ready, until }, true)
    }

    /// The association is written down: it may be used.
    fn go_live(
        &mut self,
        fences: &mut Fences,
        admin: Admin,
        info: Box<ControllerInfo>,
        namespaces: Namespaces,
        ready: Vec<(ConnId, HostQueue)>,
    ) -> (Life, bool) {
        fences.record.add(self.path, self.epoch, info.fence_time());
        let association = Association {
            epoch: self.epoch,
            ana: namespaces.states(),
            volatile_write_cache: info.volatile_write_cache,
            queue_depth: info.queue_entries - 1,
        };
        for (thread, (conn, queue)) in ready.into_iter().enumerate() {
            let link = Box::new(Link { conn, queue, retry_delays: info.retry_delays });
            self.mail.push((thread, Message::PathUp { path: self.path, association, link }));
        }
        fences.offer(self.path, self.epoch, &info);
        (Life::Live(Live { admin, info, namespaces, open: self.plan.threads }), true)
    }

    fn serve(&mut self, ctx: &mut Ctx<'_>, fences: &mut Fences, mut live: Live) -> (Life, bool) {
        let (path, epoch, now) = (self.path, self.epoch, ctx.clock.now());
        let mut lost = self.unwanted;
        while !lost && let Some(report) = self.reports.pop_front() {
            match report.kind {
                _ if report.epoch != epoch => {}
                ReportKind::Closed => live.open -= 1,
                ReportKind::Lost => lost = true,
                ReportKind::AnaError => {
                    live.namespaces.asked();
                    live.admin.reread_ana(now);
                }
            }
        }
        while !lost {
            match live.admin.next_event(ctx, &mut self.rng) {
                Ok(Some(ControllerEvent::CrossControllerReset(outcome))) => fences.answer(ctx, path, Some(outcome)),
                Ok(Some(event)) => {
                    let before = live.namespaces.unusable();
                    match live.namespaces.on_event(&self.plan.disks, live.admin.info(), event) {
                        Ok(None) => {}
                        Ok(Some(News { disk, state, added })) => {
                            if let Some(limits) = added {
                                ctx.check.counts.namespaces_added += 1;
                                self.mail_all(|| Message::AddNamespace { path, epoch, disk, limits });
                            }
                            self.mail_all(|| Message::Ana { path, epoch, disk, state });
                        }
                        Err(_) => lost = true,
                    }
                    let unusable = live.namespaces.unusable();
                    ctx.check.counts.disks_lost += u64::from(unusable > before && !lost);
                    ctx.check.counts.ended_by_another += u64::from(lost && unusable < self.plan.disks.len());
                }
                Ok(None) => {
                    let Some(other) = fences.next(path) else {
                        return (Life::Live(live), false);
                    };
                    if !live.admin.reset(other) {
                        fences.answer(ctx, path, None);
                    }
                }
                Err(Lost) => lost = true,
            }
        }
        // Those who asked learn at once that nothing comes of it.
        fences.withdraw(path);
        let at = ctx.clock.elapsed();
        ctx.check.association_lost(at);
        ctx.net.close(ctx.clock, live.admin.conn, Side::Host);
        self.mail_all(|| Message::PathDown { path, epoch });
        (Life::Closing { info: live.info, open: live.open }, true)
    }
}
