mod clients;
mod fake;
mod scheduling;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use mpath_core::{ClassPolicies, PolicyKind, SchedulerKind, SchedulerSpec};
use tempfile::TempDir;
use tokio::sync::oneshot;

pub(super) use fake::Fake;
use fake::{SHARER, weight};

use super::*;
use crate::client::{Client, ClientError};
use crate::config::LimitsConfig;
use crate::types::{
    AddPath, Disk, DiskState, ErrorCode, HedgeStatus, MovedRequests, OpStats, PathCounts, PathSelector, PathState,
    PathWindow, SetHedge, SetInjection, SetPolicy, SetScheduler, SetWeight, SteerPaths,
};

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

/// Limits that are short enough for tests.
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
fn policies_hedging_and_injections_are_read_and_set() {
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
    let hedge = r#"[{"disk":"b","hedge":"p99.5","hedge-budget":"3%","hedgeable-reads":0,"hedges":0,"hedges-won":0}]"#;
    assert_eq!(set(r#"{"hedge":"p99.5","hedge-budget":"3%","disk":"b"}"#), (200, hedge.into()));
    for (body, part) in [
        (r#"{"hedge":"p30"}"#, "`p30` is not off or a quantile from p50 to p99.9, such as p95 or p99.5"),
        (
            r#"{"hedge":"p95","hedge-budget":"7%"}"#,
            "`7%` is not a share of all reads from 0.1% to 5%, such as 5% or 0.5%",
        ),
        (r#"{"hedge":95}"#, "expected off, or a quantile such as p95"),
        (r#"{"disk":"b"}"#, "nothing to set; give hedge or hedge-budget"),
        (r#"{"hedge":"p95","quantile":1}"#, "unknown field `quantile`"),
        (r#"{"hedge_budget":"1%"}"#, "unknown field `hedge_budget`: write `hedge-budget` at line 1"),
    ] {
        let (status, answer) = set(body);
        assert!(status == 400 && answer.contains(part), "{body}: {status} {answer}");
    }
    let (status, answer) = set(r#"{"hedge":"p95","disk":"c"}"#);
    assert!(status == 404 && answer.contains("`c`"), "{answer}");
    let both =
        client.set_hedge(&SetHedge { hedge: Some(Hedge::Quantile(950)), hedge_budget: None, disk: None }).unwrap();
    let shown: Vec<_> =
        both.iter().map(|of| (&*of.disk, of.status.hedge, of.status.hedge_budget.to_string())).collect();
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
fn paths_are_drained_enabled_and_disabled_and_events_are_read() {
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
    let refused = remove("b", "0", false).unwrap_err().to_string();
    assert!(refused.contains("disk `b` would have no usable path left"), "{refused}");
    // The refusal does not keep the other path.
    assert_eq!(remove("b", "all", false).unwrap_err().to_string(), refused);
    let states = client.paths(Some("b")).unwrap().iter().map(|path| path.state).collect::<Vec<_>>();
    assert_eq!(states, [PathState::Live, removing]);
    // `all` leaves out the path that is being removed.
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
fn errors_have_a_code_and_one_line() {
    let server = Running::start(Limits::default());
    for (method, target, body, status, error) in [
        ("GET", "/", "", 404, r#"{"error":{"code":"unknown-route","message":"unknown route /"}}"#),
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
            r#"{"error":{"code":"unknown-disk","message":"no disk is named `x`; `mpathctl status` shows the disks"}}"#,
        ),
        (
            "GET",
            "/v1/policy?disk=x",
            "",
            404,
            r#"{"error":{"code":"unknown-disk","message":"no disk is named `x`; `mpathctl status` shows the disks"}}"#,
        ),
        (
            "PUT",
            "/v1/policy",
            r#"{"policy":"numa","disk":"x"}"#,
            404,
            r#"{"error":{"code":"unknown-disk","message":"no disk is named `x`; `mpathctl status` shows the disks"}}"#,
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
            r#"{"error":{"code":"bad-request","message":"body: dsk: unknown field `dsk`, expected one of `policy`, `params`, `class`, `disk` at line 1 column 22"}}"#,
        ),
        (
            "DELETE",
            "/v1/injections?path=9",
            "",
            404,
            r#"{"error":{"code":"unknown-path","message":"no path is `9`; `mpathctl path list` shows the paths"}}"#,
        ),
        (
            "PUT",
            "/v1/paths",
            r#"{"path":"all","disk":"a","action":"drain"}"#,
            409,
            r#"{"error":{"code":"last-path","message":"disk `a` would have no usable path left, and its I/O would wait; enable another path first, or use --force"}}"#,
        ),
        (
            "DELETE",
            "/v1/injections?disk=x",
            "",
            404,
            r#"{"error":{"code":"unknown-disk","message":"no disk is named `x`; `mpathctl status` shows the disks"}}"#,
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
        ("DELETE", "/v1/disks/a/paths/0?force=maybe", "", "force: `maybe` is not true or false"),
        ("DELETE", "/v1/disks/a?force=", "", "force: `` is not true or false"),
        ("DELETE", "/v1/disks/a/paths/a%20b", "", "no host name"),
        (
            "GET",
            "/v1/events?wait=5",
            "",
            "wait: `5` is not a time from 0ms to 4s; give a whole number and its unit, such as 300ms or 2s",
        ),
        ("GET", "/v1/events?after=-1", "", "after: `-1` is not the number of an event, or 0 for all"),
        ("GET", "/v1/events?wait=5s", "", "wait: `5s` is not a time from 0ms to 4s"),
        (
            "PUT",
            "/v1/paths",
            r#"{"path":"0","action":"drain","force":"x"}"#,
            r#"body: force: invalid type: string \"x\", expected a boolean"#,
        ),
        ("PUT", "/v1/policy", r#"{"policy":"numa"} x"#, "body: trailing characters"),
        (
            "POST",
            "/v1/disks",
            r#"{"socket-path":"/s","subsystem":"nqn.a","window":{"ios":0}}"#,
            "body: window.ios: invalid value: integer `0`, expected an integer from 1 to 1024",
        ),
        (
            "POST",
            "/v1/disks",
            r#"{"socket-path":"/s","subsystem":"nqn.a","name":".."}"#,
            "body: name: `..` is no disk name",
        ),
        (
            "POST",
            "/v1/disks",
            r#"{"socket-path":"/s","subsystem":"nqn.a","paths":[{}]}"#,
            "body: paths[0]: invalid type: map",
        ),
        ("PUT", "/v1/injections", r#"{"path":"0","injection":{"latency-us":0}}"#, "1us to 60s, not 0ns"),
        ("PUT", "/v1/injections", r#"{"path":"rdma://x","injection":{"latency-us":1}}"#, "unknown transport `rdma`"),
        ("DELETE", "/v1/injections?path=a%20b", "", "no host name"),
        (
            "POST",
            "/v1/disks",
            r#"{"socket-path":"/s","subsystem":"nqn.a","read_only":true}"#,
            "body: read_only: unknown field `read_only`: write `read-only` at line 1",
        ),
        (
            "POST",
            "/v1/disks",
            r#"{"socket-path":"/s","subsystem":"nqn.a","io-timeout":30}"#,
            "body: io-timeout: `30` is not a time from 1s to 600s; give a whole number and its unit",
        ),
        (
            "POST",
            "/v1/disks",
            r#"{"socket-path":"/s","subsystem":"nqn.a","keep-alive-tmo":"5m"}"#,
            "body: keep-alive-tmo: `5m` is not a whole number of seconds from 1 to 600, such as 5 or 5s",
        ),
    ] {
        let (status, body) = server.request(method, target, body);
        assert!(status == 400 && body.contains(part), "{method} {target}: {status} {body}");
    }
    assert_eq!(server.client().injections(None).unwrap(), []);
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
            "cannot add disk `a`: another disk has this name; give each disk its own",
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

#[test]
fn requests_about_paths_are_refused_for_a_disk_that_shares_paths() {
    let server = Running::start_with(Fake::sharing(), Limits::default());
    let client = server.client();
    let injection = r#"{"path":"0","injection":{"latency-us":5},"disk":"shares-a"}"#;
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
        let message = "disk `shares-a` shares the paths, policy, scheduler and hedging of `a`; name `a`";
        let refused = format!(r#"{{"error":{{"code":"shares-paths","message":"{message}"}}}}"#);
        assert_eq!(server.request(method, target, body), (409, refused), "{method} {target}");
    }

    // No disk named is every disk that has paths, before the change and after it.
    let policies = client.set_policy(&SetPolicy::from(PolicyKind::Numa)).unwrap();
    assert_eq!(policies.iter().map(|of| &*of.disk).collect::<Vec<_>>(), ["a", "b"]);
    let hedges =
        client.set_hedge(&SetHedge { hedge: Some(Hedge::Quantile(950)), hedge_budget: None, disk: None }).unwrap();
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
