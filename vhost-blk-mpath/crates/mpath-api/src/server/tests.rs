use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use mpath_core::{ClassPolicies, PolicyKind, SchedulerKind, SchedulerSpec};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::*;
use crate::client::{Client, ClientError};
use crate::config::LimitsConfig;
use crate::types::{
    AddPath, Disk, ErrorCode, HedgeStatus, Moved, OpStats, PathCounts, PathSelector, PathState, PathWindow, SetHedge,
    SetInjection, SetPolicy, SetScheduler, SetWeight, SteerPaths,
};

/// Two disks of two paths, which remember what is set, and perhaps one over the paths of the first.
pub(super) struct Fake {
    disks: &'static [&'static str],
    policies: Mutex<[ClassPolicies; 2]>,
    hedges: Mutex<[HedgeStatus; 2]>,
    scheduling: Mutex<[(SchedulerSpec, Weight, LimitsConfig); 3]>,
    injections: Mutex<[[Vec<Injection>; 2]; 2]>,
    states: Mutex<[[PathState; 2]; 2]>,
    stuck: AtomicBool,
}

impl Fake {
    pub(super) fn new() -> Self {
        Self {
            disks: &["a", "b"],
            policies: Mutex::new([PolicyKind::LatencyRr.into(); 2]),
            hedges: Mutex::default(),
            scheduling: Mutex::new([(SchedulerKind::Fifo.into(), weight(100), LimitsConfig::default()); 3]),
            injections: Mutex::default(),
            states: Mutex::new([[PathState::Live; 2]; 2]),
            stuck: AtomicBool::new(false),
        }
    }

    /// With a disk over the paths of the first one.
    pub(super) fn sharing() -> Self {
        Self { disks: &["a", "b", SHARER], ..Self::new() }
    }

