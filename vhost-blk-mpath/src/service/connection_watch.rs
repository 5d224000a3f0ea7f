//! Polls the kernel once a second for the connections of all paths. A subflow that comes and goes within a second is
//! missed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mptcp::Connection;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::service::disks::Disks;
use crate::subsystem::Subsystem;
use crate::transport::connections::Wanted;

const PERIOD: Duration = Duration::from_secs(1);

/// Watches the connections of all paths until the end.
pub(crate) async fn watch(disks: Arc<Disks>, mut shutdown: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = sleep(PERIOD) => {}
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        }
        let subsystems = disks.subsystems();
        let mut wanted = Wanted::default();
        for subsystem in &subsystems {
            let state = subsystem.state();
            state.paths().filter_map(|path| path.connections.as_ref()).for_each(|of| of.add_to(&mut wanted));
        }
        // Long lists of sockets take milliseconds.
        let asked = tokio::task::spawn_blocking(move || wanted.ask());
        let all = asked.await.expect("it does not panic and is not cancelled").map_err(|error| error.to_string());
        for subsystem in &subsystems {
            update(subsystem, &all);
        }
    }
}

fn update(subsystem: &Subsystem, all: &Result<BTreeMap<u64, Connection>, String>) {
    let mut events = Vec::new();
    for path in subsystem.state().paths_mut() {
        if let Some(connections) = &mut path.connections {
            events.extend(connections.update(all).into_iter().map(|events| (path.id, events)));
        }
    }
    for (path, (kind, message)) in events {
        subsystem.path_event(path, kind, message);
    }
}
