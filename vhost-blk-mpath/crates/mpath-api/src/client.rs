//! A blocking client of the API.

use std::fmt::Write;
use std::io;
use std::path::{Path as FsPath, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
pub use hyper::Method;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::config::DiskConfig;
use crate::server::DISKS_MAX;
use crate::types::{
    AddPath, Disk, DiskHedge, DiskLimits, DiskPolicy, DiskScheduler, DiskWeight, ErrorBody, ErrorInfo, Events,
    InjectedPath, Path, PathSelector, Policy, PolicyDetail, RemovedDisk, Scheduler, SchedulerDetail, SetHedge,
    SetInjection, SetLimits, SetPolicy, SetScheduler, SetWeight, Status, SteerPaths,
};

/// The longest answer taken, in bytes: 256 disks of 64 paths stay below.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// For the daemon to add or remove a disk, or to say that it takes longer.
const DISKS_TIMEOUT: Duration = DISKS_MAX.saturating_add(Duration::from_secs(5));

/// Between attempts to connect to a daemon whose backlog is full.
const BACKLOG_PAUSE: Duration = Duration::from_millis(5);

/// A client for the daemon that listens on one socket. Each call is one connection and blocks; it
/// is not for use within an asynchronous runtime.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    timeout: Duration,
    runtime: Runtime,
}

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The daemon answered, and will not do it.
    #[error("{}", .0.message)]
    Refused(ErrorInfo),
    /// Nobody listens there.
    #[error("no vhost-blk-mpath is running at {}; name its API socket with --api or MPATH_API", socket.display())]
    NotRunning {
        /// The socket.
        socket: PathBuf,
    },
    /// The socket is there, and cannot be connected to.
    #[error("cannot connect to {}: {source}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// No whole answer came in time.
    #[error("{} did not answer within {timeout:?}", socket.display())]
    Timeout {
        /// The socket.
        socket: PathBuf,
        /// The time allowed.
        timeout: Duration,
    },
    /// The connection broke, or what listens does not speak HTTP.
    #[error("{} broke off: {source}", socket.display())]
    Http {
        /// The socket.
        socket: PathBuf,
        /// What went wrong.
        source: hyper::Error,
    },
    /// The answer is longer than any can be.
    #[error("{} answered with more than {max_bytes} bytes", socket.display())]
    TooLong {
        /// The socket.
        socket: PathBuf,
        /// The limit.
        max_bytes: usize,
    },
    /// The answer is not this API's; perhaps the versions differ.
    #[error("{} answered (HTTP {status}) what this version does not understand: {source}", socket.display())]
    NotUnderstood {
        /// The socket.
        socket: PathBuf,
        /// The status of the answer.
        status: u16,
        /// What is wrong with its body.
        source: serde_json::Error,
    },
}

