//! Paths from discovery controllers. One task for each subsystem carries out what [`mpath_lifecycle::discovery`] decides.
//!
//! ```text
//!  session (a task for each connection) ── log, loss or end ──▶ mpath_lifecycle::discovery ── changes ──▶ the disk's paths
//!      ▲                                                          │
//!      └──────────────────── started and ended ───────────────────┘
//! ```

pub(crate) mod saved_logs;
mod session;
mod status;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use monotonic::{Duration, Instant};
use mpath_api::types::{EventKind, Origin};
use mpath_api_server::AddPathError;
use mpath_config::{DiskConfig, PathAddress};
use mpath_lifecycle::discovery::{self, Action, KnownPath, Session, SessionEvent, SessionId, Source, TlsUse};
use nvme_tcp::host::HostIdentity;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use self::saved_logs::SavedLogs;
use self::session::SessionTask;
pub(crate) use self::status::DiscoveryStatus;
use crate::clock::sleep_until;
use crate::disk_files::state_file::StateFile;
use crate::events::EventLog;
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::PathStatus;
use crate::transport::{ClearTextPorts, SubsystemKey, far_future};

/// The capacity of the channel from sessions.
const EVENTS_MAX: usize = 64;

/// How many warnings about unusable records are remembered. A remembered warning is not repeated with the next log.
const WARNED_MAX: usize = 4096;

/// The discovery task of a subsystem.
pub(crate) struct Discovery {
    disk: String,
    host: HostIdentity,
    key: Option<SubsystemKey>,
    ports: ClearTextPorts,
    keep_alive_tmo: Duration,
    decides: discovery::Discovery<PathAddress>,
    sessions: HashMap<SessionId, Running>,
    /// Kept so that the channel never closes.
    sender: mpsc::Sender<(SessionId, SessionEvent)>,
    session_events: mpsc::Receiver<(SessionId, SessionEvent)>,
    warned: HashSet<String>,
    events: Arc<EventLog>,
    status: Arc<DiscoveryStatus>,
    state: Arc<StateFile>,
    /// What the state file has.
    saved: SavedLogs,
}

