//! Deletes the endpoints of links that are down, and adds them again once the links are up.
//!
//! Linux keeps the subflows of a link that has lost its carrier, and sends their data elsewhere only after some timeouts. If the
//! endpoint is deleted, Linux ends the subflows at once and tells the peer.

mod follower;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime};

use mptcp::{LinkMonitor, Woken};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use self::follower::{Action, DeletedEndpoint, Follower, Reread};
use super::gather::{GatherError, only};
use super::host::Endpoint;
use super::ip::{self, IpError};
use crate::output::note;

/// Pause before a failed action is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Why `mptcp follow` ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowError {
    #[error(transparent)]
    Gather(#[from] GatherError),
    #[error(transparent)]
    Unsupported(#[from] mptcp::Unsupported),
    #[error(
        "MPTCP's endpoints may not be changed here: CAP_NET_ADMIN is missing; run it as root, or with \
         AmbientCapabilities=CAP_NET_ADMIN in its systemd unit"
    )]
    NotPermitted,
    #[error("cannot watch links: {0}")]
    Monitor(#[source] io::Error),
    #[error("cannot handle signals: {0}")]
    Signals(#[source] io::Error),
    /// Writing to standard output failed.
    #[error(transparent)]
    Output(io::Error),
    /// Each endpoint has been reported.
    #[error(
        "cannot add {0} deleted endpoints again; once their links exist, run the commands above or those of `mpathctl mptcp check`"
    )]
    NotRestored(usize),
}

impl From<IpError> for FollowError {
    fn from(error: IpError) -> Self {
        Self::Gather(error.into())
    }
}

/// An action, as printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Done {
    /// UTC.
    pub(crate) time: String,
    pub(crate) action: What,
    pub(crate) id: u8,
    pub(crate) endpoint: String,
    pub(crate) link: String,
    pub(crate) why: &'static str,
}

/// The kind of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    /// Deleted, because the link is down.
    Removed,
    Added,
    /// Not added again, because another program has done so.
    Abandoned,
}

/// Follows `devs`, or all links if empty, until SIGTERM or SIGINT. Then adds the deleted endpoints again.
pub(crate) fn follow(devs: &[String], tell: impl FnMut(&Done) -> io::Result<()>) -> Result<(), FollowError> {
    mptcp::supported()?;
    let (stop, signalled) = UnixStream::pair().map_err(FollowError::Signals)?;
    for signal in [SIGTERM, SIGINT] {
        signalled.try_clone().and_then(|signalled| pipe::register(signal, signalled)).map_err(FollowError::Signals)?;
    }
    // Opened before the first look, so that no event is missed.
    let monitor = LinkMonitor::open().map_err(FollowError::Monitor)?;
    only(ip::interfaces()?, devs)?;
    ip::may_change_endpoints()?.then_some(()).ok_or(FollowError::NotPermitted)?;
    let mut driver = Driver { follower: Follower::new(devs), tell, said: None };
    let followed = driver.run(monitor, &stop);
    driver.restore()?;
    followed
}

struct Driver<F> {
    follower: Follower,
    tell: F,
    /// The last error printed, which is not repeated.
    said: Option<String>,
}

impl<F: FnMut(&Done) -> io::Result<()>> Driver<F> {
    fn run(&mut self, mut monitor: LinkMonitor, stop: &UnixStream) -> Result<(), FollowError> {
        let mut need = Reread::Interfaces;
        loop {
            let failed = self.catch_up(need)?;
            let timeout = if failed { Some(RETRY) } else { self.follower.wait(Instant::now()) };
            let woken = monitor.wait(stop.as_fd(), timeout).map_err(FollowError::Monitor)?;
            let Woken::Events(events) = woken else { return Ok(()) };
            let now = Instant::now();
            let more = events.into_iter().map(|event| self.follower.event(event, now)).max().unwrap_or(Reread::Nothing);
            need = if more == Reread::Nothing && timeout.is_some() { Reread::Interfaces } else { more };
        }
    }

    /// Makes the due changes. True if one failed and may be tried again.
    fn catch_up(&mut self, need: Reread) -> Result<bool, FollowError> {
        if need == Reread::Nothing {
            return Ok(false);
        }
        match self.try_to_catch_up(need) {
            Ok(()) => {
                self.said = None;
                Ok(false)
            }
            Err(FollowError::Gather(error)) => {
                let said = error.to_string();
                if self.said.as_ref() != Some(&said) {
                    note(format_args!("{said}; trying again every second"));
                }
                self.said = Some(said);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    fn try_to_catch_up(&mut self, need: Reread) -> Result<(), FollowError> {
        if need == Reread::Interfaces {
            self.follower.look(&ip::interfaces()?, Instant::now());
        }
        let mut failed = None;
        for action in self.follower.actions(&ip::endpoints()?, Instant::now()) {
            // A failed change must not prevent the others.
            match self.act(&action) {
                Err(FollowError::Gather(error)) => failed = Some(error),
                done => done?,
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn act(&mut self, action: &Action) -> Result<(), FollowError> {
        match action {
            Action::Remove(held) => {
                self.follower.hold(held);
                ip::delete_endpoint(held.endpoint.id)?;
                self.told(What::Removed, held, "the link is down")
            }
            Action::Add(held) => {
                ip::forget_unresolved_neighbours(&held.link)?;
                ip::add_endpoint(&held.endpoint, held.any_id)?;
                self.follower.forget(held);
                self.told(What::Added, held, "the link is up")
            }
            Action::Abandon(held) => {
                self.follower.forget(held);
                self.told(What::Abandoned, held, "another program has added its address")
            }
        }
    }

    /// Adds all deleted endpoints again, even if that cannot be printed.
    fn restore(&mut self) -> Result<(), FollowError> {
        let mut not_restored = 0;
        for held in self.follower.at_the_end(&ip::endpoints().unwrap_or_default()) {
            match ip::add_endpoint(&held.endpoint, held.any_id) {
                Ok(()) => {
                    let _ = self.told(What::Added, &held, "the end");
                }
                Err(error) => {
                    not_restored += 1;
                    note(error);
                }
            }
        }
        if not_restored > 0 { Err(FollowError::NotRestored(not_restored)) } else { Ok(()) }
    }

    fn told(&mut self, action: What, held: &DeletedEndpoint, why: &'static str) -> Result<(), FollowError> {
        let DeletedEndpoint { endpoint, link, .. } = held;
        let done = Done {
            time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            action,
            id: id_now(endpoint, action, held.any_id),
            endpoint: endpoint.to_string(),
            link: link.clone(),
            why,
        };
        (self.tell)(&done).map_err(FollowError::Output)
    }
}

/// The id of the endpoint. The kernel may have chosen a new one.
fn id_now(endpoint: &Endpoint, action: What, any_id: bool) -> u8 {
    if action != What::Added || !any_id {
        return endpoint.id;
    }
    let same = |other: &Endpoint| (other.address, other.port) == (endpoint.address, endpoint.port);
    ip::endpoints().unwrap_or_default().into_iter().find(same).map_or(endpoint.id, |same| same.id)
}
