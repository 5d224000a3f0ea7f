//! A blocking client of the API.

mod silence;
mod stream;

use std::fmt::{self, Display};
use std::io;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
pub use hyper::Method;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::http::request::Builder as RequestBuilder;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use mpath_config::{DiskConfig, LiveSetting};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

pub use self::silence::Silence;
pub use self::stream::{EventStream, Position};
use crate::types::{
    ActOnPaths, AddPath, ClearedFences, Configuration, Disk, DiskFences, ErrorBody, ErrorInfo, Events, Explanation,
    HistoryMinute, InjectedPath, Path, PathSelector, Policy, PolicyDetail, Reload, RemovedDisk, Scheduler,
    SchedulerDetail, SetInjection, SetSettings, SlowRequest, Status, Upgrade,
};
use crate::{DISK_CHANGE_MAX, PRODUCT};

/// The longest answer accepted, in bytes. 256 disks of 64 paths need less.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// The time in which the daemon adds or removes a disk, or answers that it takes longer.
const DISK_CHANGE_TIMEOUT: Duration = DISK_CHANGE_MAX.saturating_add(Duration::from_secs(5));

/// Pause between attempts to connect to a daemon whose backlog is full.
const BACKLOG_PAUSE: Duration = Duration::from_millis(5);

/// A client of the daemon on one socket. Each call is one connection and blocks. Do not use it within an asynchronous runtime.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    timeout: Duration,
    runtime: Runtime,
    /// The version of the daemon that answered last.
    daemon_version: Mutex<Option<String>>,
    /// The process that listened on the socket at the last connection, if the kernel says it.
    listener: Mutex<Option<i32>>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The daemon refused the request.
    #[error("{}", .0.message)]
    Refused(ErrorInfo),
    /// No process listens on the socket.
    #[error("no daemon listens on {}; start vhost-blk-mpath, or name its API socket with --api or MPATH_API", socket.display())]
    NotRunning {
        /// The socket.
        socket: PathBuf,
    },
    /// The user may not connect to the socket.
    #[error(
        "permission denied on {}; run mpathctl as root or as the daemon's user, or give your user access with `api-mode`, `api-owner` or \
         `api-group` in the daemon's configuration",
        socket.display()
    )]
    Denied {
        /// The socket.
        socket: PathBuf,
    },
    /// The socket exists and cannot be connected to.
    #[error("cannot connect to {}: {source}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The whole answer did not arrive in time.
    #[error("{} did not answer within {timeout:?}: {silence}", socket.display())]
    Timeout {
        /// The socket.
        socket: PathBuf,
        /// The time allowed.
        timeout: Duration,
        /// The probable cause.
        silence: Silence,
    },
    /// The connection broke, or the server does not speak HTTP.
    #[error("the connection to {} broke: {source}; {}", socket.display(), IsApiSocket)]
    Http {
        /// The socket.
        socket: PathBuf,
        /// The error.
        source: hyper::Error,
    },
    /// The answer is longer than any valid one.
    #[error("{} answered with more than {max_bytes} bytes", socket.display())]
    TooLong {
        /// The socket.
        socket: PathBuf,
        /// The limit.
        max_bytes: usize,
    },
    /// The answer is none of this API. The versions may differ.
    #[error("{} sent an answer (HTTP {status}) that this version cannot read: {source}; use the mpathctl of the daemon's version", socket.display())]
    Unreadable {
        /// The socket.
        socket: PathBuf,
        /// The status of the answer.
        status: u16,
        /// The error in the body.
        source: serde_json::Error,
    },
}

/// The advice to check the socket. Another socket of the daemon does not answer HTTP.
struct IsApiSocket;

impl Display for IsApiSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("make sure that this is the API socket of the daemon (`api`), not the vhost-user socket of a disk")
    }
}

