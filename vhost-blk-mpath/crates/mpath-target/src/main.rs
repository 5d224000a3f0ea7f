//! `mpath-target`: serves an NVMe subsystem over TCP until it is told to end.

mod args;

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use args::Request;
use mpath_target::{TargetConfig, TargetServer};
use tokio::signal::unix::{SignalKind, signal};

const EXIT_RUNTIME: u8 = 1;
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let request = match Request::parse(std::env::args_os()) {
        Ok(request) => request,
        Err(message) => return fail(EXIT_USAGE, &message),
    };
    match request {
        Request::Print(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Request::Serve(config) => match serve(config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(EXIT_RUNTIME, &error.to_string()),
        },
    }
}

fn fail(code: u8, message: &str) -> ExitCode {
    eprintln!("mpath-target: {message}");
    ExitCode::from(code)
}

fn serve(config: TargetConfig) -> Result<(), Box<dyn std::error::Error>> {
    // The signals are caught before anyone can learn that the target is ready.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _context = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let nqn = config.nqn.clone();
    let server = TargetServer::start(config)?;
    let addrs = server.addrs();
    let line = |(addr, port): (&SocketAddr, u16)| format!("listening on {addr} nqn {nqn} port {port}\n");
    let lines: String = addrs.iter().zip(1..).map(line).collect();
    // Nobody may be reading; that is no reason to end.
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush());
    drop(stdout);

    runtime.block_on(async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    });
    server.shutdown();
    Ok(())
}
