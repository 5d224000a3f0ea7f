//! `mpathctl` in a terminal of its own, whose screen can be read.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use patience::PATIENCE;
use pty_process::{Size, blocking};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use vt100::{Parser, Screen};

use crate::daemon::Daemon;

/// The terminal, and the program in it. Dropped, the program ends.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    shown: Arc<(Mutex<Parser>, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts `mpathctl` for this daemon in a terminal of so many rows and columns.
    pub(crate) fn start(daemon: &Daemon, args: &[&str], (rows, columns): (u16, u16), env: &[(&str, &str)]) -> Self {
        let (pty, inner) = blocking::open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        let command = blocking::Command::new(env!("CARGO_BIN_EXE_mpathctl")).args(args);
        let command = command.env("MPATH_API", daemon.socket()).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        let child = command.envs(env.iter().copied()).spawn(inner).unwrap();
        let keyboard = File::from(OwnedFd::from(pty));
        let [rows, columns] = [rows, columns].map(|size| NonZeroU16::new(size).unwrap());
        let shown = Arc::new((Mutex::new(Parser::new(rows, columns, 0)), Condvar::new()));
        let (mut output, parser) = (keyboard.try_clone().unwrap(), Arc::clone(&shown));
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails once the program has ended.
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                parser.0.lock().unwrap().process(&bytes[..length]);
                parser.1.notify_all();
            }
        });
        Self { child, keyboard, shown, reader: Some(reader) }
    }

    pub(crate) fn type_keys(&self, keys: &str) {
        (&self.keyboard).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let [height, width] = [rows, columns].map(|size| NonZeroU16::new(size).unwrap());
        self.shown.0.lock().unwrap().set_size(height, width);
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keyboard, size).unwrap();
    }

    /// Waits until the screen is as wanted.
    pub(crate) fn wait(&self, what: &str, is_there: impl Fn(&Screen) -> bool) {
        let (parser, changed) = &*self.shown;
        let wait = changed.wait_timeout_while(parser.lock().unwrap(), PATIENCE, |parser| !is_there(parser.screen()));
        let (parser, time) = wait.unwrap();
        assert!(!time.timed_out(), "{what} is missing:\n{}", parser.screen().contents());
    }

    /// Waits for a text on the screen.
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait(text, |screen| screen.contents().contains(text));
    }

    /// Waits until a text has gone from the screen.
    pub(crate) fn wait_without(&self, text: &str) {
        self.wait(&format!("a screen without {text}"), |screen| !screen.contents().contains(text));
    }

    pub(crate) fn contents(&self) -> String {
        self.shown.0.lock().unwrap().screen().contents()
    }

    /// Whether any character has a colour.
    pub(crate) fn has_colours(&self) -> bool {
        let parser = self.shown.0.lock().unwrap();
        let (rows, columns) = parser.screen().size();
        let cells = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |column| (row, column)));
        cells
            .filter_map(|(row, column)| parser.screen().cell(row, column))
            .any(|cell| cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default)
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let kill = std::process::Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits until the program has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Waits until all that the ended program has written is on the screen.
    pub(crate) fn wait_closed(&mut self) {
        self.reader.take().unwrap().join().unwrap();
    }

    /// Waits until the screen is that of before the program, with a cursor, and the keys are echoed.
    pub(crate) fn is_restored(&self) {
        self.wait("the terminal as before", |screen| !screen.alternate_screen() && !screen.hide_cursor());
        let modes = tcgetattr(&self.keyboard).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON), "{modes:?}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
