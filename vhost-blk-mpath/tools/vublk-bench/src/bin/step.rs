//! A front-end that does one request at a time, on command. It is for tests that have to know when a write is on its way.
//!
//! ```text
//! step SOCKET            stdin, a command a line            stdout, an answer a line
//!                        begin BYTE   write, not waited for  begun
//!                        end          wait for that write    ended STATUS MILLISECONDS
//!                        read         read the same place    read BYTE | read torn
//! ```
//! The place is the disk's first 4096 bytes, each of them BYTE.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use virtio_driver::VirtioBlkFeatureFlags;
use vublk_bench::backend::Backend;
use vublk_bench::front_end::{BlkQueue, ConnectError, Device, QueueShape};
use vublk_bench::request::{Kind, Request, Status};

const BYTES: usize = 4096;
const SHAPE: QueueShape = QueueShape { queues: 1, ring_size: 16, slots: 2, slot_bytes: BYTES };
const CONNECT_MAX: Duration = Duration::from_secs(20);
/// Longer than any fence that is set up in a test.
const ANSWER_MAX: Duration = Duration::from_secs(60);

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match std::env::args_os().nth(1).ok_or("usage: step SOCKET".into()).and_then(|socket| serve(Path::new(&socket))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("step: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(socket: &Path) -> Result<(), Failure> {
    let refused = VirtioBlkFeatureFlags::empty();
    let (_device, queues) = Device::connect(socket, refused, CONNECT_MAX, |_| Ok::<_, ConnectError>(SHAPE))?;
    let mut queue = queues.into_iter().next().ok_or("no virtqueue")?;
    let mut begun = Instant::now();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let answer = match (words.next(), words.next()) {
            (Some("begin"), Some(byte)) => {
                begun = Instant::now();
                submit(&mut queue, Kind::Write, &[byte.parse()?; BYTES])?;
                "begun".into()
            }
            (Some("end"), None) => {
                let status = answer(&mut queue)?;
                format!("ended {status:?} {}", begun.elapsed().as_millis())
            }
            (Some("read"), None) => {
                let mut data = [0; BYTES];
                submit(&mut queue, Kind::Read, &data)?;
                let status = answer(&mut queue)?;
                queue.fetch(0, &mut data);
                match status {
                    Status::Ok if data.iter().all(|&byte| byte == data[0]) => format!("read {}", data[0]),
                    Status::Ok => "read torn".into(),
                    status => return Err(format!("read: {status:?}").into()),
                }
            }
            _ => return Err(format!("no such command: {line}").into()),
        };
        println!("{answer}");
        io::stdout().flush()?;
    }
    Ok(())
}

fn submit(queue: &mut BlkQueue, kind: Kind, data: &[u8]) -> Result<(), Failure> {
    queue.fill(0, data);
    queue.submit(0, &Request { kind, offset: 0, len: BYTES as u32 })?;
    Ok(queue.kick()?)
}

fn answer(queue: &mut BlkQueue) -> Result<Status, Failure> {
    let start = Instant::now();
    loop {
        if let Some(used) = queue.next_used() {
            return Ok(used.status);
        }
        let left = ANSWER_MAX.checked_sub(start.elapsed()).ok_or("no answer within a minute")?;
        queue.wait(left.min(Duration::from_millis(100)))?;
    }
}