impl Client {
    /// A client of the daemon at `socket`. A whole call takes at most `timeout`.
    ///
    /// Fails only if the system gives out no more descriptors.
    pub fn new(socket: &FsPath, timeout: Duration) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Self { socket: socket.into(), timeout, runtime })
    }

    /// The daemon and its disks.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.call(Method::GET, "/v1/status".into(), None::<&()>)
    }

    /// A disk, or all of them.
    pub fn disks(&self, disk: Option<&str>) -> Result<Vec<Disk>, ClientError> {
        self.call(Method::GET, target("/v1/disks", &[("disk", disk)]), None::<&()>)
    }

    /// Adds a disk; answers with it, and with those that share its paths. Takes as long as it takes to connect them, however short the
    /// client's time is otherwise.
    pub fn add_disk(&self, wanted: &DiskConfig) -> Result<Vec<Disk>, ClientError> {
        self.call_within(DISKS_TIMEOUT, Method::POST, "/v1/disks".into(), Some(wanted))
    }

    /// Removes a disk, and those that share its paths; answers with them when they are gone. Takes as long as it takes to drain it, however
    /// short the client's time is otherwise.
    pub fn remove_disk(&self, disk: &str, force: bool) -> Result<Vec<RemovedDisk>, ClientError> {
        let route = target(&format!("/v1/disks/{}", segment(disk)), &[("force", force.then_some("true"))]);
        self.call_within(DISKS_TIMEOUT, Method::DELETE, route, None::<&()>)
    }

    /// The paths of a disk, or of all.
    pub fn paths(&self, disk: Option<&str>) -> Result<Vec<Path>, ClientError> {
        self.call(Method::GET, target("/v1/paths", &[("disk", disk)]), None::<&()>)
    }

    /// One path of a disk, or of each, or all of them.
    pub fn path(&self, path: &PathSelector, disk: Option<&str>) -> Result<Vec<Path>, ClientError> {
        let path = path.to_string();
        self.call(Method::GET, target("/v1/paths", &[("path", Some(&path)), ("disk", disk)]), None::<&()>)
    }

    /// Takes paths out of use or back into it; answers with them as they are then.
    pub fn steer(&self, wanted: &SteerPaths) -> Result<Vec<Path>, ClientError> {
        self.call(Method::PUT, "/v1/paths".into(), Some(wanted))
    }

    /// Adds a path to a disk; answers with it as it is then.
    pub fn add_path(&self, disk: &str, wanted: &AddPath) -> Result<Path, ClientError> {
        self.call(Method::POST, format!("/v1/disks/{}/paths", segment(disk)), Some(wanted))
    }

    /// Removes paths of a disk; answers with those of them that are still there, as they are then.
    pub fn remove_path(&self, disk: &str, path: &PathSelector, force: bool) -> Result<Vec<Path>, ClientError> {
        let route = format!("/v1/disks/{}/paths/{}", segment(disk), segment(&path.to_string()));
        self.call(Method::DELETE, target(&route, &[("force", force.then_some("true"))]), None::<&()>)
    }

    /// The events after that one, waiting at most so many seconds (0 to 4) if there are none.
    pub fn events(&self, after: u64, wait_s: u64) -> Result<Events, ClientError> {
        let (after, wait) = (after.to_string(), wait_s.to_string());
        self.call(Method::GET, target("/v1/events", &[("after", Some(&after)), ("wait", Some(&wait))]), None::<&()>)
    }

    /// Every policy the daemon has.
    pub fn policies(&self) -> Result<Vec<Policy>, ClientError> {
        self.call(Method::GET, "/v1/policies".into(), None::<&()>)
    }

    /// The policy of a disk, or of each.
    pub fn policy(&self, disk: Option<&str>) -> Result<Vec<DiskPolicy>, ClientError> {
        self.call(Method::GET, target("/v1/policy", &[("disk", disk)]), None::<&()>)
    }

    /// The policies of a disk, or of each, with their parameters and what they think of the paths.
    pub fn policy_detail(&self, disk: Option<&str>) -> Result<Vec<PolicyDetail>, ClientError> {
        self.call(Method::GET, target("/v1/policy/detail", &[("disk", disk)]), None::<&()>)
    }

    /// Switches the policy; answers with the disks that were switched.
    pub fn set_policy(&self, wanted: &SetPolicy) -> Result<Vec<DiskPolicy>, ClientError> {
        self.call(Method::PUT, "/v1/policy".into(), Some(wanted))
    }

    /// How a disk hedges reads, or each does.
    pub fn hedge(&self, disk: Option<&str>) -> Result<Vec<DiskHedge>, ClientError> {
        self.call(Method::GET, target("/v1/hedge", &[("disk", disk)]), None::<&()>)
    }

    /// Changes how reads are hedged; answers with the disks that do so now.
    pub fn set_hedge(&self, wanted: &SetHedge) -> Result<Vec<DiskHedge>, ClientError> {
        self.call(Method::PUT, "/v1/hedge".into(), Some(wanted))
    }

    /// Every scheduler, and the disks that use it.
    pub fn schedulers(&self) -> Result<Vec<Scheduler>, ClientError> {
        self.call(Method::GET, "/v1/schedulers".into(), None::<&()>)
    }

    /// The scheduler of a disk, or of each.
    pub fn scheduler(&self, disk: Option<&str>) -> Result<Vec<DiskScheduler>, ClientError> {
        self.call(Method::GET, target("/v1/scheduler", &[("disk", disk)]), None::<&()>)
    }

    /// The same with all that is known of it.
    pub fn scheduler_detail(&self, disk: Option<&str>) -> Result<Vec<SchedulerDetail>, ClientError> {
        self.call(Method::GET, target("/v1/scheduler/detail", &[("disk", disk)]), None::<&()>)
    }

    /// Switches schedulers; answers with the disks that have done so.
    pub fn set_scheduler(&self, wanted: &SetScheduler) -> Result<Vec<DiskScheduler>, ClientError> {
        self.call(Method::PUT, "/v1/scheduler".into(), Some(wanted))
    }

    /// The limits of a disk, or of each.
    pub fn limits(&self, disk: Option<&str>) -> Result<Vec<DiskLimits>, ClientError> {
        self.call(Method::GET, target("/v1/limits", &[("disk", disk)]), None::<&()>)
    }

    /// Changes limits; answers with the disks that keep them now.
    pub fn set_limits(&self, wanted: &SetLimits) -> Result<Vec<DiskLimits>, ClientError> {
        self.call(Method::PUT, "/v1/limits".into(), Some(wanted))
    }

    /// The weight of a disk, or of each.
    pub fn weights(&self, disk: Option<&str>) -> Result<Vec<DiskWeight>, ClientError> {
        self.call(Method::GET, target("/v1/weights", &[("disk", disk)]), None::<&()>)
    }

    /// Changes a weight; answers with the disk that has it now.
    pub fn set_weight(&self, wanted: &SetWeight) -> Result<Vec<DiskWeight>, ClientError> {
        self.call(Method::PUT, "/v1/weights".into(), Some(wanted))
    }

    /// The impaired paths of a disk, or of all.
    pub fn injections(&self, disk: Option<&str>) -> Result<Vec<InjectedPath>, ClientError> {
        self.call(Method::GET, target("/v1/injections", &[("disk", disk)]), None::<&()>)
    }

    /// Impairs paths; answers with them.
    pub fn set_injection(&self, wanted: &SetInjection) -> Result<Vec<InjectedPath>, ClientError> {
        self.call(Method::PUT, "/v1/injections".into(), Some(wanted))
    }

    /// Ends the impairment of paths; answers with those that were impaired.
    pub fn clear_injections(&self, path: &PathSelector, disk: Option<&str>) -> Result<Vec<InjectedPath>, ClientError> {
        let path = path.to_string();
        let target = target("/v1/injections", &[("path", Some(&path)), ("disk", disk)]);
        self.call(Method::DELETE, target, None::<&()>)
    }

    /// Any request of the API, or of another one that answers in its style.
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
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .expect("targets are our own, with encoded queries");
        let (status, body) = self.runtime.block_on(async {
            timeout(time, self.exchange(request))
                .await
                .unwrap_or_else(|_| Err(ClientError::Timeout { socket: self.socket.clone(), timeout: time }))
        })?;
        let not_understood =
            |source| ClientError::NotUnderstood { socket: self.socket.clone(), status: status.as_u16(), source };
        if status.is_success() {
            serde_json::from_slice(&body).map_err(not_understood)
        } else {
            let body: ErrorBody = serde_json::from_slice(&body).map_err(not_understood)?;
            Err(ClientError::Refused(body.error))
        }
    }

    async fn connect(&self) -> Result<UnixStream, ClientError> {
        loop {
            let error = match UnixStream::connect(&self.socket).await {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            let socket = self.socket.clone();
            return Err(match error.kind() {
                // The daemon's backlog is full, and a Unix socket does not tell when it no longer is.
                io::ErrorKind::WouldBlock => {
                    sleep(BACKLOG_PAUSE).await;
                    continue;
                }
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NotRunning { socket },
                _ => ClientError::Connect { socket, source: error },
            });
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), ClientError> {
        let socket = || self.socket.clone();
        let stream = self.connect().await?;
        let http = |source| ClientError::Http { socket: socket(), source };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
        // Ends with the call, when the runtime next runs or goes; its error reaches the sender too.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(http)?;
        let status = response.status();
        match Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await {
            Ok(body) => Ok((status, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(ClientError::TooLong { socket: socket(), max_bytes: MAX_ANSWER_BYTES })
            }
            Err(error) => match error.downcast::<hyper::Error>() {
                Ok(source) => Err(http(*source)),
                Err(_) => unreachable!("a limited body fails by its limit or by its connection"),
            },
        }
    }
}

/// One segment of a path (RFC 3986): what is not unreserved is encoded.
fn segment(text: &str) -> String {
    let mut segment = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            segment.push(byte.into());
        } else {
            // A failing write to a string is not possible.
            let _ = write!(segment, "%{byte:02X}");
        }
    }
    segment
}

/// A request target with those parameters that have a value.
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
        assert_eq!(segment("tcp://[::1]:4420 a-b_c.~"), "tcp%3A%2F%2F%5B%3A%3A1%5D%3A4420%20a-b_c.~");
    }

    #[test]
    fn a_silent_daemon_costs_no_more_than_the_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let error = || Client::new(&path, Duration::from_millis(100)).unwrap().status().unwrap_err().to_string();
        let timeout = format!("{} did not answer within 100ms", path.display());
        assert_eq!(error(), timeout);
        // Nor with no room in its backlog, which that connection now fills.
        rustix::net::listen(&listener, 0).unwrap();
        assert_eq!(error(), timeout);
    }
}
