//! `mpath-target`: serves an NVMe subsystem over TCP until SIGTERM or SIGINT.

mod ctl;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use ctl::CtlError;
use mpath_api_server::Server;
use mpath_config::SocketPath;
use mpath_target::args::Request;
use mpath_target::{TargetConfig, TargetServer, api};
use tokio::signal::unix::{SignalKind, signal};

const EXIT_RUNTIME: u8 = 1;
const EXIT_USAGE: u8 = 2;
const EXIT_NOT_RUNNING: u8 = 3;

fn main() -> ExitCode {
    let request = match Request::parse(std::env::args_os()) {
        Ok(request) => request,
        Err(message) => return fail(EXIT_USAGE, &message),
    };
    match request {
        Request::Print(text) => print(&text),
        Request::Serve(config, api) => match serve(*config, api.as_ref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(EXIT_RUNTIME, &error.to_string()),
        },
        Request::Ctl(api, command) => match ctl::run(&api, command) {
            Ok(text) => print(&text),
            Err(error @ CtlError::NotRunning(_)) => fail(EXIT_NOT_RUNNING, &error.to_string()),
            Err(error) => fail(EXIT_RUNTIME, &error.to_string()),
        },
    }
}

/// Prints to standard output. A closed output is not an error.
fn print(text: &str) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    ExitCode::SUCCESS
}

fn fail(code: u8, message: &str) -> ExitCode {
    eprintln!("mpath-target: {message}");
    ExitCode::from(code)
}

fn serve(config: TargetConfig, api: Option<&SocketPath>) -> Result<(), Box<dyn std::error::Error>> {
    // Signals are caught before the target reports that it is ready.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _context = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let socket = api.map(Server::bind).transpose()?;
    let server = Arc::new(TargetServer::start(config)?);
    print(&ready_lines(&server));

    let ended = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    match socket {
        Some(socket) => runtime.block_on(api::serve(socket, Arc::clone(&server), ended))?,
        None => runtime.block_on(ended),
    }
    Ok(())
}

/// The addresses of all listeners and of the discovery service, one line each, with `tls` if they accept nothing else, or `concat`
/// if authentications generate the keys.
fn ready_lines(server: &TargetServer) -> String {
    let nqn = server.nqn();
    let word = |security: Option<&str>| security.map(|word| format!(" {word}")).unwrap_or_default();
    let line =
        |(index, addr)| format!("listening on {addr} nqn {nqn} port {}{}\n", index + 1, word(server.security(index)));
    let listeners = server.addrs().into_iter().enumerate().map(line);
    let discovery =
        server.discovery_addr().map(|addr| format!("discovery on {addr}{}\n", word(server.discovery_security())));
    listeners.chain(discovery).collect()
}
