//! A payload that arrives in small pieces, as over a slow link. This is a separate test program because it inspects the threads of
//! the process.
#![allow(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod common;

use std::fs;
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use common::{connect, host_config, pattern, target};
use mpath_target::NamespaceConfig;
use nvme_tcp::host::{IoCommand, STAGING_MIN, TxPart};

const PAYLOAD_BYTES: usize = 128 << 10;
const PIECE_BYTES: usize = 256;

/// The number of times that connection threads have gone to sleep.
fn sleeps() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let of_connections =
        tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("connection-")));
    let counts = of_connections.map(|task| {
        let status = fs::read_to_string(task.join("status")).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        count.trim().parse::<usize>().unwrap()
    });
    counts.sum()
}

#[test]
fn the_target_does_not_wake_up_for_each_small_piece_of_a_payload() {
    let server = target(1, &[NamespaceConfig::memory(8 << 20)]);
    let (_admin, mut queue, _) = connect(server.addrs()[0], host_config());
    let data = pattern(3, PAYLOAD_BYTES);
    let blocks = (PAYLOAD_BYTES / 512) as u32;
    queue.submit(IoCommand::Write { slba: 0, blocks, fua: false }, data.clone());
    // Until the target requests the payload.
    let bytes = loop {
        queue.turn().unwrap();
        let (mut staging, mut plan) = (Vec::with_capacity(STAGING_MIN.max(1 << 16)), Vec::new());
        queue.host.fill_tx(monotonic::Instant::now(), &mut staging, &queue.payloads, &mut plan, u32::MAX);
        let parts = plan.iter().map(|part| match *part {
            TxPart::Staged { start, len } => &staging[start..][..len],
            TxPart::Payload { tag, offset, len } => &queue.payloads.0[&tag][offset as usize..][..len as usize],
        });
        let bytes = parts.collect::<Vec<_>>().concat();
        if !bytes.is_empty() {
            break bytes;
        }
    };
    assert!(bytes.len() > PAYLOAD_BYTES, "all of it in one go");
    let before = sleeps();
    for piece in bytes.chunks(PIECE_BYTES) {
        queue.stream.write_all(piece).unwrap();
        // Gives the target time to receive the piece.
        sleep(Duration::from_millis(1));
    }
    queue.completion().unwrap();
    let slept = sleeps() - before;
    let pieces = bytes.len().div_ceil(PIECE_BYTES);
    assert!(slept < pieces / 4, "{slept} times for {pieces} pieces");
    assert!(queue.read(0, blocks).unwrap() == data);
}
