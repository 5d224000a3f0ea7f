mod clients;
mod configuration;
mod diagnostics;
mod document;
mod errors;
mod events;
mod fake;
mod scheduling;
mod sharing;

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Instant, UNIX_EPOCH};

use axum::http::{Method, Uri};
use mpath_api::client::{Client, ClientError};
use mpath_api::types::{
    ActOnPaths, AddPath, Caller, ClassFigures, ClearedFence, ClearedFences, Condition, Disk, DiskFences, DiskHealth,
    DiskState, ErrorCode, Event, EventKind, EventPath, FailedChange, FenceLift, FenceWaits, GuestFigures,
    GuestOperation, HedgeStatus, InheritedFence, InjectionInForce, LimitStatus, MovedRequests, OpStats, PathCounts,
    PathFence, PathSelector, PathState, PathWindow, SetInjection, SetLimits, SetScheduler, SetSettings, Severity,
    SlowRequest, Stages, ThreadExplanation,
};
use mpath_config::{Change, Hedge, HedgeSetting, LimitsConfig, LiveSetting, MinPaths, WaitFor, Weight};
use mpath_core::{PolicyKind, SchedulerKind};
use patience::PATIENCE;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

pub(super) use fake::Fake;
use fake::{SHARER, weight};

use super::*;

/// The code and the message of an error.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> (ErrorCode, String) {
    match result {
        Err(ClientError::Refused(error)) => (error.code, error.message),
        other => panic!("{other:?}"),
    }
}

