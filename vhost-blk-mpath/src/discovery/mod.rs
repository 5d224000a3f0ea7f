//! Paths that discovery controllers list: a task a disk that does what [`mpath_host::discovery`] decides, over sockets.
//!
//! ```text
//!  session (a task a connection) ── its log, or that it is over ──▶ mpath_host::discovery ── changes ──▶ the disk's paths
//!      ▲                                                              │
//!      └──────────────────────── started and ended ───────────────────┘
//! ```

mod session;
mod shown;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpath_api::PathAddress;
use mpath_api::config::DiskConfig;
use mpath_api::types::{EventKind, Origin};
use mpath_host::discovery::{self, Action, FIRST_LOG_MAX, Have, SessionId, SessionNews};
use nvme_tcp::host::HostIdentity;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout_at};

use self::session::SessionTask;
pub(crate) use self::shown::Shown;
use crate::events::EventLog;
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::PathStatus;
use crate::transport::far_future;

/// News of sessions on their way.
const NEWS: usize = 64;

/// Lines about records of no use that are remembered, so as not to be repeated with every log.
const TOLD_MAX: usize = 4096;

/// See the module.
pub(crate) struct Discovery {
    disk: String,
    host: HostIdentity,
    keep_alive_tmo: Duration,
    decides: discovery::Discovery<PathAddress>,
    sessions: HashMap<SessionId, Running>,
    /// Kept, so that a session is always heard.
    sender: mpsc::Sender<(SessionId, SessionNews)>,
    news: mpsc::Receiver<(SessionId, SessionNews)>,
    /// When the daemon waits no longer for first logs.
    first_until: Instant,
    told: HashSet<String>,
    events: Arc<EventLog>,
    shown: Arc<Shown>,
}

