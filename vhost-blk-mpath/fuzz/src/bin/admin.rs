//! Answers of a controller on its admin queue, from the handshake to the shutdown.
#![no_main]

use fuzz::controller::{Controller, Step, host};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use monotonic::{Duration, Instant};
use nvme_tcp::host::{ControllerConfig, HostController};
use nvme_tcp::wire::Digests;

#[derive(Arbitrary, Debug)]
struct Case {
    header_digest: bool,
    nsids: [u8; 2],
    steps: Vec<Step>,
    shuts_down: bool,
}

fuzz_target!(|case: Case| {
    let config = ControllerConfig {
        host: host(),
        subnqn: "nqn.2014-08.org.example:disk".parse().expect("an NQN"),
        nsids: case.nsids.iter().filter(|nsid| **nsid > 0).map(|nsid| u32::from(*nsid)).collect(),
        keep_alive_tmo: Duration::from_secs(5),
        digests: Digests { header: case.header_digest, data: false },
        io_queues: 2,
        queue_entries: 16,
        max_transfer_bytes: None,
        authentication: None,
        is_encrypted: false,
        command_timeout: Duration::from_secs(3),
    };
    let mut now = Instant::now();
    let Ok(mut session) = HostController::new(config, now) else { return };
    let (mut controller, mut out) = (Controller::default(), Vec::new());
    let last = case.steps.len().saturating_sub(4);
    for (place, step) in case.steps.iter().enumerate() {
        if case.shuts_down && place == last {
            session.shutdown(now);
        }
        out.clear();
        session.fill_tx(&mut out);
        controller.take(&out);
        let (bytes, wait) = controller.bytes(step);
        now += wait;
        let failed = session.receive(now, &bytes).is_err() || session.handle_timeout(now).is_err();
        while session.poll_event().is_some() {}
        if failed {
            let _ = session.term_req();
            return;
        }
        let _ = session.queue_config(1);
    }
});
