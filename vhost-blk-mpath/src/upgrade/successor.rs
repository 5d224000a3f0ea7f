//! Decides: the new program takes over.
//!
//! The new process: it takes the sockets of a running daemon, and serves once that daemon has ended.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::{Duration, Instant};

use mpath_api::types::Caller;
use mpath_api_server::{MetricsBindError, MetricsServer};
use mpath_config::MetricsAddress;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::channel::{Answer, Channel, FORMAT, HandOver};
use crate::signals::EndSignal;
use crate::sockets::activation::TakenSocket;

/// The daemon ends in about a second, and at most in some seconds if paths do not answer.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Why nothing can be taken over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeOverError {
    #[error("--take-over is for the daemon's own use; use `mpathctl upgrade`")]
    NoChannel,
    #[error(
        "the running daemon speaks format {found} of the hand-over, and this version knows format {FORMAT}; end that daemon and start this one"
    )]
    Format { found: u32 },
    #[error("the running daemon has passed {received} of {named} sockets; raise the limit of open files")]
    Incomplete { named: usize, received: usize },
    #[error("ended by {0} before the running daemon had ended")]
    Signal(EndSignal),
    #[error("cannot take over from the running daemon: {0}")]
    Channel(#[from] io::Error),
}

/// A running daemon that hands over.
pub(crate) struct Predecessor {
    channel: Channel,
    pub(crate) version: String,
    pub(crate) force: bool,
    /// Who upgrades.
    pub(crate) by: Option<Caller>,
    /// Its `metrics-address`. `None`: it does not say.
    metrics: Option<Vec<MetricsAddress>>,
    has_answered: bool,
}

impl Predecessor {
    /// Takes the sockets from the daemon that has started this process, with the channel as standard input.
    pub(crate) fn connect() -> Result<(Self, Vec<TakenSocket>), TakeOverError> {
        close_inherited()?;
        let channel = Channel::from(io::stdin().as_fd().try_clone_to_owned()?);
        let (mut taken, mut next) = (Vec::new(), receive(&channel)?);
        loop {
            let (HandOver { format, version, force, metrics, by, sockets, is_last }, descriptors) = next;
            if format != FORMAT {
                let error = TakeOverError::Format { found: format };
                let _ = channel.send(&Answer::Failed { reason: error.to_string() }, &[]);
                return Err(error);
            }
            if sockets.len() != descriptors.len() {
                return Err(TakeOverError::Incomplete { named: sockets.len(), received: descriptors.len() });
            }
            let sockets = sockets.into_iter().zip(descriptors);
            taken.extend(sockets.map(|(name, descriptor)| TakenSocket {
                path: name.path.into(),
                file: name.file,
                in_use_by: name.in_use_by,
                role: name.role,
                listener: descriptor.into(),
            }));
            if is_last {
                return Ok((Self { channel, version, force, by, metrics, has_answered: false }, taken));
            }
            next = receive(&channel)?;
        }
    }

    /// Tells the daemon why this process does not take over, unless it has answered before.
    pub(crate) fn fail(&mut self, reason: String) {
        if !std::mem::replace(&mut self.has_answered, true) {
            // If the daemon has ended, nobody wants to know.
            let _ = self.channel.send(&Answer::Failed { reason }, &[]);
        }
    }

    /// Checks that this process could listen on the address after the end of the daemon, unless the upgrade is forced. The daemon
    /// itself may listen on the same port now.
    pub(crate) fn check_metrics(&self, address: MetricsAddress) -> Result<(), MetricsBindError> {
        let is_of_daemon =
            |there: &Vec<_>| there.iter().any(|of: &MetricsAddress| of.get().port() == address.get().port());
        match MetricsServer::check(address) {
            _ if self.force => Ok(()),
            Err(MetricsBindError::InUse { .. }) if self.metrics.as_ref().is_none_or(is_of_daemon) => Ok(()),
            checked => checked,
        }
    }

    /// Tells the daemon that this process takes over, and waits until that process is gone.
    pub(crate) async fn wait_for_end(&mut self, version: &str) -> Result<(), TakeOverError> {
        self.channel.send(&Answer::Ready { version: version.into() }, &[])?;
        self.has_answered = true;
        tracing::info!(from = %self.version, "ready to take over from the running daemon");
        let begun = Instant::now();
        let channel = StdUnixStream::from(self.channel.as_fd().try_clone_to_owned()?);
        channel.set_nonblocking(true)?;
        let channel = UnixStream::from_std(channel)?;
        // Without a limit: two daemons at once could destroy data.
        while timeout(WARN_INTERVAL, channel.readable()).await.is_err() {
            tracing::warn!("the running daemon has not ended after {:.0?}; end it if it hangs", begun.elapsed());
        }
        tracing::info!("the earlier daemon has ended after {:.1?}", begun.elapsed());
        Ok(())
    }
}

fn receive(channel: &Channel) -> Result<(HandOver, Vec<OwnedFd>), TakeOverError> {
    match channel.receive() {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(TakeOverError::NoChannel),
        Err(error) if error.raw_os_error() == Some(libc::ENOTSOCK) => Err(TakeOverError::NoChannel),
        Err(error) => Err(error.into()),
    }
}

/// Closes descriptors of the daemon that this process got with its start: those that front-ends have passed to the
/// daemon do not close by themselves.
fn close_inherited() -> io::Result<()> {
    let open: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in open {
        // That of the directory is closed already.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}
