//! Answers of a discovery controller: log pages, events and anything else.
#![no_main]

use fuzz::controller::{Controller, Step, host};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use monotonic::{Duration, Instant};
use nvme_tcp::host::{DiscoveryConfig, DiscoveryEvent, HostDiscovery, referrals, tcp_address};
use nvme_tcp::wire::Nqn;

#[derive(Arbitrary, Debug)]
struct Case {
    is_persistent: bool,
    steps: Vec<Step>,
}

fuzz_target!(|case: Case| {
    let config = DiscoveryConfig {
        host: host(),
        subnqn: Nqn::discovery(),
        keep_alive_tmo: case.is_persistent.then_some(Duration::from_secs(5)),
        command_timeout: Duration::from_secs(3),
    };
    let mut now = Instant::now();
    let Ok(mut session) = HostDiscovery::new(config, now) else { return };
    let (mut controller, mut out) = (Controller::default(), Vec::new());
    for step in &case.steps {
        out.clear();
        session.fill_tx(&mut out);
        controller.take(&out);
        let (bytes, wait) = controller.bytes(step);
        now += wait;
        if session.receive(now, &bytes).is_err() || session.handle_timeout(now).is_err() {
            let _ = session.term_req();
            return;
        }
        while let Some(event) = session.poll_event() {
            if let DiscoveryEvent::Log(log) = event {
                log.entries.iter().for_each(|entry| drop(tcp_address(entry, true)));
                let _ = referrals(&log, &[], true, |_| None);
            }
        }
    }
});