impl Client {
    /// A client of the daemon at `socket`. A whole call takes at most `timeout`.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new(socket: &FsPath, timeout: Duration) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Self {
            socket: socket.into(),
            timeout,
            runtime,
            daemon_version: Mutex::default(),
            listener: Mutex::default(),
        })
    }

    /// The version of the daemon that answered last. `None` without an answer, and if the daemon has not said it.
    pub fn daemon_version(&self) -> Option<String> {
        self.daemon_version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The daemon and its disks.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.call(Method::GET, "/v1/status".into(), None::<&()>)
    }

    /// A disk, or all of them.
    pub fn disks(&self, disk: Option<&str>) -> Result<Vec<Disk>, ClientError> {
        self.call(Method::GET, target("/v1/disks", &[("disk", disk)]), None::<&()>)
    }

    /// The disks that have a setting of their own: the named disk, which must have it, or all.
    pub fn disks_with(&self, setting: LiveSetting, disk: Option<&str>) -> Result<Vec<Disk>, ClientError> {
        let target = target("/v1/disks", &[("setting", Some(setting.name())), ("disk", disk)]);
        self.call(Method::GET, target, None::<&()>)
    }

    /// Changes settings of all disks that have them, or of one. Returns these disks.
    pub fn set(&self, wanted: &SetSettings) -> Result<Vec<Disk>, ClientError> {
        self.call(Method::PUT, "/v1/settings".into(), Some(wanted))
    }

    /// A disk.
    pub fn disk(&self, disk: &str) -> Result<Disk, ClientError> {
        self.call(Method::GET, format!("/v1/disks/{}", segment(disk)), None::<&()>)
    }

    /// Adds a disk. Returns the disk and those that share its paths. May take a minute, whatever the client's timeout: the daemon
    /// connects the paths.
    pub fn add_disk(&self, wanted: &DiskConfig) -> Result<Vec<Disk>, ClientError> {
        self.call_within(DISK_CHANGE_TIMEOUT, Method::POST, "/v1/disks".into(), Some(wanted))
    }

    /// Removes a disk and those that share its paths. Returns them when they are gone. May take a minute, whatever the client's
    /// timeout: requests in flight finish.
    pub fn remove_disk(&self, disk: &str, force: bool) -> Result<Vec<RemovedDisk>, ClientError> {
        let route = target(&format!("/v1/disks/{}", segment(disk)), &[("force", force.then_some("true"))]);
        self.call_within(DISK_CHANGE_TIMEOUT, Method::DELETE, route, None::<&()>)
    }

    /// Has the daemon start its program anew and hand over to it. Returns when the new process is ready to take over, which may take a
    /// minute, whatever the client's timeout.
    pub fn upgrade(&self, force: bool) -> Result<Upgrade, ClientError> {
        let route = target("/v1/upgrade", &[("force", force.then_some("true"))]);
        self.call_within(DISK_CHANGE_TIMEOUT, Method::POST, route, None::<&()>)
    }

    /// The configuration, as it was given and as it is in effect.
    pub fn configuration(&self) -> Result<Configuration, ClientError> {
        self.call(Method::GET, "/v1/config".into(), None::<&()>)
    }

    /// Has the daemon read its configuration file again and apply the differences, or with `dry_run` name them. May take a minute,
    /// whatever the client's timeout.
    pub fn reload(&self, dry_run: bool, force: bool) -> Result<Reload, ClientError> {
        let parameters = [("dry-run", dry_run.then_some("true")), ("force", force.then_some("true"))];
        self.call_within(DISK_CHANGE_TIMEOUT, Method::POST, target("/v1/config/reload", &parameters), None::<&()>)
    }

    /// Which path the next requests of a disk would take, why not the others, and what waits.
    pub fn explain(&self, disk: &str) -> Result<Explanation, ClientError> {
        self.call(Method::GET, format!("/v1/disks/{}/explain", segment(disk)), None::<&()>)
    }

    /// The minutes of a disk that began from `from` until `until`, the oldest first, and [`HISTORY_MINUTES_MAX`](crate::HISTORY_MINUTES_MAX) at most, the latest.
    pub fn history(&self, disk: &str, from: SystemTime, until: SystemTime) -> Result<Vec<HistoryMinute>, ClientError> {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string();
        let (from, until) = (seconds(from), seconds(until));
        let route = format!("/v1/disks/{}/history", segment(disk));
        let parameters = [("from-s", Some(&*from)), ("until-s", Some(&*until))];
        self.call(Method::GET, target(&route, &parameters), None::<&()>)
    }

    /// The slowest requests of a disk, or of all, in the last minutes.
    pub fn slow(&self, disk: Option<&str>) -> Result<Vec<SlowRequest>, ClientError> {
        self.call(Method::GET, target("/v1/slow", &[("disk", disk)]), None::<&()>)
    }

    /// The paths of a disk, or of all.
    pub fn paths(&self, disk: Option<&str>) -> Result<Vec<Path>, ClientError> {
        self.call(Method::GET, target("/v1/paths", &[("disk", disk)]), None::<&()>)
    }

    /// The selected paths of a disk, or of all.
    pub fn path(&self, path: &PathSelector, disk: Option<&str>) -> Result<Vec<Path>, ClientError> {
        let path = path.to_string();
        self.call(Method::GET, target("/v1/paths", &[("path", Some(&path)), ("disk", disk)]), None::<&()>)
    }

    /// Enables, drains, disables or resets paths. Returns them after the action.
    pub fn act_on_paths(&self, wanted: &ActOnPaths) -> Result<Vec<Path>, ClientError> {
        self.call(Method::PUT, "/v1/paths".into(), Some(wanted))
    }

    /// Adds a path to a disk. Returns the path.
    pub fn add_path(&self, disk: &str, wanted: &AddPath) -> Result<Path, ClientError> {
        self.call(Method::POST, format!("/v1/disks/{}/paths", segment(disk)), Some(wanted))
    }

    /// Removes paths of a disk. Returns those that are not gone yet.
    pub fn remove_path(&self, disk: &str, path: &PathSelector, force: bool) -> Result<Vec<Path>, ClientError> {
        let route = format!("/v1/disks/{}/paths/{}", segment(disk), segment(&path.to_string()));
        self.call(Method::DELETE, target(&route, &[("force", force.then_some("true"))]), None::<&()>)
    }

    /// The fences of a disk, or of all.
    pub fn fences(&self, disk: Option<&str>) -> Result<Vec<DiskFences>, ClientError> {
        self.call(Method::GET, target("/v1/fences", &[("disk", disk)]), None::<&()>)
    }

    /// Forgets what the fence record of a disk keeps. Returns what was forgotten.
    pub fn clear_fences(&self, disk: &str, force: bool) -> Result<ClearedFences, ClientError> {
        let route = target(&format!("/v1/fences/{}", segment(disk)), &[("force", force.then_some("true"))]);
        self.call(Method::DELETE, route, None::<&()>)
    }

    /// The events after number `after`.
    pub fn events(&self, after: u64) -> Result<Events, ClientError> {
        self.call(Method::GET, target("/v1/events", &[("after", Some(&after.to_string()))]), None::<&()>)
    }

    /// Every policy.
    pub fn policies(&self) -> Result<Vec<Policy>, ClientError> {
        self.call(Method::GET, "/v1/policies".into(), None::<&()>)
    }

    /// The policies of a disk, or of all, with parameters and estimates of paths.
    pub fn policy_detail(&self, disk: Option<&str>) -> Result<Vec<PolicyDetail>, ClientError> {
        self.call(Method::GET, target("/v1/policy/detail", &[("disk", disk)]), None::<&()>)
    }

    /// Every scheduler.
    pub fn schedulers(&self) -> Result<Vec<Scheduler>, ClientError> {
        self.call(Method::GET, "/v1/schedulers".into(), None::<&()>)
    }

    /// The scheduler of a disk, or of all, with parameters and virtqueues.
    pub fn scheduler_detail(&self, disk: Option<&str>) -> Result<Vec<SchedulerDetail>, ClientError> {
        self.call(Method::GET, target("/v1/scheduler/detail", &[("disk", disk)]), None::<&()>)
    }

    /// The injections of a disk, or of all.
    pub fn injections(&self, disk: Option<&str>) -> Result<Vec<InjectedPath>, ClientError> {
        self.call(Method::GET, target("/v1/injections", &[("disk", disk)]), None::<&()>)
    }

    /// Sets an injection. Returns the paths changed.
    pub fn set_injection(&self, wanted: &SetInjection) -> Result<Vec<InjectedPath>, ClientError> {
        self.call(Method::PUT, "/v1/injections".into(), Some(wanted))
    }

    /// Clears injections. Returns those that were cleared.
    pub fn clear_injections(&self, path: &PathSelector, disk: Option<&str>) -> Result<Vec<InjectedPath>, ClientError> {
        let path = path.to_string();
        let target = target("/v1/injections", &[("path", Some(&path)), ("disk", disk)]);
        self.call(Method::DELETE, target, None::<&()>)
    }

    /// Sends any request of this API, or of another API with the same error body.
    pub fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        target: String,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        self.call_within(self.timeout, method, target, body)
    }

    fn call_within<T: DeserializeOwned>(
        &self,
        time: Duration,
        method: Method,
        target: String,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let body = body.map_or_else(Vec::new, |body| serde_json::to_vec(body).expect("the API's own types are JSON"));
        let request = Request::builder().method(method).uri(target);
        let (status, body) = self.block_on(time, async {
            let (head, body) = self.send(request, body.into()).await?.into_parts();
            Ok((head.status, self.whole(body).await?))
        })?;
        if !status.is_success() {
            return Err(self.refusal(status, &body));
        }
        serde_json::from_slice(&body).map_err(|source| self.unreadable(status.as_u16(), source))
    }

    fn block_on<T>(
        &self,
        time: Duration,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        self.runtime.block_on(async {
            let timed_out = |_| {
                let listener = *self.listener.lock().unwrap_or_else(PoisonError::into_inner);
                let silence = Silence::of(&self.socket, listener);
                Err(ClientError::Timeout { socket: self.socket.clone(), timeout: time, silence })
            };
            timeout(time, work).await.unwrap_or_else(timed_out)
        })
    }

    fn unreadable(&self, status: u16, source: serde_json::Error) -> ClientError {
        ClientError::Unreadable { socket: self.socket.clone(), status, source }
    }

    /// The error in the body of an answer.
    fn refusal(&self, status: StatusCode, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<ErrorBody>(body) {
            Ok(body) => ClientError::Refused(body.error),
            Err(source) => self.unreadable(status.as_u16(), source),
        }
    }

    async fn connect(&self) -> Result<UnixStream, ClientError> {
        loop {
            let error = match UnixStream::connect(&self.socket).await {
                Ok(stream) => {
                    let listener = stream.peer_cred().ok().and_then(|cred| cred.pid());
                    *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = listener;
                    return Ok(stream);
                }
                Err(error) => error,
            };
            let socket = self.socket.clone();
            return Err(match error.kind() {
                // The daemon's backlog is full. A Unix socket does not report when it has room again.
                io::ErrorKind::WouldBlock => {
                    sleep(BACKLOG_PAUSE).await;
                    continue;
                }
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NotRunning { socket },
                io::ErrorKind::PermissionDenied => ClientError::Denied { socket },
                _ => ClientError::Connect { socket, source: error },
            });
        }
    }

    /// Sends a request, and waits for the head of the answer.
    async fn send(&self, request: RequestBuilder, body: Bytes) -> Result<Response<Incoming>, ClientError> {
        let request = request
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .expect("targets are our own, with encoded queries");
        let stream = self.connect().await?;
        let http = |source| ClientError::Http { socket: self.socket.clone(), source };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
        // The task ends with the connection. The sender gets its error too.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(http)?;
        let version = response.headers().get(header::SERVER).and_then(|server| server.to_str().ok());
        let version = version.and_then(|server| server.strip_prefix(PRODUCT)?.strip_prefix('/'));
        *self.daemon_version.lock().unwrap_or_else(PoisonError::into_inner) = version.map(ToOwned::to_owned);
        Ok(response)
    }

    /// The whole body of an answer.
    async fn whole(&self, body: Incoming) -> Result<Bytes, ClientError> {
        let socket = || self.socket.clone();
        match Limited::new(body, MAX_ANSWER_BYTES).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(ClientError::TooLong { socket: socket(), max_bytes: MAX_ANSWER_BYTES })
            }
            Err(error) => match error.downcast::<hyper::Error>() {
                Ok(source) => Err(ClientError::Http { socket: socket(), source: *source }),
                Err(_) => unreachable!("a limited body fails by its limit or by its connection"),
            },
        }
    }
}