/// A server in a thread of its own. Dropping it ends the server.
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

    pub(super) fn start_read_only() -> Self {
        Self::serve(Fake::new(), Server::read_only)
    }

    fn start_with(control: Fake, limits: Limits) -> Self {
        Self::serve(control, |server| Server { limits, ..server })
    }

    fn serve(control: Fake, with: impl FnOnce(Server) -> Server) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = with(Server::bind(&socket(&dir)).unwrap());
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
        Client::new(&self.path(), PATIENCE).unwrap()
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and reads until the server closes the connection.
    pub(super) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may close the connection before it has read everything.
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
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        document::assert_documented(method, target, status, body);
        (status, body.into())
    }

    /// Changes settings. Returns the disks changed, each with this key of the answer.
    #[track_caller]
    fn set(&self, wanted: &Value, key: &str) -> Vec<(String, Value)> {
        let (status, answer) = self.request("PUT", "/v1/settings", &wanted.to_string());
        assert_eq!(status, 200, "{answer}");
        let disks: Vec<Value> = serde_json::from_str(&answer).unwrap();
        disks.iter().map(|disk| (disk["name"].as_str().unwrap().into(), disk[key].clone())).collect()
    }

    /// Asks for a change that is refused with a message that has this part. Returns the status.
    #[track_caller]
    fn refuses(&self, wanted: &Value, part: &str) -> u16 {
        let (status, answer) = self.request("PUT", "/v1/settings", &wanted.to_string());
        assert!(answer.contains(part), "{wanted}: {status} {answer}");
        status
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

/// Limits that are short enough for tests, and longer than a busy machine keeps a client waiting.
fn brief() -> Limits {
    let brief = Duration::from_millis(600);
    Limits {
        header: brief,
        body: brief,
        control: brief,
        disks: 2 * brief,
        connection: Duration::from_secs(4),
        ..Limits::default()
    }
}

#[test]
fn policies_hedging_and_injections_are_read_and_set() {
    let server = Running::start(Limits::default());
    let client = server.client();

    assert_eq!(client.status().unwrap().disks.len(), 2);
    let shares: Vec<_> = client.paths(None).unwrap().iter().map(|path| path.io_share).collect();
    assert_eq!(shares, [0.0, 0.0, 0.25, 0.75]);
    assert_eq!(client.paths(Some("b")).unwrap().len(), 2);

    let one = client.set(&SetSettings::from(PolicyKind::RoundRobin).of("b")).unwrap();
    assert_eq!((one.len(), &*one[0].name, one[0].policy), (1, "b", PolicyKind::RoundRobin.into()));
    let kinds =
        |disk| client.disks_with(LiveSetting::Policy, disk).unwrap().iter().map(|disk| disk.policy).collect::<Vec<_>>();
    assert_eq!(kinds(None), [PolicyKind::LatencyRr.into(), PolicyKind::RoundRobin.into()]);
    assert_eq!(kinds(Some("a")), [PolicyKind::LatencyRr.into()]);
    let active = |kind| {
        let policies = client.policies().unwrap();
        assert_eq!(policies.len(), PolicyKind::ALL.len());
        policies.into_iter().find(|policy| policy.name == kind).unwrap().active_on
    };
    assert_eq!(active(PolicyKind::RoundRobin), ["b"]);
    let policy = json!({"name": "latency-rr", "params": {"threshold": 1.5}, "class": "write"});
    let written = json!({"read": "round-robin", "write": {"name": "latency-rr", "threshold": "1.5"}});
    assert_eq!(server.set(&json!({"policy": policy, "disk": "b"}), "policy"), [("b".into(), written)]);
    assert_eq!(
        (active(PolicyKind::RoundRobin), active(PolicyKind::LatencyRr)),
        (vec!["b".into()], vec!["a".into(), "b".into()])
    );
    for (policy, part) in [
        (r#"{"name":"latency-rr","params":{"treshold":2}}"#, "no parameter 'treshold'; it has threshold"),
        (r#"{"name":"latency-rr","params":{"threshold":"0.1"}}"#, "'threshold' is '0.1', expected 1 to 10"),
        (r#"{"name":"latency-rr","params":{"threshold":2,"threshold":3}}"#, "given twice"),
        (r#"{"name":"latency-rr","params":["threshold"]}"#, "a mapping of parameters to values"),
        (r#"{"name":"numa","class":"flush"}"#, "unknown class 'flush', expected one of: read, write"),
    ] {
        let (status, answer) = server.request("PUT", "/v1/settings", &format!(r#"{{"policy":{policy}}}"#));
        assert!(status == 400 && answer.contains(part), "{policy}: {status} {answer}");
    }
    assert_eq!(kinds(Some("a")), [PolicyKind::LatencyRr.into()], "what is refused changes nothing");
    client.set(&PolicyKind::Numa.into()).unwrap();
    assert_eq!(active(PolicyKind::Numa), ["a", "b"]);

    let wanted = json!({"hedge": "p99.5", "hedge-budget": "3%", "disk": "b"});
    assert_eq!(server.set(&wanted, "hedge"), [("b".into(), json!("p99.5"))]);
    for (wanted, part) in [
        (json!({"hedge": "p30"}), "`p30` is not off or a quantile from p50 to p99.9, such as p95 or p99.5"),
        (
            json!({"hedge": "p95", "hedge-budget": "7%"}),
            "`7%` is not a share of all reads from 0.1% to 5%, such as 5% or 0.5%",
        ),
        (json!({"hedge": 95}), "`95` is not off or a quantile from p50 to p99.9"),
        (
            json!({"disk": "b"}),
            "nothing to set; give policy, scheduler, limits, weight, hedge, hedge-budget, min-paths",
        ),
        (json!({"hedge": "p95", "quantile": 1}), "unknown field `quantile`"),
        (json!({"hedge_budget": "1%"}), "unknown field `hedge_budget`: write `hedge-budget` at line 1"),
    ] {
        assert_eq!(server.refuses(&wanted, part), 400);
    }
    assert_eq!(server.refuses(&json!({"hedge": "p95", "disk": "c"}), "`c`"), 404);
    let hedge = SetSettings { hedge: Some(Hedge::Quantile(950)), ..SetSettings::default() };
    let both = client.set(&hedge).unwrap();
    let shown: Vec<_> = both.iter().map(|of| (&*of.name, of.hedge.hedge, of.hedge.hedge_budget.to_string())).collect();
    assert_eq!(shown, [("a", Hedge::Quantile(950), "5%".into()), ("b", Hedge::Quantile(950), "3%".into())]);
    assert_eq!(client.disks_with(LiveSetting::HedgeBudget, Some("a")).unwrap(), both[..1]);

    let inject = |path: &str, disk: Option<&str>, us: u64| {
        client.set_injection(&SetInjection {
            path: path.parse().unwrap(),
            disk: disk.map(Into::into),
            injection: Injection::latency(us.try_into().unwrap()),
            for_ms: None,
        })
    };
    let places = |paths: Vec<mpath_api::types::InjectedPath>| {
        paths
            .into_iter()
            .map(|p| (p.disk, p.index, p.injection.injection.latency_us.unwrap().into()))
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

    let body = r#"{"path":"0","disk":"a","injection":{"stall":true},"for-ms":30000}"#;
    let answer = r#"[{"disk":"a","index":0,"address":"tcp://127.0.0.1:4420","injection":{"direction":"request","stall":true,"seed":0,"ends-in-ms":30000}}]"#;
    assert_eq!(server.request("PUT", "/v1/injections", body), (200, answer.into()));
    assert_eq!(client.injections(None).unwrap()[0].injection.ends_in_ms, Some(30_000));
    for bad in ["0", "86400001", "-1", "\"30s\""] {
        let (status, answer) = server.request("PUT", "/v1/injections", &body.replace("30000", bad));
        assert!(status == 400 && answer.contains("for-ms"), "{bad}: {answer}");
    }
}

/// Adds a key to every object.
fn with_unknown_keys(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(map) => {
            map.values_mut().for_each(with_unknown_keys);
            map.insert("quota-of-next-year".into(), 7.into());
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(with_unknown_keys),
        _ => {}
    }
}

#[test]
fn an_older_client_reads_answers_with_more_keys() {
    fn reads<T: serde::de::DeserializeOwned>(server: &Running, route: &str) {
        let (status, body) = server.request("GET", route, "");
        let mut answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, answer.as_array().is_some_and(Vec::is_empty)), (200, false), "{route}");
        with_unknown_keys(&mut answer);
        let read = serde_json::from_value::<T>(answer);
        assert!(read.is_ok(), "{route}: {:?}", read.err());
    }
    let server = Running::start(Limits::default());
    assert_eq!(server.request("PUT", "/v1/injections", r#"{"path":"0","injection":{"stall":true}}"#).0, 200);
    reads::<mpath_api::types::Status>(&server, "/v1/status");
    reads::<Vec<Disk>>(&server, "/v1/disks");
    reads::<Vec<Path>>(&server, "/v1/paths");
    reads::<mpath_api::types::Events>(&server, "/v1/events");
    reads::<Vec<mpath_api::types::Policy>>(&server, "/v1/policies");
    reads::<Vec<mpath_api::types::PolicyDetail>>(&server, "/v1/policy/detail");
    reads::<Vec<mpath_api::types::Scheduler>>(&server, "/v1/schedulers");
    reads::<Vec<mpath_api::types::SchedulerDetail>>(&server, "/v1/scheduler/detail");
    reads::<Vec<DiskFences>>(&server, "/v1/fences");
    reads::<Vec<mpath_api::types::InjectedPath>>(&server, "/v1/injections");
}

#[test]
fn an_upgrade_takes_as_long_as_it_needs_and_its_refusal_has_a_code() {
    let server = Running::start(Limits::default());
    let client = server.client();
    assert_eq!(client.upgrade(true).unwrap().version, "1.2.4");
    let Err(ClientError::Refused(error)) = client.upgrade(false) else { panic!("it is refused") };
    assert_eq!(error.code, ErrorCode::UpgradeFailed);
    let takes_long = |method: &Method, path: &'static str| disks::takes_long(method, &Uri::from_static(path));
    assert!(takes_long(&Method::POST, "/v1/upgrade?force=true") && takes_long(&Method::POST, "/v1/disks"));
    assert!(!takes_long(&Method::GET, "/v1/disks"));
}

#[test]
fn each_answer_says_the_version_of_the_daemon() {
    let server = Running::start(Limits::default());
    let client = server.client();
    assert_eq!(client.daemon_version(), None);
    client.status().unwrap();
    assert_eq!(client.daemon_version().as_deref(), Some("9.8.7 (fake)"));
    for target in ["/v1/none", "/v1/paths?disk=none"] {
        let answer = server.raw(format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes());
        assert!(answer.contains("server: vhost-blk-mpath/9.8.7 (fake)\r\n"), "{answer}");
    }
}

#[test]
fn fences_are_shown_and_cleared() {
    let server = Running::start(Limits::default());
    let client = server.client();
    assert_eq!(client.fences(None).unwrap().len(), 2);
    let of_b = &client.fences(Some("b")).unwrap()[0];
    assert_eq!((&*of_b.disk, of_b.lost_writes), ("b", true));
    assert_eq!(refused(client.fences(Some("c"))).0, ErrorCode::UnknownDisk);
    assert_eq!(refused(client.clear_fences("c", true)).0, ErrorCode::UnknownDisk);
    let (code, message) = refused(client.clear_fences("b", false));
    assert!(code == ErrorCode::NeedsForce && message.contains("for 10 s more; wait, or use --force"), "{message}");
    let cleared = client.clear_fences("b", true).unwrap().cleared;
    assert_eq!(cleared, [ClearedFence::UnansweredRequests, ClearedFence::InheritedFence, ClearedFence::LostWrites]);
    assert_eq!(client.clear_fences("b", false).unwrap().cleared, []);
}

#[test]
fn a_request_knows_its_client_and_a_change_its_process_too() {
    let server = Running::start(Limits::default());
    let caller = || server.control.caller.lock().unwrap().take().unwrap();
    server.client().events(0).unwrap();
    let uid = std::fs::metadata(server.path()).unwrap().uid();
    let known = Caller::new(uid, Some(std::process::id()));
    assert_eq!(caller(), known);
    server.set(&json!({"policy": {"name": "numa"}}), "policy");
    let changed = caller();
    assert!(changed.command.is_some(), "{changed:?}");
    assert_eq!(Caller { login_uid: None, command: None, unit: None, ..changed }, known);
}

#[test]
fn paths_are_drained_enabled_and_disabled() {
    let server = Running::start(Limits::default());
    let client = server.client();
    let act_on = |path: &str, disk: Option<&str>, all, action, force| {
        let wanted = ActOnPaths { path: path.parse().unwrap(), disk: disk.map(Into::into), all, action, force };
        let places = |paths: Vec<Path>| paths.into_iter().map(|p| (p.disk, p.index, p.state)).collect::<Vec<_>>();
        client.act_on_paths(&wanted).map(places)
    };
    let act = |path: &str, disk: Option<&str>, action, force| act_on(path, disk, disk.is_none(), action, force);
    let drained = PathState::Draining;
    for action in [PathAction::Drain, PathAction::Disable, PathAction::Reset, PathAction::Enable] {
        let refused = act_on("1", None, false, action, true).unwrap_err().to_string();
        assert!(refused.starts_with("this changes 2 disks (a, b); name one"), "{refused}");
    }
    let refused = act_on("1", Some("a"), true, PathAction::Drain, true).unwrap_err().to_string();
    assert_eq!(refused, "give `disk` or `all`, not both");
    assert_eq!(act("1", Some("a"), PathAction::Drain, false).unwrap(), [("a".into(), 1, drained)]);
    let refused = act("1", None, PathAction::Disable, false).unwrap_err().to_string();
    assert!(refused.contains("disk `a` would have no usable path left"), "{refused}");
    assert_eq!(act("0", None, PathAction::Disable, true).unwrap().len(), 2);
    assert_eq!(act("0", Some("b"), PathAction::Enable, false).unwrap(), [("b".into(), 0, PathState::Live)]);
    let shown = client.path(&PathSelector::Index(0), Some("a")).unwrap();
    assert_eq!((shown.len(), shown[0].index, shown[0].state), (1, 0, drained));
    assert!(client.path(&PathSelector::Index(7), None).unwrap_err().to_string().contains("no path is `7`"));
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
    let refused = remove("b", "0", false).unwrap_err().to_string();
    assert!(refused.contains("disk `b` would have no usable path left"), "{refused}");
    // The refusal does not keep the other path.
    assert_eq!(remove("b", "all", false).unwrap_err().to_string(), refused);
    let states = client.paths(Some("b")).unwrap().iter().map(|path| path.state).collect::<Vec<_>>();
    assert_eq!(states, [PathState::Live, removing]);
    // `all` leaves out the path that is being removed.
    let drain = ActOnPaths {
        path: PathSelector::All,
        disk: Some("a".into()),
        all: false,
        action: PathAction::Drain,
        force: false,
    };
    assert_eq!(
        client.act_on_paths(&drain).unwrap().iter().map(|path| path.state).collect::<Vec<_>>(),
        [removing, PathState::Draining]
    );
    assert_eq!(remove("b", "all", true).unwrap(), [("b".into(), 0, removing), ("b".into(), 1, removing)]);
    assert!(remove("a", "7", false).unwrap_err().to_string().contains("no path is `7`"));
    assert!(remove("c", "0", false).unwrap_err().to_string().contains("no disk is named `c`"));
}

#[test]
fn disks_are_added_and_removed() {
    let server = Running::start(Limits::default());
    let client = server.client();
    let names = |disk| client.disks(disk).map(|disks| disks.into_iter().map(|disk| disk.name).collect::<Vec<_>>());
    assert_eq!(names(None).unwrap(), ["a", "b"]);
    assert_eq!(names(Some("b")).unwrap(), ["b"]);
    let disk = |name: &str| DiskConfig {
        name: name.parse().unwrap(),
        ..DiskConfig::new("/tmp/s".parse().unwrap(), "nqn.a".parse().unwrap(), vec![])
    };
    for (result, code, said) in [
        (
            refused(client.add_disk(&disk("a"))),
            ErrorCode::DiskExists,
            "cannot add disk `a`: another disk has this name; give each disk its own `name`",
        ),
        (refused(client.add_disk(&disk("c"))), ErrorCode::DiskNotStarted, "no path"),
        (
            refused(client.remove_disk("c", true)),
            ErrorCode::UnknownDisk,
            "no disk is named `c`; `mpathctl status` shows the disks",
        ),
        (
            refused(client.remove_disk("a", true)),
            ErrorCode::SharesPaths,
            "disk `a` shares the paths of `x`, and they are removed together; `mpathctl disk remove x` removes `x`, `a`",
        ),
        (
            refused(client.remove_disk("b", false)),
            ErrorCode::DiskConnected,
            "disk `b` has a front-end connected; end the front-end first, or use --force, which takes the disk from its guest",
        ),
    ] {
        assert_eq!(result, (code, said.into()));
    }
    let (status, answer) =
        server.request("POST", "/v1/disks", r#"{"socket-path":"/tmp/s","subsystem":"nqn.a","polcy":1}"#);
    assert!(status == 400 && answer.contains("unknown field `polcy`"), "{answer}");
    let (status, answer) = server.request("DELETE", "/v1/disks/b?forse=true", "");
    assert!(status == 400 && answer.contains("forse"), "{answer}");
    let gone = RemovedDisk { disk: "b".into(), in_doubt_ms: Some(2100) };
    assert_eq!(client.remove_disk("b", true).unwrap(), [gone]);
    assert_eq!(names(None).unwrap(), ["a"]);
}
