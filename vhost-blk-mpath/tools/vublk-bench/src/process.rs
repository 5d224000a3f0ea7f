//! Programs under test as child processes: started in a process group of their own, never left behind, watched
//! through `/proc`.

use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a child may take to end after SIGTERM.
const TERM_TIMEOUT: Duration = Duration::from_secs(3);

/// Lines of a log shown when something went wrong.
const LOG_TAIL_LINES: usize = 20;

/// A running program. Dropping it ends it.
#[derive(Debug)]
pub struct Managed {
    name: String,
    command_line: String,
    child: Child,
    log: PathBuf,
    lines: Receiver<String>,
}

/// Why a program could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("cannot make a directory for sockets and logs: {0}")]
    Directory(#[source] io::Error),
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("{name} did not get ready within {seconds} s{exited}; the end of its log:\n{log}")]
    NotReady { name: String, seconds: u64, exited: String, log: String },
}

/// A directory for sockets and logs.
pub fn directory(prefix: &str) -> Result<TempDir, ProcessError> {
    tempfile::Builder::new().prefix(prefix).tempdir().map_err(ProcessError::Directory)
}

/// The path of a program: as given, or in the folder of the running one.
pub fn sibling(given: Option<&PathBuf>, name: &str) -> PathBuf {
    given.cloned().unwrap_or_else(|| std::env::current_exe().unwrap_or_default().with_file_name(name))
}

impl Managed {
    /// Starts `command` with its stderr in `directory/name.log`. Call this from the main thread: the child dies
    /// with the thread that started it.
    pub fn spawn(name: &str, mut command: Command, directory: &Path) -> Result<Self, ProcessError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let command_line = command_line(&command);
        let failed = |source| ProcessError::Start { program: program.clone(), source };
        let log = directory.join(format!("{name}.log"));
        let stderr = File::create(&log).map_err(failed)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).process_group(0);
        // SAFETY: runs in the child between fork and exec; the closure makes one system call and touches no memory
        // but its own stack.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let mut child = command.spawn().map_err(failed)?;
        let (sender, lines) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            // Reads to the end even without a receiver, so that the child never blocks on its stdout.
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Self { name: name.to_owned(), command_line, child, log, lines })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn command_line(&self) -> &str {
        &self.command_line
    }

    /// The next line on its stdout that `wanted` takes.
    pub fn wait_for_line<T>(
        &mut self,
        timeout: Duration,
        wanted: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ProcessError> {
        let give_up = Instant::now() + timeout;
        while let Ok(line) = self.lines.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
            if let Some(value) = wanted(&line) {
                return Ok(value);
            }
        }
        // The stdout closes a moment before the exit status is there.
        thread::sleep(Duration::from_millis(50));
        Err(self.not_ready(timeout))
    }

    /// The error of a program that did not get ready within `timeout`, or has ended before.
    pub(crate) fn not_ready(&mut self, timeout: Duration) -> ProcessError {
        let exited = self.exited().map_or(String::new(), |status| format!(" ({status})"));
        ProcessError::NotReady { name: self.name.clone(), seconds: timeout.as_secs(), exited, log: self.log_tail() }
    }

    /// The exit status, if it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    fn signal_group(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It fails only if the whole group has ended already.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if self.exited().is_none() {
            self.signal_group(Signal::TERM);
            let give_up = Instant::now() + TERM_TIMEOUT;
            while self.exited().is_none() && Instant::now() < give_up {
                thread::sleep(Duration::from_millis(10));
            }
        }
        // Ends also the processes that the child has left in its group.
        self.signal_group(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The words of a command, without the folder of its program.
pub(crate) fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// User and system time that a process has used so far, to the nanosecond; `None` if it is gone.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let (pid, mut clock, mut time) = (i32::try_from(pid).ok()?, 0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both calls only write to the variable that they are given.
    let is_read = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0 && libc::clock_gettime(clock, &raw mut time) == 0
    };
    is_read.then(|| Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32))
}

/// The resources that a process holds.
#[derive(Debug)]
pub struct Resources {
    /// Resident memory.
    pub rss_bytes: u64,
    /// Resident memory, in which a page counts by the share of this process.
    pub pss_bytes: u64,
    pub threads: u64,
    pub open_files: u64,
}

impl Resources {
    /// The resources that a process holds now (`/proc/PID`, proc(5)); `None` if it is gone.
    pub fn of(pid: u32) -> Option<Self> {
        let read = |name| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let (memory, status) = (read("smaps_rollup")?, read("status")?);
        Some(Self {
            rss_bytes: field(&memory, "Rss:")? * 1024,
            pss_bytes: field(&memory, "Pss:")? * 1024,
            threads: field(&status, "Threads:")?,
            open_files: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64,
        })
    }
}

/// The number in the line of this name. Amounts of memory are in KiB.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().next()?.parse().ok()
}

/// Resident memory in bytes (`VmRSS` of `/proc/PID/status`); `None` if the process is gone.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    field(&status, "VmRSS:").map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_time() {
        let own = std::process::id();
        assert!(resident_bytes(own).unwrap() > 1 << 20);
        assert_eq!(resident_bytes(u32::MAX), None);
        let before = cpu_time(own).unwrap();
        while cpu_time(own).unwrap() == before {}
        assert_eq!(cpu_time(u32::MAX), None);
    }

    #[test]
    fn what_this_process_holds() {
        let before = Resources::of(std::process::id()).unwrap();
        let _files: Vec<_> = (0..100).map(|_| File::open("/proc/self/exe").unwrap()).collect();
        let after = Resources::of(std::process::id()).unwrap();
        // Other tests of this process open and close a few.
        assert!(after.open_files > before.open_files + 50, "{before:?} {after:?}");
        assert!(after.threads >= 1 && after.pss_bytes > 1 << 20 && after.pss_bytes <= after.rss_bytes, "{after:?}");
        assert!(Resources::of(u32::MAX).is_none());
    }

    #[test]
    fn a_child_is_heard_and_gone_after_drop() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo noise; sleep 60 & echo ready $!; sleep 60"]);
        let mut child = Managed::spawn("child", command, directory.path()).unwrap();
        let grandchild = child.wait_for_line(Duration::from_secs(5), |line| line.strip_prefix("ready ")?.parse().ok());
        let grandchild: u32 = grandchild.unwrap();
        let child_pid = child.pid();
        assert!(resident_bytes(child_pid).is_some() && resident_bytes(grandchild).is_some());
        drop(child);
        assert_eq!(resident_bytes(child_pid), None);
        // A busy machine takes a moment to end it. Until it is reaped it may stay a zombie, which has no memory.
        let give_up = Instant::now() + Duration::from_secs(5);
        while resident_bytes(grandchild).is_some() {
            assert!(Instant::now() < give_up, "the grandchild is left");
        }
    }

    #[test]
    fn a_child_that_fails_is_quoted() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such thing >&2; exit 3"]);
        let mut child = Managed::spawn("child", command, directory.path()).unwrap();
        let error = child.wait_for_line(Duration::from_secs(5), |_| Some(())).unwrap_err().to_string();
        assert!(error.contains("no such thing") && error.contains("exit status: 3"), "{error}");
    }
}
