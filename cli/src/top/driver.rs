//! The terminal, the signals, the clock and the daemon of `top`.

use std::io::{self, IsTerminal, Read, stdin, stdout};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use std::{panic, thread};

use mpath_api::client::{Client, ClientError};
use mpath_api::types::SetSettings;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{emulate_default_handler, pipe};

use super::dialog::{Change, Step};
use super::draw::{Palette, draw};
use super::state::{Look, Outcome, State};
use crate::Failure;
use crate::table::wants_colour;

/// What happens.
enum Input {
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    Looked(Result<Look, String>),
    Changed(Outcome),
    Signal(i32),
    /// The terminal cannot be read any more.
    Lost(io::Error),
}

/// What the daemon is asked.
enum Request {
    /// Everything, and the events after this one.
    Look {
        after: u64,
    },
    Change(Change),
}

/// Shows the daemon until the user quits.
pub(crate) fn run(client: &Arc<Client>, interval: Duration) -> Result<(), Failure> {
    if !(stdin().is_terminal() && stdout().is_terminal()) {
        return Err(Failure::NoTerminal);
    }
    let (tell, inputs) = mpsc::channel();
    signals(&tell)?;
    let requests = worker(client, &tell);
    let mut screen = Screen::open()?;
    keys(&tell);
    let end = follow(&mut screen, interval, &inputs, &requests);
    drop(screen);
    match end? {
        Some(signal) => Ok(emulate_default_handler(signal)?),
        None => Ok(()),
    }
}

/// Draws and asks until the user quits, or until a signal ends the program.
fn follow(
    screen: &mut Screen,
    interval: Duration,
    inputs: &Receiver<Input>,
    requests: &Sender<Request>,
) -> io::Result<Option<i32>> {
    let palette = Palette { has_colour: wants_colour() };
    let start = Instant::now();
    let mut state = State::new(interval);
    let (mut next_look, mut is_asking) = (start, false);
    loop {
        if !is_asking && Instant::now() >= next_look {
            ask(requests, Request::Look { after: state.last_event() })?;
            (is_asking, next_look) = (true, Instant::now() + interval);
        }
        state.time(start.elapsed());
        screen.0.draw(|frame| draw(frame, &state, palette))?;
        let wait = if is_asking { interval } else { next_look.saturating_duration_since(Instant::now()) };
        match inputs.recv_timeout(wait) {
            Ok(Input::Key(key)) => match state.key(key) {
                Step::Nothing => (),
                Step::Quit => return Ok(None),
                Step::Ask(change) => ask(requests, Request::Change(change))?,
            },
            Ok(Input::Looked(look)) => {
                is_asking = false;
                state.looked(start.elapsed(), look);
            }
            Ok(Input::Changed(outcome)) => {
                state.outcome = Some(outcome);
                next_look = Instant::now();
            }
            Ok(Input::Signal(signal)) => return Ok(Some(signal)),
            Ok(Input::Lost(error)) => return Err(error),
            Ok(Input::Resized) | Err(RecvTimeoutError::Timeout) => (),
            Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Hands a request to the thread that calls the daemon. That thread ends only by a panic.
fn ask(requests: &Sender<Request>, request: Request) -> io::Result<()> {
    requests.send(request).map_err(|_| io::Error::other("the thread that asks the daemon has ended"))
}

/// The thread that calls the daemon. It is not waited for at the end: a call may take seconds.
fn worker(client: &Arc<Client>, tell: &Sender<Input>) -> Sender<Request> {
    let (requests, received) = mpsc::channel();
    let (client, tell) = (Arc::clone(client), tell.clone());
    thread::spawn(move || {
        for request in received {
            let input = match request {
                Request::Look { after } => Input::Looked(look(&client, after).map_err(|error| error.to_string())),
                Request::Change(wanted) => Input::Changed(change(&client, &wanted).map_err(|error| error.to_string())),
            };
            if tell.send(input).is_err() {
                return;
            }
        }
    });
    requests
}

fn look(client: &Client, after: u64) -> Result<Look, ClientError> {
    Ok(Look {
        status: client.status()?,
        paths: client.paths(None)?,
        scheduling: client.scheduler_detail(None)?,
        events: client.events(after)?,
    })
}

/// Makes a change, and says what was done.
fn change(client: &Client, change: &Change) -> Result<String, ClientError> {
    let disk = |disk: &Option<String>| disk.clone().unwrap_or_default();
    Ok(match change {
        Change::Policy { disk, policy } => {
            client.set(&SetSettings::from(*policy).of(disk))?;
            format!("{disk}: policy set to {policy}")
        }
        Change::Inject(wanted) => {
            client.set_injection(wanted)?;
            format!("{} {}: injection set: {}", disk(&wanted.disk), wanted.path, wanted.injection)
        }
        Change::Clear { path, disk } => match client.clear_injections(path, Some(disk))?.len() {
            0 => format!("{disk} {path}: no injection to clear"),
            cleared => format!("{disk} {path}: injections cleared: {cleared}"),
        },
        Change::Act(wanted) => {
            client.act_on_paths(wanted)?;
            format!("{} {}: {} done", disk(&wanted.disk), wanted.path, wanted.action)
        }
    })
}

/// The thread that reads the terminal. It is not waited for at the end: it waits for a key.
fn keys(tell: &Sender<Input>) {
    let tell = tell.clone();
    thread::spawn(move || {
        loop {
            let (input, is_last) = match event::read() {
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => (Input::Key(key), false),
                Ok(Event::Resize(..)) => (Input::Resized, false),
                Ok(_) => continue,
                Err(error) => (Input::Lost(error), true),
            };
            if tell.send(input).is_err() || is_last {
                return;
            }
        }
    });
}

/// Threads that wait for the signals that end the program.
fn signals(tell: &Sender<Input>) -> io::Result<()> {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let (ours, signalled) = UnixStream::pair()?;
        pipe::register(signal, signalled)?;
        let tell = tell.clone();
        thread::spawn(move || {
            if (&ours).read_exact(&mut [0]).is_ok() {
                // The receiver is gone if the program ends anyway.
                let _ = tell.send(Input::Signal(signal));
            }
        });
    }
    Ok(())
}

/// The terminal in raw mode with its alternate screen. When it is dropped, and at a panic, both are undone.
struct Screen(Terminal<CrosstermBackend<io::Stdout>>);

impl Screen {
    fn open() -> io::Result<Self> {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            hook(info);
        }));
        enable_raw_mode()?;
        let open = || {
            execute!(stdout(), EnterAlternateScreen)?;
            Terminal::new(CrosstermBackend::new(stdout()))
        };
        open().map(Self).inspect_err(|_| restore())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Nothing can be done about an error: the terminal may be gone.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
}