struct Running {
    /// Dropped, the session ends.
    ends: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Discovery {
    /// Begins to ask the controllers of a disk, if it names any.
    pub(crate) fn start(config: &DiskConfig, host: &HostIdentity, events: &Arc<EventLog>) -> Option<Self> {
        if config.discovery.is_empty() {
            return None;
        }
        let (sender, news) = mpsc::channel(NEWS);
        let configured = config.discovery.iter().map(|address| address.address().clone());
        let (now, delay) = (Instant::now(), config.reconnect_delay.duration());
        let mut discovery = Self {
            disk: config.name.to_string(),
            host: host.clone(),
            keep_alive_tmo: config.keep_alive_tmo.duration(),
            decides: discovery::Discovery::new(
                now,
                config.subsystem.to_string(),
                delay,
                configured,
                PathAddress::with_peer,
            ),
            sessions: HashMap::new(),
            sender,
            news,
            first_until: now + FIRST_LOG_MAX,
            told: HashSet::new(),
            events: Arc::clone(events),
            shown: Arc::default(),
        };
        discovery.act();
        Some(discovery)
    }

    pub(crate) fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.shown)
    }

    /// The addresses listed, once every controller and those that they refer to have given a log or failed to; after
    /// [`FIRST_LOG_MAX`] those that are known by then.
    pub(crate) async fn first(&mut self) -> Vec<PathAddress> {
        let until = self.first_until.into();
        let first = async {
            while self.decides.is_any_untried() {
                self.turn().await;
            }
        };
        // Those that are still silent may list something later.
        let _ = timeout_at(until, first).await;
        self.decides.listed()
    }

    /// Why there is no path, one line a controller.
    pub(crate) fn reasons(&self) -> Vec<(PathAddress, String)> {
        let reason = |controller: &discovery::Controller<PathAddress>| {
            let reason = match (&controller.log, &controller.last_error) {
                (Some((log, _)), _) => format!("lists no path to it ({} records)", log.records()),
                (None, Some((error, _))) => error.clone(),
                (None, None) => "no answer yet".into(),
            };
            (controller.source.address.clone(), reason)
        };
        self.decides.controllers().iter().map(reason).collect()
    }

    /// Adds and removes paths as the logs change, until the end of the daemon.
    pub(crate) async fn run(mut self, subsystem: Arc<Subsystem>, mut shutdown: watch::Receiver<bool>) {
        loop {
            self.apply(&subsystem).await;
            tokio::select! {
                () = self.turn() => {}
                () = subsystem.operator_removals.notified() => {}
                _ = shutdown.wait_for(|shutdown| *shutdown) => break,
            }
        }
        let sessions = std::mem::take(&mut self.sessions).into_values();
        let ending: Vec<_> = sessions.map(|Running { ends, task }| (drop(ends), task).1).collect();
        for task in ending {
            // One that panicked has ended as well.
            let _ = task.await;
        }
    }

    /// Waits for something to happen. May be dropped.
    async fn turn(&mut self) {
        let timeout = self.decides.next_timeout().unwrap_or_else(far_future);
        tokio::select! {
            // What has arrived comes before the timeouts: it is what they wait for.
            biased;
            Some((session, news)) = self.news.recv() => self.decides.heard(Instant::now(), session, news),
            () = sleep_until(timeout.into()) => {}
        }
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.decides.poll(Instant::now()) {
            match action {
                Action::Start { session, source, stays } => {
                    let (sender, ends) = watch::channel(());
                    let (host, keep_alive_tmo) = (self.host.clone(), stays.then_some(self.keep_alive_tmo));
                    let news = self.sender.clone();
                    let run = SessionTask { id: session, source, host, keep_alive_tmo, news, ends }.run();
                    self.sessions.retain(|_, running| !running.task.is_finished());
                    self.sessions.insert(session, Running { ends: sender, task: tokio::spawn(run) });
                }
                // It ends in order, by itself.
                Action::End { session } => drop(self.sessions.remove(&session)),
                Action::Read { at, was_lost, records, generation } => {
                    let (kind, what) = if was_lost {
                        (EventKind::DiscoveryConnected, format!("discovery controller {at} connected"))
                    } else {
                        (EventKind::DiscoveryChanged, format!("discovery log of {at} changed"))
                    };
                    self.event(kind, format!("{what}: {records} records, generation {generation}"));
                }
                Action::Lost { at, error } => {
                    self.event(EventKind::DiscoveryLost, format!("discovery controller {at} down: {error}"));
                }
                Action::Useless(line) => self.tell(&line),
            }
        }
        self.shown.set(&self.disk, self.decides.controllers());
    }

    fn event(&self, kind: EventKind, message: String) {
        self.events.record(&self.disk, None, kind, message);
    }

    /// Logs a line once.
    fn tell(&mut self, line: &str) {
        if self.told.len() < TOLD_MAX && self.told.insert(line.to_owned()) {
            tracing::warn!(disk = self.disk, "discovery: {line}");
        }
    }

    /// Makes the disk's paths what they are to be.
    async fn apply(&mut self, subsystem: &Arc<Subsystem>) {
        let have: Vec<_> = {
            let mut state = subsystem.state();
            state.removed_by_operator.drain().for_each(|address| self.decides.operator_removes(address));
            state.paths().map(|status| have(subsystem, status)).collect()
        };
        let changes = self.decides.changes(Instant::now(), &have);
        for address in changes.add {
            if let Err(error) = subsystem.add_path(address.clone(), Origin::Discovery) {
                self.decides.not_added(Instant::now());
                self.tell(&error.to_string());
            }
        }
        if let Some(path) = changes.keep {
            let message = "listed no more by discovery; the path stays while the disk has no other usable one";
            subsystem.path_event(path, EventKind::DiscoveryChanged, message);
        }
        for path in changes.remove {
            if let Err(error) = subsystem.remove_path(path, false, Origin::Discovery).await {
                self.decides.not_removed(Instant::now());
                tracing::debug!(%error, path = path.0, "path not removed yet");
            }
        }
    }
}

fn have(subsystem: &Subsystem, status: &PathStatus) -> Have<PathAddress> {
    Have {
        path: status.id,
        address: status.address.clone(),
        discovered: status.origin == Origin::Discovery,
        usable: subsystem.disks.iter().all(|disk| status.is_usable(disk.id)),
        leaving: status.is_removing(),
    }
}