struct Running {
    /// Dropping this ends the session.
    ends: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Discovery {
    /// Starts discovery for a disk; `None` if no discovery controllers are configured. `state` has what an earlier daemon has
    /// discovered.
    pub(crate) fn start(
        config: &DiskConfig,
        host: &HostIdentity,
        events: &Arc<EventLog>,
        state: &Arc<StateFile>,
    ) -> Option<Self> {
        if config.discovery.is_empty() {
            return None;
        }
        let (sender, session_events) = mpsc::channel(EVENTS_MAX);
        let configured = config.discovery.iter().map(|address| address.address().clone());
        let (now, delay) = (Instant::now(), config.reconnect_delay.duration());
        let key = SubsystemKey::of_discovery(config, host);
        let tls = TlsUse { paths: config.uses_tls(), discovery: key.is_some() };
        let saved = saved_logs::load(config, state);
        let mut discovery = Self {
            disk: config.name.to_string(),
            host: host.clone(),
            key,
            ports: ClearTextPorts::default(),
            keep_alive_tmo: config.keep_alive_tmo.duration(),
            decides: discovery::Discovery::new(
                now,
                config.subsystem.to_string(),
                tls,
                delay,
                configured,
                reachable,
                saved.logs.clone(),
            ),
            sessions: HashMap::new(),
            sender,
            session_events,
            warned: HashSet::new(),
            events: Arc::clone(events),
            status: Arc::default(),
            state: Arc::clone(state),
            saved,
        };
        discovery.carry_out();
        Some(discovery)
    }

    pub(crate) fn status(&self) -> Arc<DiscoveryStatus> {
        Arc::clone(&self.status)
    }

    /// Adds and removes paths as logs change, until the daemon ends.
    pub(crate) async fn run(mut self, subsystem: Arc<Subsystem>, mut shutdown: watch::Receiver<bool>) {
        loop {
            self.apply(&subsystem).await;
            self.check_first_logs(&subsystem);
            self.remember().await;
            tokio::select! {
                () = self.next_event() => {}
                () = subsystem.operator_removals.notified() => {}
                _ = shutdown.wait_for(|shutdown| *shutdown) => break,
            }
        }
        let sessions = std::mem::take(&mut self.sessions).into_values();
        let ending: Vec<_> = sessions.map(|Running { ends, task }| (drop(ends), task).1).collect();
        for task in ending {
            // A task that panicked has ended as well.
            let _ = task.await;
        }
    }

    /// Saves what the next daemon needs if it cannot read the logs.
    async fn remember(&mut self) {
        let logs = self.decides.to_save();
        if logs == self.saved.logs {
            return;
        }
        let saved = SavedLogs { logs, ..self.saved.clone() };
        match saved.save(&self.state).await {
            Ok(()) => self.saved = saved,
            Err(error) => {
                let file = self.state.path().display();
                self.warn_once(&format!(
                    "cannot remember the discovered paths in {file}: {error}; without the discovery controllers, the next \
                     daemon does not find them"
                ));
            }
        }
    }

    /// Reports that first logs are done, once they are.
    fn check_first_logs(&mut self, subsystem: &Subsystem) {
        if self.decides.first_logs_are_done(Instant::now()) && !self.status.first_logs_are_done() {
            self.status.set_first_logs_done();
            subsystem.signal_change();
        }
    }

    /// Waits for the next event and handles it. Cancel-safe.
    async fn next_event(&mut self) {
        let timeout = self.decides.next_timeout().unwrap_or_else(far_future);
        tokio::select! {
            // Received events come before timeouts, which wait for them.
            biased;
            Some((session, event)) = self.session_events.recv() => self.decides.session_event(Instant::now(), session, event),
            () = sleep_until(timeout) => {}
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.decides.poll(Instant::now()) {
            match action {
                Action::Start { session, source, persistent } => {
                    let (sender, ends) = watch::channel(());
                    let Source { address, subnqn } = source;
                    let key = self.key.as_ref().map(|key| key.with_subnqn(&subnqn));
                    let keep_alive_tmo = persistent.then_some(self.keep_alive_tmo);
                    let protocol = Session::new(Instant::now(), self.host.clone(), subnqn, keep_alive_tmo);
                    let (events, ports) = (self.sender.clone(), self.ports.clone());
                    let run = SessionTask { id: session, session: protocol, key, ports, events, ends }.run(address);
                    self.sessions.retain(|_, running| !running.task.is_finished());
                    self.sessions.insert(session, Running { ends: sender, task: tokio::spawn(run) });
                }
                // Dropping the entry makes the session end in order.
                Action::End { session } => drop(self.sessions.remove(&session)),
                Action::LogChanged { at, was_lost, records, generation } => {
                    let (kind, what) = if was_lost {
                        (EventKind::DiscoveryConnected, format!("discovery controller {at} connected"))
                    } else {
                        (EventKind::DiscoveryChanged, format!("discovery log of {at} changed"))
                    };
                    let by = self.decides.controllers().iter().find(|controller| controller.source.address == at);
                    let without_key =
                        by.and_then(status::without_key).map_or_else(String::new, |text| format!("; {text}"));
                    self.event(kind, format!("{what}: {records} records, generation {generation}{without_key}"));
                }
                Action::Lost { at, error } => {
                    self.event(EventKind::DiscoveryLost, format!("discovery controller {at} down: {error}"));
                }
                Action::Warn(line) => self.warn_once(&line),
            }
        }
        self.status.set(&self.disk, self.decides.controllers());
    }

    fn event(&self, kind: EventKind, message: String) {
        self.events.record(&self.disk, None, kind, message);
    }

    /// Logs a warning once.
    fn warn_once(&mut self, line: &str) {
        if self.warned.len() < WARNED_MAX && self.warned.insert(line.to_owned()) {
            tracing::warn!(disk = self.disk, "discovery: {line}");
        }
    }

    /// Adds and removes paths to match the logs.
    async fn apply(&mut self, subsystem: &Arc<Subsystem>) {
        let known: Vec<_> = {
            let mut state = subsystem.state();
            state.removed_by_operator.drain().for_each(|address| self.decides.operator_removes(address));
            state.paths().map(|status| known(subsystem, status)).collect()
        };
        let changes = self.decides.changes(Instant::now(), &known);
        changes.take_back.iter().for_each(|path| subsystem.take_back_removal(*path));
        for address in changes.add {
            if let Err(error) = subsystem.add_path(address, Origin::Discovery) {
                self.decides.not_added(Instant::now());
                self.warn_once(&error.to_string());
                // A log may list thousands of addresses more.
                if matches!(error, AddPathError::TooMany { .. }) {
                    break;
                }
            }
        }
        if let Some(path) = changes.keep {
            let message = "discovery does not list this path any more; it stays until the disk has another usable path";
            subsystem.path_event(path, EventKind::DiscoveryChanged, message);
        }
        for path in changes.remove {
            if let Err(error) = subsystem.remove_path(path, false, Origin::Discovery).await {
                self.decides.not_removed(Instant::now());
                let path = subsystem.address(path).map(tracing::field::display);
                tracing::debug!(disk = self.disk, path, %error, "cannot remove the path yet");
            }
        }
    }
}

/// An address that is connected like that of the discovery controller. Without an interface, a link-local address leads nowhere.
fn reachable(controller: &PathAddress, peer: SocketAddr) -> Option<PathAddress> {
    let is_link_local = matches!(peer.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local());
    (!is_link_local || controller.local().iface().is_some()).then(|| controller.with_peer(peer))
}

fn known(subsystem: &Subsystem, status: &PathStatus) -> KnownPath<PathAddress> {
    KnownPath {
        path: status.id,
        address: status.address.clone(),
        discovered: status.origin == Origin::Discovery,
        usable: subsystem.disks.iter().all(|disk| status.is_usable(disk.id)),
        leaving: status.is_removing(),
    }
}
