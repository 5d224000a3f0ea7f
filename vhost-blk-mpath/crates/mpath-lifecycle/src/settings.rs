//! The settings of a path.

use monotonic::Duration;
use nvme_tcp::host::ControllerConfig;

/// Limit for one attempt to connect a socket, and again for the handshake of a queue pair on it.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long the host waits for the answer to a shutdown. A controller that does not answer notices by its keep-alive
/// timer.
pub const SHUTDOWN_MAX: Duration = Duration::from_millis(500);

/// The settings of a path. Only the secrets of [`controller`](Self::controller) change: see
/// [`Path::set_authentication`](crate::Path::set_authentication).
#[derive(Debug, Clone)]
pub struct PathSettings {
    /// How the controller is connected. Each I/O thread gets one of the I/O queues, as far as they go.
    pub controller: ControllerConfig,
    /// The delay from a failure to the next attempt to connect (`reconnect-delay`).
    pub reconnect_delay: Duration,
    /// How long a path without a connection is retried before it is given up (`ctrl-loss-tmo`); `None` means forever.
    pub ctrl_loss_tmo: Option<Duration>,
    /// The controller promises to execute everything it has received before it closes connections that the host has
    /// ended (`drain-fence`).
    pub drain_fence: bool,
    /// The controllers share one cache, so a flush on any path covers all writes (`shared-write-cache`).
    pub shared_write_cache: bool,
}
