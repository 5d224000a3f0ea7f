//! Paths that discovery controllers list: a task a disk that hears its controllers and adds and removes paths as their logs change.
//!
//! ```text
//!  session (one a controller) ── its log, or that it is lost ──▶ sources ── addresses listed ──▶ reconcile ──▶ the disk's paths
//!      ▲                                                            │
//!      └────────────── started and ended as referrals come and go ──┘
//! ```
//! A controller that is lost takes nothing with it: what it listed last counts until it says otherwise.

mod reconcile;
mod session;
mod sources;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mpath_api::PathAddress;
use mpath_api::config::DiskConfig;
use mpath_api::types::{DiscoveryController, EventKind, Origin};
use mpath_core::PathId;
use nvme_tcp::host::HostIdentity;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use self::reconcile::{Have, reconcile};
use self::session::{FIRST_LOG_MAX, News, Session, Source};
use self::sources::{Novelty, Sources};
use crate::events::EventLog;
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::PathStatus;

/// How often paths are looked at while one of them is leaving, or stays only for want of another.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// News of sessions on their way.
const NEWS: usize = 64;

/// Lines about records of no use that are remembered, so as not to be repeated with every log.
const TOLD_MAX: usize = 4096;

/// What the API shows of the controllers of a disk.
#[derive(Default)]
pub(crate) struct Shown(Mutex<Vec<DiscoveryController>>);

impl Shown {
    pub(crate) fn get(&self) -> Vec<DiscoveryController> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, controllers: Vec<DiscoveryController>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = controllers;
    }
}

/// See the module.
pub(crate) struct Discovery {
    disk: String,
    subsystem: String,
    host: HostIdentity,
    keep_alive_tmo: Duration,
    reconnect_delay: Duration,
    sources: Sources,
    sessions: HashMap<Source, Running>,
    /// Kept, so that a session is always heard.
    sender: mpsc::Sender<(Source, News)>,
    news: mpsc::Receiver<(Source, News)>,
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

/// The paths of a disk as far as discovery is concerned with them.
#[derive(Default)]
struct Paths {
    /// Addresses that are listed and had a path.
    seen: HashSet<PathAddress>,
    /// Kept for want of another one.
    kept: Option<PathId>,
    /// A path is leaving, or was not let go, or not let in.
    again: bool,
}

impl Discovery {
    /// Begins to ask the controllers of a disk, if it names any.
    pub(crate) fn start(config: &DiskConfig, host: &HostIdentity, events: &Arc<EventLog>) -> Option<Self> {
        if config.discovery.is_empty() {
            return None;
        }
        let (sender, news) = mpsc::channel(NEWS);
        let mut discovery = Self {
            disk: config.name.to_string(),
            subsystem: config.subsystem.to_string(),
            host: host.clone(),
            keep_alive_tmo: config.keep_alive_tmo.duration(),
            reconnect_delay: config.reconnect_delay.duration(),
            sources: Sources::new(config.discovery.iter().map(|address| address.address().clone())),
            sessions: HashMap::new(),
            sender,
            news,
            first_until: Instant::now() + FIRST_LOG_MAX,
            told: HashSet::new(),
            events: Arc::clone(events),
            shown: Arc::default(),
        };
        let configured: Vec<_> = discovery.sources.all().cloned().collect();
        for source in configured {
            discovery.start_session(source);
        }
        discovery.shown.set(discovery.sources.shown(&discovery.disk));
        Some(discovery)
    }