/// The bytes that a segment of a path does not hold as they are: all but the unreserved ones (RFC 3986).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes one segment of a path.
fn segment(text: &str) -> impl Display {
    utf8_percent_encode(text, RESERVED)
}

/// A request target with the parameters that have a value.
fn target(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in parameters {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    let query = query.finish();
    if query.is_empty() { path.into() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn targets_are_encoded() {
        assert_eq!(target("/p", &[("a", None)]), "/p");
        assert_eq!(
            target("/p", &[("a", Some("x y&z=/")), ("b", None), ("c", Some("\u{e4}"))]),
            "/p?a=x+y%26z%3D%2F&c=%C3%A4"
        );
        assert_eq!(segment("tcp://[::1]:4420 a-b_c.~").to_string(), "tcp%3A%2F%2F%5B%3A%3A1%5D%3A4420%20a-b_c.~");
    }

    #[test]
    fn a_call_to_a_silent_daemon_ends_at_the_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let error = || Client::new(&path, Duration::from_millis(100)).unwrap().status().unwrap_err().to_string();
        let timeout =
            format!("{} did not answer within 100ms: the daemon hangs, or this is another socket", path.display());
        assert!(error().starts_with(&timeout), "{}", error());
        // The same with a full backlog, which that connection fills.
        rustix::net::listen(&listener, 0).unwrap();
        assert!(error().starts_with(&timeout), "{}", error());
    }
}