    async fn answer(&self) -> Result<(), ControlError> {
        if self.stuck.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

const SHARER: &str = "shares-a";

fn disk_index(name: &str) -> Result<usize, ControlError> {
    ["a", "b", SHARER]
        .iter()
        .position(|&known| known == name)
        .ok_or_else(|| ControlError::UnknownDisk { disk: name.into() })
}

/// The disk that has the paths.
fn owner_index(disk: usize) -> usize {
    if disk == 2 { 0 } else { disk }
}

fn shares_paths_of(disk: &str) -> Option<String> {
    (disk == SHARER).then(|| "a".into())
}

fn weight(weight: u32) -> Weight {
    Weight::new(weight).unwrap()
}

impl Control for Fake {
    async fn status(&self) -> Result<Status, ControlError> {
        self.answer().await?;
        let (policies, hedges) = (*self.policies.lock().unwrap(), *self.hedges.lock().unwrap());
        let scheduling = *self.scheduling.lock().unwrap();
        let disk = |(index, &name): (usize, &&str)| Disk {
            name: name.into(),
            shares_paths_of: shares_paths_of(name),
            weight: scheduling[index].1.get(),
            socket: format!("/run/{name}.sock"),
            subsystem: "nqn.x".into(),
            nsid: Some(1),
            connected: true,
            policy: policies[owner_index(index)],
            capacity_bytes: 1 << 30,
            block_size_bytes: 512,
            read_only: false,
            queues: 4,
            queued: 0,
            moved_reads: Moved::default(),
            moved_writes: Moved::default(),
            hedge: hedges[owner_index(index)],
            paths: PathCounts { total: 2, live: 2 },
        };
        Ok(Status {
            version: "1".into(),
            pid: 7,
            uptime_s: 5,
            disks: self.disks.iter().enumerate().map(disk).collect(),
            discovery: Vec::new(),
        })
    }

    async fn paths(&self) -> Result<Vec<Path>, ControlError> {
        let injections = self.injections.lock().unwrap().clone();
        let path = |disk: usize, index: usize| Path {
            disk: ["a", "b"][disk].into(),
            index: index as u16,
            address: format!("tcp://127.0.0.1:442{index}").parse().unwrap(),
            transport: crate::address::Transport::Tcp,
            origin: crate::types::Origin::Configured,
            state: self.states.lock().unwrap()[disk][index],
            since: String::new(),
            waits_for: vec![],
            last_error: None,
            last_error_at: None,
            ana_state: None,
            sharers: vec![],
            resting: false,
            suspect: false,
            suspicions: 0,
            recalled: 0,
            probes: 0,
            hedges: 0,
            hedges_won: 0,
            fenced: 0,
            cntlid: None,
            controller: None,
            mptcp: None,
            window: PathWindow { ios: 1, bytes: 1 },
            io_share: f64::NAN,
            io_share_1s: f64::NAN,
            io_share_60s: f64::NAN,
            read: OpStats { ios: disk as u64 * (1 + 2 * index as u64), ..OpStats::default() },
            write: OpStats::default(),
            other: OpStats::default(),
            injections: injections[disk][index].clone(),
        };
        Ok(vec![path(0, 0), path(0, 1), path(1, 0), path(1, 1)])
    }

    async fn set_policy(&self, disks: &[String], change: &PolicyChange) -> Result<(), ControlError> {
        for disk in disks {
            self.policies.lock().unwrap()[disk_index(disk)?].change(change);
        }
        Ok(())
    }

    async fn set_hedge(
        &self,
        disks: &[String],
        hedge: Option<Hedge>,
        budget: Option<HedgeBudget>,
    ) -> Result<(), ControlError> {
        for disk in disks {
            let status = &mut self.hedges.lock().unwrap()[disk_index(disk)?];
            (status.hedge, status.budget) = (hedge.unwrap_or(status.hedge), budget.unwrap_or(status.budget));
        }
        Ok(())
    }

    async fn scheduling(&self) -> Result<Vec<SchedulerDetail>, ControlError> {
        let all = *self.scheduling.lock().unwrap();
        let detail = |(index, &disk): (usize, &&str)| {
            let ((spec, ..), (_, weight, limits)) = (all[owner_index(index)], all[index]);
            let shares_paths_of = shares_paths_of(disk);
            SchedulerDetail::new(disk.into(), shares_paths_of, spec, weight, limits, None)
        };
        Ok(self.disks.iter().enumerate().map(detail).collect())
    }

    async fn set_scheduler(&self, disks: &[String], change: &SchedulerChange) -> Result<(), ControlError> {
        for disk in disks {
            self.scheduling.lock().unwrap()[disk_index(disk)?].0.change(change);
        }
        Ok(())
    }

    async fn set_limits(&self, disks: &[String], change: &SetLimits) -> Result<(), ControlError> {
        for disk in disks {
            let limits = &mut self.scheduling.lock().unwrap()[disk_index(disk)?].2;
            *limits = change.applied_to(*limits);
        }
        Ok(())
    }

    async fn set_weight(&self, disk: &str, weight: Weight) -> Result<(), ControlError> {
        self.scheduling.lock().unwrap()[disk_index(disk)?].1 = weight;
        Ok(())
    }

    async fn set_injection(&self, paths: &[PathRef], injection: Option<Injection>) -> Result<(), ControlError> {
        for path in paths {
            let mut all = self.injections.lock().unwrap();
            let of_path = &mut all[disk_index(&path.disk)?][usize::from(path.index)];
            match injection {
                Some(injection) => injection.put(of_path),
                None => of_path.clear(),
            }
        }
        Ok(())
    }

    async fn steer(&self, paths: &[PathRef], action: PathAction, force: bool) -> Result<(), ControlError> {
        if paths.len() > 1 && !force {
            return Err(ControlError::LastPath { disk: paths[0].disk.clone() });
        }
        for path in paths {
            let state = if action == PathAction::Enable { PathState::Live } else { PathState::Draining };
            self.states.lock().unwrap()[disk_index(&path.disk)?][usize::from(path.index)] = state;
        }
        Ok(())
    }

    async fn add_path(&self, disk: &str, address: PathAddress) -> Result<PathRef, ControlError> {
        disk_index(disk)?;
        assert_ne!(disk, SHARER, "it has no paths");
        let disk = disk.to_owned();
        match address.port() {
            // As if one of these were there already, or made.
            4420 => Ok(PathRef { disk, index: 0 }),
            4421 => Err(AddPathError::Exists { disk, index: 1, address, state: PathState::Live }.into()),
            4422 => Err(AddPathError::TooMany { disk, most: 64 }.into()),
            _ => Err(AddPathError::NotMultipath { disk, reason: "it is not shared".into() }.into()),
        }
    }

    async fn remove_path(&self, path: &PathRef, force: bool) -> Result<(), ControlError> {
        if !force && path.index == 1 {
            return Err(RemovePathError::LastPath { disk: path.disk.clone() }.into());
        }
        self.states.lock().unwrap()[disk_index(&path.disk)?][usize::from(path.index)] = PathState::Removing;
        Ok(())
    }

    async fn add_disk(&self, config: DiskConfig) -> Result<(), ControlError> {
        self.answer().await?;
        let disk = config.name.to_string();
        if disk_index(&disk).is_ok() {
            return Err(AddDiskError::NameTaken { disk }.into());
        }
        Err(AddDiskError::NotStarted { disk, reason: "no path".into() }.into())
    }

    async fn remove_disk(&self, disk: &str, force: bool) -> Result<(), ControlError> {
        self.answer().await?;
        let disk = disk.to_owned();
        match disk_index(&disk)? {
            0 => Err(RemoveDiskError::PathsAreShared { disk, sharers: vec!["x".into(), "y".into()] }.into()),
            1 if force => Ok(()),
            1 => Err(RemoveDiskError::Connected { disk }.into()),
            _ => Err(RemoveDiskError::Leaving { disk }.into()),
        }
    }

    async fn events(&self, after: u64, wait: Duration) -> Result<Events, ControlError> {
        if after == 77 {
            return Err(ControlError::TooManyWaiters { waiting: 16 });
        }
        Ok(Events { events: vec![], lost: wait.as_secs(), last: after })
    }
}

/// A server in its own thread, ended on drop.
pub(super) struct Running {
    dir: TempDir,
    control: Arc<Fake>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(super) fn start(limits: Limits) -> Self {
        Self::start_with(Fake::new(), limits)
    }

    fn start_with(control: Fake, limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Server::bind(&socket(&dir)).unwrap();
        server.limits = limits;
        let control = Arc::new(control);
        let (end, ended) = oneshot::channel();
        let thread = thread::spawn({
            let control = Arc::clone(&control);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(server.serve(control, async { drop(ended.await) })).unwrap();
            }
        });
        Self { dir, control, end: Some(end), thread: Some(thread) }
    }

    fn path(&self) -> PathBuf {
        socket(&self.dir).as_path().into()
    }

    fn client(&self) -> Client {
        Client::new(&self.path(), Duration::from_secs(30)).unwrap()
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends bytes and takes everything until the server closes.
    pub(super) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may close before it has read all.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    pub(super) fn request(&self, method: &str, target: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let answer = self
            .raw(format!("{method} {target} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
    }

    fn end(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn socket(dir: &TempDir) -> SocketPath {
    dir.path().join("api.sock").to_str().unwrap().parse().unwrap()
}

/// Limits that tests can wait for.
fn brief() -> Limits {
    let brief = Duration::from_millis(200);
    Limits {
        header: brief,
        body: brief,
        control: brief,
        disks: 2 * brief,
        connection: Duration::from_secs(2),
        ..Limits::default()
    }
}

#[test]
fn answers_every_route() {
    let server = Running::start(Limits::default());
    let client = server.client();

    assert_eq!(client.status().unwrap().disks.len(), 2);
    let shares: Vec<_> = client.paths(None).unwrap().iter().map(|path| path.io_share).collect();
    assert_eq!(shares, [0.0, 0.0, 0.25, 0.75]);
    assert_eq!(client.paths(Some("b")).unwrap().len(), 2);

    let set = |disk: Option<&str>, policy| SetPolicy { disk: disk.map(Into::into), ..SetPolicy::from(policy) };
    let one = client.set_policy(&set(Some("b"), PolicyKind::RoundRobin)).unwrap();
    assert_eq!((one.len(), &*one[0].disk, one[0].policy), (1, "b", PolicyKind::RoundRobin.into()));
    let kinds = |disk| client.policy(disk).unwrap().iter().map(|p| p.policy).collect::<Vec<_>>();
    assert_eq!(kinds(None), [PolicyKind::LatencyRr.into(), PolicyKind::RoundRobin.into()]);
    assert_eq!(kinds(Some("a")), [PolicyKind::LatencyRr.into()]);
    let active = |kind| {
        let policies = client.policies().unwrap();
        assert_eq!(policies.len(), PolicyKind::ALL.len());
        policies.into_iter().find(|policy| policy.name == kind).unwrap().active_on
    };
    assert_eq!(active(PolicyKind::RoundRobin), ["b"]);
    let set = |body: &str| server.request("PUT", "/v1/policy", body);
    let body = r#"{"policy":"latency-rr","params":{"threshold":1.5},"class":"write","disk":"b"}"#;
    let written = r#"[{"disk":"b","policy":{"read":"round-robin","write":{"name":"latency-rr","threshold":"1.5"}}}]"#;
    assert_eq!(set(body), (200, written.into()));
    assert_eq!(
        (active(PolicyKind::RoundRobin), active(PolicyKind::LatencyRr)),
        (vec!["b".into()], vec!["a".into(), "b".into()])
    );
    for (body, part) in [
        (r#"{"policy":"latency-rr","params":{"treshold":2}}"#, "no parameter 'treshold'; it has threshold"),
        (r#"{"policy":"latency-rr","params":{"threshold":"0.1"}}"#, "'threshold' is '0.1', expected 1 to 10"),
        (r#"{"policy":"latency-rr","params":{"threshold":2,"threshold":3}}"#, "given twice"),
        (r#"{"policy":"latency-rr","params":["threshold"]}"#, "a mapping of parameters to values"),
        (r#"{"policy":"numa","class":"flush"}"#, "unknown class 'flush', expected one of: read, write"),
    ] {
        let (status, answer) = set(body);
        assert!(status == 400 && answer.contains(part), "{body}: {status} {answer}");
    }
    assert_eq!(kinds(Some("a")), [PolicyKind::LatencyRr.into()], "what is refused changes nothing");
    let set = |disk: Option<&str>, policy| SetPolicy { disk: disk.map(Into::into), ..SetPolicy::from(policy) };
    client.set_policy(&set(None, PolicyKind::Numa)).unwrap();
    assert_eq!(active(PolicyKind::Numa), ["a", "b"]);

    let set = |body: &str| server.request("PUT", "/v1/hedge", body);
    let hedge = r#"[{"disk":"b","hedge":"p99.5","budget":"3%","reads":0,"sent":0,"won":0}]"#;
    assert_eq!(set(r#"{"hedge":"p99.5","budget":"3%","disk":"b"}"#), (200, hedge.into()));
    for (body, part) in [
        (r#"{"hedge":"p30"}"#, "`p30` is not off or a quantile from p50 to p99.9; write it as p95 or p99.5"),
        (
            r#"{"hedge":"p95","budget":"7%"}"#,
            "`7%` is not a share of the reads from 0.1% to 5%; write it as 5% or 0.5%",
        ),
        (r#"{"hedge":95}"#, "expected off, or a quantile such as p95"),
        (r#"{"disk":"b"}"#, "nothing to set; give hedge or budget"),
        (r#"{"hedge":"p95","quantile":1}"#, "unknown field `quantile`"),
    ] {
        let (status, answer) = set(body);
        assert!(status == 400 && answer.contains(part), "{body}: {status} {answer}");
    }
    let (status, answer) = set(r#"{"hedge":"p95","disk":"c"}"#);
    assert!(status == 404 && answer.contains("`c`"), "{answer}");
    let both = client.set_hedge(&SetHedge { hedge: Some(Hedge::Quantile(950)), budget: None, disk: None }).unwrap();
    let shown: Vec<_> = both.iter().map(|of| (&*of.disk, of.status.hedge, of.status.budget.to_string())).collect();
    assert_eq!(shown, [("a", Hedge::Quantile(950), "5%".into()), ("b", Hedge::Quantile(950), "3%".into())]);
    assert_eq!(client.hedge(Some("a")).unwrap(), both[..1]);

    let inject = |path: &str, disk: Option<&str>, us: u64| {
        client.set_injection(&SetInjection {
            path: path.parse().unwrap(),
            disk: disk.map(Into::into),
            injection: Injection::latency(us.try_into().unwrap()),
        })
    };
    let places = |paths: Vec<crate::types::InjectedPath>| {
        paths
            .into_iter()
            .map(|p| (p.disk, p.index, p.injection.latency_us.unwrap().into()))
            .collect::<Vec<(_, _, u64)>>()
    };
    assert_eq!(
        places(inject("127.0.0.1:4421", None, 30_000).unwrap()),
        [("a".into(), 1, 30_000), ("b".into(), 1, 30_000)]
    );
    assert_eq!(places(inject("0", Some("b"), 5).unwrap()), [("b".into(), 0, 5)]);
    assert_eq!(client.injections(None).unwrap().len(), 3);
    assert_eq!(client.injections(Some("a")).unwrap().len(), 1);
    assert_eq!(places(client.clear_injections(&PathSelector::Index(0), None).unwrap()), [("b".into(), 0, 5)]);
    assert_eq!(client.clear_injections(&PathSelector::All, None).unwrap().len(), 2);
    assert_eq!(client.injections(None).unwrap(), []);
}

#[test]
fn paths_are_steered_and_events_asked_for() {
    let server = Running::start(Limits::default());
    let client = server.client();
    let steer = |path: &str, disk: Option<&str>, action, force| {
        let wanted = SteerPaths { path: path.parse().unwrap(), disk: disk.map(Into::into), action, force };
        let places = |paths: Vec<Path>| paths.into_iter().map(|p| (p.disk, p.index, p.state)).collect::<Vec<_>>();
        client.steer(&wanted).map(places)
    };
    let drained = PathState::Draining;
    assert_eq!(steer("1", Some("a"), PathAction::Drain, false).unwrap(), [("a".into(), 1, drained)]);
    let refused = steer("1", None, PathAction::Disable, false).unwrap_err().to_string();
    assert!(refused.contains("disk `a` would have no usable path left"), "{refused}");
    assert_eq!(steer("0", None, PathAction::Disable, true).unwrap().len(), 2);
    assert_eq!(steer("0", Some("b"), PathAction::Enable, false).unwrap(), [("b".into(), 0, PathState::Live)]);
    let shown = client.path(&PathSelector::Index(0), Some("a")).unwrap();
    assert_eq!((shown.len(), shown[0].index, shown[0].state), (1, 0, drained));
    assert!(client.path(&PathSelector::Index(7), None).unwrap_err().to_string().contains("no path is `7`"));

    assert_eq!(client.events(5, 3).unwrap(), Events { events: vec![], lost: 3, last: 5 });
    let busy = client.events(77, 0).unwrap_err();
    assert!(matches!(&busy, ClientError::Refused(info) if info.code == ErrorCode::Unavailable), "{busy}");
}

#[test]
fn paths_are_added_and_removed() {
    let server = Running::start(Limits::default());
    let client = server.client();
    let add = |disk: &str, address: &str| client.add_path(disk, &AddPath { address: address.parse().unwrap() });
    let added = add("a", "tcp://127.0.0.1:4420").unwrap();
    assert_eq!((added.disk.as_str(), added.index), ("a", 0));
    for (disk, port, code) in [
        ("a", 4421, ErrorCode::PathExists),
        ("a", 4422, ErrorCode::TooManyPaths),
        ("b", 4423, ErrorCode::NotMultipath),
        ("x/?y", 4420, ErrorCode::UnknownDisk),
    ] {
        let error = add(disk, &format!("tcp://127.0.0.1:{port}")).unwrap_err();
        assert!(matches!(&error, ClientError::Refused(info) if info.code == code), "{error}");
    }

    let remove = |disk: &str, path: &str, force| {
        let places = |paths: Vec<Path>| paths.into_iter().map(|p| (p.disk, p.index, p.state)).collect::<Vec<_>>();
        client.remove_path(disk, &path.parse().unwrap(), force).map(places)
    };
    let removing = PathState::Removing;
    assert_eq!(remove("a", "tcp://127.0.0.1:4420", false).unwrap(), [("a".into(), 0, removing)]);
    let refused = remove("b", "1", false).unwrap_err().to_string();
    assert!(refused.contains("disk `b` would have no usable path left"), "{refused}");
    // All but that one.
    let drain = SteerPaths { path: PathSelector::All, disk: Some("a".into()), action: PathAction::Drain, force: false };
    assert_eq!(
        client.steer(&drain).unwrap().iter().map(|path| path.state).collect::<Vec<_>>(),
        [removing, PathState::Draining]
    );
    assert_eq!(remove("b", "all", true).unwrap(), [("b".into(), 0, removing), ("b".into(), 1, removing)]);
    assert!(remove("a", "7", false).unwrap_err().to_string().contains("no path is `7`"));
    assert!(remove("c", "0", false).unwrap_err().to_string().contains("no disk is named `c`"));
}

#[test]
fn refuses_with_a_code_and_a_line() {
    let server = Running::start(Limits::default());
    for (method, target, body, status, error) in [
        ("GET", "/", "", 404, r#"{"error":{"code":"unknown-route","message":"there is no /"}}"#),
        (
            "POST",
            "/v1/status",
            "",
            405,
            r#"{"error":{"code":"method-not-allowed","message":"/v1/status does not take POST"}}"#,
        ),
        (
            "GET",
            "/v1/paths?disk=x",
            "",
            404,
            r#"{"error":{"code":"unknown-disk","message":"no disk is named `x`; `mpathctl status` shows them"}}"#,
        ),
        (
            "GET",
            "/v1/policy?disk=x",
            "",
            404,
            r#"{"error":{"code":"unknown-disk","message":"no disk is named `x`; `mpathctl status` shows them"}}"#,
        ),
        (
            "PUT",
            "/v1/policy",
            r#"{"policy":"numa","disk":"x"}"#,
            404,
            r#"{"error":{"code":"unknown-disk","message":"no disk is named `x`; `mpathctl status` shows them"}}"#,
        ),
        (
            "PUT",
            "/v1/policy",
            "",
            400,
            r#"{"error":{"code":"bad-request","message":"body: EOF while parsing a value at line 1 column 0"}}"#,
        ),
        (
            "PUT",
            "/v1/policy",
            r#"{"policy":"numa","dsk":"x"}"#,
            400,
            r#"{"error":{"code":"bad-request","message":"body: unknown field `dsk`, expected one of `policy`, `params`, `class`, `disk` at line 1 column 22"}}"#,
        ),
        (
            "DELETE",
            "/v1/injections?path=9",
            "",
            404,
            r#"{"error":{"code":"unknown-path","message":"no path is `9`; `mpathctl path list` shows them"}}"#,
        ),
        (
            "PUT",
            "/v1/paths",
            r#"{"path":"all","disk":"a","action":"drain"}"#,
            409,
            r#"{"error":{"code":"last-path","message":"disk `a` would have no usable path left and its I/O would wait; enable another path first, or say --force"}}"#,
        ),
        (
            "DELETE",
            "/v1/injections?disk=x",
            "",
            404,
            r#"{"error":{"code":"unknown-disk","message":"no disk is named `x`; `mpathctl status` shows them"}}"#,
        ),
    ] {
        assert_eq!(server.request(method, target, body), (status, error.into()), "{method} {target}");
    }
    for (method, target, body, part) in [
        ("GET", "/v1/paths?dsk=a", "", "unknown field `dsk`"),
        ("PUT", "/v1/policy", r#"{"policy":"fastest"}"#, "latency-rr"),
        ("PUT", "/v1/paths", r#"{"path":"0","action":"destroy"}"#, "`enable`, `drain`, `disable`, `reset`"),
        ("POST", "/v1/disks/a/paths", r#"{"address":"rdma://x"}"#, "unknown transport `rdma`"),
        ("POST", "/v1/disks/a/paths", r#"{"address":"tcp://x","force":true}"#, "unknown field `force`"),
        ("DELETE", "/v1/disks/a/paths/0?force=maybe", "", "force"),
        ("DELETE", "/v1/disks/a/paths/a%20b", "", "no host name"),
        ("GET", "/v1/events?wait=5", "", "wait: at most 4 seconds, not 5"),
        ("GET", "/v1/events?after=-1", "", "invalid digit"),
        ("PUT", "/v1/injections", r#"{"path":"0","injection":{"latency_us":0}}"#, "1us to 60s, not 0ns"),
        ("PUT", "/v1/injections", r#"{"path":"rdma://x","injection":{"latency_us":1}}"#, "unknown transport `rdma`"),
        ("DELETE", "/v1/injections?path=a%20b", "", "no host name"),
    ] {
        let (status, body) = server.request(method, target, body);
        assert!(status == 400 && body.contains(part), "{method} {target}: {status} {body}");
    }
    assert_eq!(server.client().injections(None).unwrap(), []);
}

#[test]
fn bounds_bodies() {
    let server = Running::start(brief());
    let mut padded = r#"{"policy":"numa"}"#.to_string();
    padded.push_str(&" ".repeat((64 << 10) - padded.len()));
    assert_eq!(server.request("PUT", "/v1/policy", &padded).0, 200);
    padded.push(' ');
    let (status, body) = server.request("PUT", "/v1/policy", &padded);
    assert_eq!(status, 413);
    assert!(body.contains(r#""code":"body-too-large""#), "{body}");

    // Without a length there is nothing to refuse early.
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let head = "PUT /v1/policy HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = server.raw(format!("{head}{chunk}1\r\nx\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");

    // Bodies that never come to their end.
    for start in ["PUT /v1/policy HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nx".into(), format!("{head}{chunk}")]
    {
        let mut stream = server.connect();
        stream.write_all(start.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
}

#[test]
fn closes_on_clients_that_send_no_request() {
    let server = Running::start(brief());
    for start in [&b""[..], b"G", b"GET /v1/status HTTP/1.1\r\nhost:"] {
        let mut stream = server.connect();
        stream.write_all(start).unwrap();
        let before = Instant::now();
        assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0, "{start:?}");
        assert!(before.elapsed() >= Duration::from_millis(100), "closed by the timeout, not by the request");
    }
    let garbage: Vec<u8> = (0..4096_u32).map(|i| (i * 31 % 251) as u8).collect();
    server.raw(&garbage);
    server.raw(format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20)).as_bytes());
    server.raw(b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000).as_slice());
    assert_eq!(server.client().status().unwrap().pid, 7);
}

#[test]
fn a_client_that_closes_its_half_is_answered() {
    let server = Running::start(Limits::default());
    let mut stream = server.connect();
    stream.write_all(b"GET /v1/status HTTP/1.0\r\n\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    // An hour: nobody gets in because these time out.
    let hour = Duration::from_secs(3600);
    let server = Running::start(Limits { header: hour, connection: hour, ..Limits::default() });
    let silent: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for _ in 0..100 {
        assert_eq!(server.client().status().unwrap().pid, 7);
    }
    // The oldest were displaced.
    assert_eq!((&silent[0]).read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_daemon_that_does_not_answer_is_reported() {
    let mut server = Running::start(brief());
    server.control.stuck.store(true, Ordering::Relaxed);
    match server.client().status() {
        Err(ClientError::Refused(error)) => {
            assert_eq!(error.code, ErrorCode::Unavailable);
            assert_eq!(error.message, "the daemon's I/O threads do not answer");
        }
        other => panic!("{other:?}"),
    }
    server.end();
}

#[test]
fn disks_come_and_go() {
    let server = Running::start(Limits::default());
    let client = server.client();
    let names = |disk| client.disks(disk).map(|disks| disks.into_iter().map(|disk| disk.name).collect::<Vec<_>>());
    assert_eq!(names(None).unwrap(), ["a", "b"]);
    assert_eq!(names(Some("b")).unwrap(), ["b"]);
    assert_eq!(client.remove_disk("b", true).unwrap()[0].name, "b");
    let disk = |name: &str| DiskConfig {
        name: name.parse().unwrap(),
        ..DiskConfig::new("/tmp/s".parse().unwrap(), "nqn.a".parse().unwrap(), vec![])
    };
    let refused = |result: Result<Vec<Disk>, ClientError>| match result {
        Err(ClientError::Refused(error)) => (error.code, error.message),
        other => panic!("{other:?}"),
    };
    for (result, code, said) in [
        (
            client.add_disk(&disk("a")),
            ErrorCode::DiskExists,
            "there is a disk `a` already; give each disk its own name",
        ),
        (client.add_disk(&disk("c")), ErrorCode::DiskNotStarted, "no path"),
        (client.remove_disk("c", true), ErrorCode::UnknownDisk, "no disk is named `c`; `mpathctl status` shows them"),
        (
            client.remove_disk("a", true),
            ErrorCode::PathsAreShared,
            "disk `a` has the paths that are used by `x`, `y`; remove those first",
        ),
        (
            client.remove_disk("b", false),
            ErrorCode::DiskConnected,
            "disk `b` has a front-end connected; end that first, or say --force, which takes the disk from its guest",
        ),
    ] {
        assert_eq!(refused(result), (code, said.into()));
    }
    let (status, answer) =
        server.request("POST", "/v1/disks", r#"{"socket-path":"/tmp/s","subsystem":"nqn.a","polcy":1}"#);
    assert!(status == 400 && answer.contains("unknown field `polcy`"), "{answer}");
    let (status, answer) = server.request("DELETE", "/v1/disks/b?forse=true", "");
    assert!(status == 400 && answer.contains("forse"), "{answer}");
}

#[test]
fn a_disk_that_takes_long_is_not_taken_for_a_daemon_that_is_stuck() {
    let server = Running::start(brief());
    server.control.stuck.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let disk = DiskConfig::new("/tmp/s".parse().unwrap(), "nqn.a".parse().unwrap(), vec![]);
    match server.client().add_disk(&disk) {
        Err(ClientError::Refused(error)) => {
            assert_eq!(error.code, ErrorCode::Unavailable);
            assert!(error.message.contains("it goes on"), "{}", error.message);
        }
        other => panic!("{other:?}"),
    }
    assert!(start.elapsed() >= 2 * brief().control, "it has more time than others");
}

#[test]
fn ends_at_once_with_silent_clients_about() {
    let mut server = Running::start(Limits::default());
    let mut silent = server.connect();
    // Served after it, so it has been accepted.
    server.client().status().unwrap();
    let path = server.path();
    assert!(path.exists());
    server.end();
    assert!(!path.exists());
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn the_socket_is_private_and_replaces_only_the_dead() {
    let dir = tempfile::tempdir().unwrap();
    let path = socket(&dir);
    let file = path.as_path();
    let bind = || Server::bind(&path);
    let refused = || bind().unwrap_err().to_string();

    let server = bind().unwrap();
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let busy = format!("{path}: another process listens on this API socket; give each daemon its own");
    assert_eq!(refused(), busy);
    drop(server);
    assert!(!file.exists());

    // Alive, but stuck.
    let stuck = UnixListener::bind(file).unwrap();
    rustix::net::listen(&stuck, 0).unwrap();
    let _waiting = UnixStream::connect(file).unwrap();
    assert_eq!(refused(), busy);
    drop(stuck);
    std::fs::remove_file(file).unwrap();

    // Left behind by a process that was killed.
    drop(UnixListener::bind(file).unwrap());
    let server = bind().unwrap();
    UnixStream::connect(file).unwrap();
    // A successor's socket is not ours to remove.
    std::fs::remove_file(file).unwrap();
    let successor = UnixListener::bind(file).unwrap();
    drop(server);
    assert!(file.exists());
    drop(successor);
    std::fs::remove_file(file).unwrap();

    std::fs::write(file, "precious").unwrap();
    assert_eq!(refused(), format!("{path}: exists and is no socket; remove it or name another API socket"));
    assert_eq!(std::fs::read(file).unwrap(), b"precious");
}

#[test]
fn a_directory_that_is_missing_is_not_made_up() {
    let dir = tempfile::tempdir().unwrap();
    let path: SocketPath = dir.path().join("nowhere/api.sock").to_str().unwrap().parse().unwrap();
    let error = Server::bind(&path).unwrap_err().to_string();
    let reason = "the directory of the API socket cannot be used: No such file or directory (os error 2); create it or name another";
    assert_eq!(error, format!("{path}: {reason}"));
    assert!(!dir.path().join("nowhere").exists());
}

#[test]
fn of_two_that_start_at_once_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let path = socket(&dir);
    for _ in 0..50 {
        drop(UnixListener::bind(path.as_path()).unwrap());
        let start = || {
            let path = path.clone();
            thread::spawn(move || Server::bind(&path))
        };
        let (a, b) = (start(), start());
        let (a, b) = (a.join().unwrap(), b.join().unwrap());
        assert!(a.is_ok() != b.is_ok(), "{a:?} {b:?}");
        UnixStream::connect(path.as_path()).unwrap();
    }
}

#[test]
fn schedulers_and_limits() {
    let server = Running::start(Limits::default());
    let client = server.client();
    let set = |body: &str| server.request("PUT", "/v1/scheduler", body);
    let answer = r#"[{"disk":"b","scheduler":{"name":"burst-credit-drr","rho":"0"}}]"#;
    assert_eq!(set(r#"{"scheduler":"burst-credit-drr","params":{"rho":0},"disk":"b"}"#), (200, answer.into()));
    for (body, part) in [
        (r#"{"scheduler":"cfq"}"#, "unknown scheduler 'cfq', expected one of: fifo"),
        (r#"{"scheduler":"fifo","params":{"rho":0}}"#, "scheduler 'fifo' has no parameter 'rho'; it has none"),
        (r#"{"scheduler":"burst-credit-drr","params":{"rho":2}}"#, "'rho' is '2', expected 0 to 1"),
        (r#"{"scheduler":"fifo","queue":1}"#, "unknown field `queue`"),
        ("{}", "missing field `scheduler`"),
    ] {
        let (status, answer) = set(body);
        assert!(status == 400 && answer.contains(part), "{body}: {status} {answer}");
    }
    let (status, answer) = set(r#"{"scheduler":"fifo","disk":"c"}"#);
    assert!(status == 404 && answer.contains("`c`"), "{answer}");
    let kept = SetScheduler { scheduler: SchedulerKind::BurstCreditDrr, params: Vec::new(), disk: None };
    let both = client.set_scheduler(&kept).unwrap();
    assert_eq!(
        both.iter().map(|of| of.scheduler.to_string()).collect::<Vec<_>>(),
        ["burst-credit-drr", "burst-credit-drr rho=0"]
    );
    assert_eq!(client.scheduler(Some("b")).unwrap(), both[1..]);
    let known = client.schedulers().unwrap();
    assert_eq!(known.iter().map(|of| of.active_on.len()).collect::<Vec<_>>(), [0, 0, 2]);
    let detail = &client.scheduler_detail(Some("b")).unwrap()[0];
    let rho = detail.params.iter().find(|param| param.name == "rho").unwrap();
    assert_eq!((&*rho.value, &*rho.default, detail.queues.len()), ("0", "0.75", 0));

    let set = |body: &str| server.request("PUT", "/v1/limits", body);
    let left = r#""balance_ios":null,"balance_bytes":null,"throttled_ms":0"#;
    let answer = format!(r#"[{{"disk":"a","iops":500,"bandwidth":"off","burst":"1000ms",{left}}}]"#);
    assert_eq!(set(r#"{"iops":500,"disk":"a"}"#), (200, answer));
    let answer = format!(r#"[{{"disk":"a","iops":500,"bandwidth":1048576,"burst":"2000ms",{left}}}]"#);
    assert_eq!(set(r#"{"bandwidth":"1MiB","burst":"2s","disk":"a"}"#), (200, answer), "what is left out stays");
    for (body, part) in [
        (r#"{"iops":0}"#, "from 1 to 1000000000"),
        (r#"{"bandwidth":"1MB"}"#, "`1MB` is not off or a number of bytes per second from 4KiB to 1TiB"),
        (r#"{"burst":"1h"}"#, "`1h` is not a time from 0ms to 3600000ms"),
        (r#"{"disk":"a"}"#, "nothing to set; give iops, bandwidth or burst"),
        (r#"{"iops":1,"queue":1}"#, "unknown field `queue`"),
    ] {
        let (status, answer) = set(body);
        assert!(status == 400 && answer.contains(part), "{body}: {status} {answer}");
    }
    let lifted = SetLimits { iops: Some("off".parse().unwrap()), ..SetLimits::default() };
    assert_eq!(client.set_limits(&lifted).unwrap(), client.limits(None).unwrap());
    assert_eq!(
        client.limits(Some("a")).unwrap()[0].status.limits.to_string(),
        "iops off, bandwidth 1MiB, burst 2000ms"
    );
}

#[test]
fn weights() {
    let server = Running::start_with(Fake::sharing(), Limits::default());
    let client = server.client();
    let set = |body: &str| server.request("PUT", "/v1/weights", body);
    let answer = r#"[{"disk":"shares-a","weight":25,"shares_paths_of":"a"}]"#;
    assert_eq!(set(r#"{"weight":25,"disk":"shares-a"}"#), (200, answer.into()));
    let shown = |disk| client.weights(disk).unwrap().into_iter().map(|of| (of.disk, of.weight)).collect::<Vec<_>>();
    assert_eq!(shown(None), [("a".into(), 100), ("b".into(), 100), (SHARER.into(), 25)]);
    assert_eq!(shown(Some(SHARER)), [(SHARER.into(), 25)]);
    let one = client.set_weight(&SetWeight { weight: weight(1000), disk: Some("b".into()) }).unwrap();
    assert_eq!((one.len(), &*one[0].disk, one[0].weight, one[0].shares_paths_of.as_deref()), (1, "b", 1000, None));
    for (body, part) in [
        (r#"{"weight":0,"disk":"a"}"#, "integer `0`, expected an integer from 1 to 1000"),
        (r#"{"weight":1001,"disk":"a"}"#, "integer `1001`, expected an integer from 1 to 1000"),
        (r#"{"weight":25}"#, "there are several disks, and a weight is one's part beside the others; name one in disk"),
        (r#"{"disk":"a"}"#, "missing field `weight`"),
        (r#"{"weight":25,"disk":"a","queue":1}"#, "unknown field `queue`"),
    ] {
        let (status, answer) = set(body);
        assert!(status == 400 && answer.contains(part), "{body}: {status} {answer}");
    }
    let (status, answer) = set(r#"{"weight":25,"disk":"c"}"#);
    assert!(status == 404 && answer.contains("no disk is named `c`"), "{answer}");
    assert_eq!(server.request("GET", "/v1/weights?disk=c", "").0, 404);
    assert_eq!(shown(Some("a")), [("a".into(), 100)], "what is refused changes nothing");

    let only = Running::start_with(Fake { disks: &["a"], ..Fake::new() }, Limits::default());
    let answer = r#"[{"disk":"a","weight":7,"shares_paths_of":null}]"#;
    assert_eq!(only.request("PUT", "/v1/weights", r#"{"weight":7}"#), (200, answer.into()), "there is no other one");
}

/// What belongs to paths is said of the disk that has them.
#[test]
fn a_disk_over_the_paths_of_another_one() {
    let server = Running::start_with(Fake::sharing(), Limits::default());
    let client = server.client();
    let injection = r#"{"path":"0","injection":{"latency_us":5},"disk":"shares-a"}"#;
    for (method, target, body) in [
        ("GET", "/v1/policy?disk=shares-a", ""),
        ("PUT", "/v1/policy", r#"{"policy":"numa","disk":"shares-a"}"#),
        ("GET", "/v1/policy/detail?disk=shares-a", ""),
        ("GET", "/v1/hedge?disk=shares-a", ""),
        ("PUT", "/v1/hedge", r#"{"hedge":"p95","disk":"shares-a"}"#),
        ("GET", "/v1/scheduler?disk=shares-a", ""),
        ("PUT", "/v1/scheduler", r#"{"scheduler":"burst-credit","disk":"shares-a"}"#),
        ("GET", "/v1/paths?disk=shares-a", ""),
        ("GET", "/v1/paths?disk=shares-a&path=0", ""),
        ("PUT", "/v1/paths", r#"{"path":"0","action":"drain","disk":"shares-a"}"#),
        ("POST", "/v1/disks/shares-a/paths", r#"{"address":"tcp://127.0.0.1:4420"}"#),
        ("DELETE", "/v1/disks/shares-a/paths/0", ""),
        ("GET", "/v1/injections?disk=shares-a", ""),
        ("PUT", "/v1/injections", injection),
        ("DELETE", "/v1/injections?disk=shares-a&path=0", ""),
    ] {
        let message =
            "disk `shares-a` uses the paths of `a`, and with them its policy, scheduler and hedging: name `a`";
        let refused = format!(r#"{{"error":{{"code":"shares-paths","message":"{message}"}}}}"#);
        assert_eq!(server.request(method, target, body), (409, refused), "{method} {target}");
    }

    // No disk named is every disk that has paths, before the change and after it.
    let policies = client.set_policy(&SetPolicy::from(PolicyKind::Numa)).unwrap();
    assert_eq!(policies.iter().map(|of| &*of.disk).collect::<Vec<_>>(), ["a", "b"]);
    let hedges = client.set_hedge(&SetHedge { hedge: Some(Hedge::Quantile(950)), budget: None, disk: None }).unwrap();
    assert_eq!(hedges.iter().map(|of| &*of.disk).collect::<Vec<_>>(), ["a", "b"]);
    let scheduler = SetScheduler { scheduler: SchedulerKind::BurstCredit, params: vec![], disk: None };
    let schedulers = client.set_scheduler(&scheduler).unwrap();
    assert_eq!(schedulers.iter().map(|of| &*of.disk).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(client.policy_detail(None).unwrap().len(), 2);
    let active: Vec<_> = client.policies().unwrap().into_iter().flat_map(|policy| policy.active_on).collect();
    assert_eq!(active, ["a", "b"]);
    let active: Vec<_> = client.schedulers().unwrap().into_iter().flat_map(|of| of.active_on).collect();
    assert_eq!(active, ["a", "b"]);

    // Its limits and virtqueues are its own, and the scheduler of the other one is shown with them.
    let limits = SetLimits { iops: Some("500".parse().unwrap()), disk: Some(SHARER.into()), ..SetLimits::default() };
    assert_eq!(client.set_limits(&limits).unwrap()[0].disk, SHARER);
    let details = client.scheduler_detail(None).unwrap();
    let shown = |of: &SchedulerDetail| (of.scheduler.to_string(), of.limits.limits.iops.to_string());
    assert_eq!(details.iter().map(|of| &*of.disk).collect::<Vec<_>>(), ["a", "b", SHARER]);
    assert_eq!(
        (shown(&details[0]), shown(&details[2])),
        (("burst-credit".into(), "off".into()), ("burst-credit".into(), "500".into()))
    );
    assert_eq!(details[2].shares_paths_of.as_deref(), Some("a"));
    assert_eq!(client.scheduler_detail(Some(SHARER)).unwrap(), details[2..]);
    let all = SetLimits { iops: Some("7".parse().unwrap()), ..SetLimits::default() };
    assert_eq!(client.set_limits(&all).unwrap().len(), 3, "every disk has limits");
    let disks = client.status().unwrap().disks;
    assert_eq!(disks.iter().map(|disk| disk.shares_paths_of.as_deref()).collect::<Vec<_>>(), [None, None, Some("a")]);
}
