//! Decides: `metrics-address` listens from this time on.
//!
//! Serves metrics on `metrics-address`.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mpath_api_server::{MetricsBindError, MetricsServer};
use mpath_config::MetricsAddress;
use tokio::time::sleep;

use crate::control::Daemon;

/// The interval of attempts to listen after an upgrade.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The listener of `metrics-address`.
pub(crate) struct Metrics {
    address: MetricsAddress,
    /// `None`: it listens once it serves.
    server: Option<MetricsServer>,
}

impl Metrics {
    /// Listens at once. An address that cannot be used is an error of the configuration or of this host.
    pub(crate) fn bind(address: MetricsAddress) -> Result<Self, MetricsBindError> {
        Ok(Self { address, server: Some(MetricsServer::bind(address)?) })
    }

    /// Listens once it serves, because a running daemon may listen on the address until then. No guest waits for that: the rehearsal of
    /// the upgrade has checked the address, and since then no error ends the daemon.
    pub(crate) fn after_upgrade(address: MetricsAddress) -> Self {
        Self { address, server: None }
    }

    /// Answers clients until `shutdown` completes. A failure must not end the disks: it is logged.
    pub(crate) async fn serve(self, daemon: Arc<Daemon>, shutdown: impl Future<Output = ()>) {
        let (address, mut shutdown) = (self.address, pin!(shutdown));
        if !address.is_loopback() {
            tracing::warn!(
                %address,
                "everyone who reaches `metrics-address` can read the metrics, with names of disks, NQNs and addresses, without TLS and \
                 password; restrict access in the network, or use 127.0.0.1"
            );
        }
        let server = if let Some(server) = self.server {
            server
        } else {
            tokio::select! {
                server = listen(address) => server,
                () = &mut shutdown => return,
            }
        };
        if let Err(error) = server.serve(daemon, shutdown).await {
            tracing::error!(%error, "metrics are not served any more");
        }
    }
}

/// Tries until the daemon listens on the address. Only the first failure is logged.
async fn listen(address: MetricsAddress) -> MetricsServer {
    let mut has_failed = false;
    loop {
        match MetricsServer::bind(address) {
            Ok(server) => {
                if has_failed {
                    tracing::info!(%address, "metrics are served");
                }
                return server;
            }
            Err(error) if !has_failed => {
                has_failed = true;
                tracing::warn!("metrics are not served yet: {error}; tried again every second");
            }
            Err(_) => {}
        }
        sleep(RETRY_INTERVAL).await;
    }
}