    pub(crate) fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.shown)
    }

    /// The addresses listed, once every controller and those that they refer to have given a log or failed to; after
    /// [`FIRST_LOG_MAX`] those that are known by then.
    pub(crate) async fn first(&mut self) -> Vec<PathAddress> {
        while self.sources.any_untried() {
            match timeout_at(self.first_until, self.news.recv()).await {
                Ok(Some((source, news))) => self.take(&source, news),
                Ok(None) | Err(_) => break,
            }
        }
        self.listed()
    }

    /// Why there is no path, one line a controller.
    pub(crate) fn reasons(&self) -> Vec<(PathAddress, String)> {
        let failures = self.sources.failures().map(|(address, error)| (address.clone(), error.to_owned()));
        let silent = self.sources.shown(&self.disk).into_iter().filter_map(|shown| {
            let reason = match shown.records {
                Some(records) => format!("lists no path to it ({records} records)"),
                None if shown.last_error.is_none() => "no answer yet".into(),
                None => return None,
            };
            Some((shown.address, reason))
        });
        failures.chain(silent).collect()
    }

    /// Adds and removes paths as the logs change, until the end of the daemon.
    pub(crate) async fn run(mut self, subsystem: Arc<Subsystem>, mut shutdown: watch::Receiver<bool>) {
        let mut paths = Paths::default();
        loop {
            self.apply(&subsystem, &mut paths).await;
            tokio::select! {
                Some((source, news)) = self.news.recv() => self.take(&source, news),
                () = sleep(LOOK_AGAIN), if paths.kept.is_some() || paths.again => {}
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

    fn start_session(&mut self, source: Source) {
        let (sender, ends) = watch::channel(());
        let session = Session {
            source: source.clone(),
            host: self.host.clone(),
            keep_alive_tmo: self.keep_alive_tmo,
            reconnect_delay: self.reconnect_delay,
            news: self.sender.clone(),
            ends,
        };
        let task = tokio::spawn(session.run());
        self.sessions.insert(source, Running { ends: sender, task });
    }

    fn event(&self, kind: EventKind, message: String) {
        self.events.record(&self.disk, None, kind, message);
    }

    fn take(&mut self, source: &Source, news: News) {
        let at = &source.address;
        match news {
            News::Log { log, peer, stays } => {
                let what = format!("{} records, generation {}", log.records(), log.generation);
                match self.sources.on_log(source, log, peer, stays) {
                    None => return,
                    Some(Novelty::None) => {}
                    Some(Novelty::Connected) => {
                        self.event(
                            EventKind::DiscoveryConnected,
                            format!("discovery controller {at} connected: {what}"),
                        );
                    }
                    Some(Novelty::Changed) => {
                        self.event(EventKind::DiscoveryChanged, format!("discovery log of {at} changed: {what}"));
                    }
                }
                self.follow();
            }
            News::Lost(error) => {
                if self.sources.on_lost(source, error.clone()) {
                    self.event(EventKind::DiscoveryLost, format!("discovery controller {at} down: {error}"));
                }
            }
        }
        self.shown.set(self.sources.shown(&self.disk));
    }

    fn follow(&mut self) {
        let moved = self.sources.follow();
        for source in moved.gone {
            // Its session ends in order, by itself.
            self.sessions.remove(&source);
        }
        for source in moved.new {
            self.start_session(source);
        }
        if moved.cut {
            self.tell("there are more referrals than are followed");
        }
    }

    /// Logs a line once.
    fn tell(&mut self, line: &str) {
        if self.told.len() < TOLD_MAX && self.told.insert(line.to_owned()) {
            tracing::warn!(disk = self.disk, "discovery: {line}");
        }
    }

    fn listed(&mut self) -> Vec<PathAddress> {
        let listed = self.sources.listed(&self.subsystem);
        for line in listed.skipped {
            self.tell(&line);
        }
        listed.addresses
    }

    /// Makes the disk's paths what they are to be.
    async fn apply(&mut self, subsystem: &Arc<Subsystem>, paths: &mut Paths) {
        let have: Vec<_> = subsystem.state().paths().map(|status| have(subsystem, status)).collect();
        let wanted = paths.not_taken_away(self.listed(), &have);
        let changes = reconcile(&wanted, &have);
        let mut refused = false;
        for address in changes.add {
            if let Err(error) = subsystem.add_path(address, Origin::Discovery) {
                // There may be room for it later.
                refused = true;
                self.tell(&error.to_string());
            }
        }
        if changes.keep != paths.kept {
            paths.kept = changes.keep;
            if let Some(path) = changes.keep {
                let message = "listed no more by discovery; the path stays while the disk has no other usable one";
                subsystem.path_event(path, EventKind::DiscoveryChanged, message);
            }
        }
        for path in changes.remove {
            match subsystem.remove_path(path, false).await {
                Ok(()) => paths.gone(path, &have),
                Err(error) => {
                    refused = true;
                    tracing::debug!(%error, path = path.0, "path not removed yet");
                }
            }
        }
        paths.again = refused || have.iter().any(|path| path.leaving);
    }
}

impl Paths {
    /// Without the addresses whose paths the operator has removed, until they are listed anew.
    fn not_taken_away(&mut self, mut wanted: Vec<PathAddress>, have: &[Have]) -> Vec<PathAddress> {
        self.seen.retain(|address| wanted.contains(address));
        wanted.retain(|address| {
            let there = have.iter().any(|path| path.address == *address);
            let stays = have.iter().any(|path| path.address == *address && !path.leaving);
            if stays {
                self.seen.insert(address.clone());
            }
            there || !self.seen.contains(address)
        });
        wanted
    }

    /// It was not the operator who had this one removed.
    fn gone(&mut self, path: PathId, have: &[Have]) {
        for path in have.iter().filter(|other| other.path == path) {
            self.seen.remove(&path.address);
        }
    }
}

fn have(subsystem: &Subsystem, status: &PathStatus) -> Have {
    Have {
        path: status.id,
        address: status.address.clone(),
        discovered: status.origin == Origin::Discovery,
        usable: subsystem.disks.iter().all(|disk| status.is_usable(disk.id)),
        leaving: status.is_removing(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_operator_removes_comes_back_only_when_listed_anew() {
        let address: PathAddress = "tcp://192.0.2.1:4420".parse().expect("an address");
        let path =
            |leaving| Have { path: PathId(0), address: address.clone(), discovered: true, usable: true, leaving };
        let mut paths = Paths::default();
        let mut ask = |listed: bool, have: &[Have]| {
            let listed = if listed { vec![address.clone()] } else { vec![] };
            !paths.not_taken_away(listed, have).is_empty()
        };
        assert!(ask(true, &[]), "new");
        assert!(ask(true, &[path(false)]));
        assert!(ask(true, &[path(true)]), "nothing is to be done while it leaves");
        assert!(!ask(true, &[]), "the operator has removed it");
        assert!(!ask(false, &[]));
        assert!(ask(true, &[]), "listed anew");
        assert!(ask(true, &[path(false)]));
        paths.gone(PathId(0), &[path(false)]);
        assert_eq!(paths.not_taken_away(vec![address.clone()], &[path(true)]).len(), 1);
        assert_eq!(paths.not_taken_away(vec![address.clone()], &[]).len(), 1, "discovery had removed it itself");
    }
}
