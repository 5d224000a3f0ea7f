//! What is set for a path.

use std::time::Duration;

use nvme_tcp::host::ControllerConfig;

/// How long one attempt to connect a socket may take, and the handshake of a queue pair after that.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long a controller is waited for that is told that the host leaves. One that does not answer notices by its keep-alive
/// timer.
pub const LEAVE_MAX: Duration = Duration::from_millis(500);

/// What is set for a path, and stays so.
#[derive(Debug, Clone)]
pub struct PathSettings {
    /// How its controller is connected. Each I/O thread has one of the I/O queues.
    pub controller: ControllerConfig,
    /// How long after a failure it is connected again (`reconnect-delay`).
    pub reconnect_delay: Duration,
    /// How long without a connection it is given up (`ctrl-loss-tmo`); `None` for never.
    pub ctrl_loss_tmo: Option<Duration>,
    /// The controller has promised to close its connections, once the host has ended them, only when everything it received is
    /// executed (`drain-fence`).
    pub drain_fence: bool,
}
