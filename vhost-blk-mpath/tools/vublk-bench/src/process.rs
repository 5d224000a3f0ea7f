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
        let exited = self.exited().map_or(String::new(), |status| format!(" ({status})"));
        Err(ProcessError::NotReady {
            name: self.name.clone(),
            seconds: timeout.as_secs(),
            exited,
            log: self.log_tail(),
        })
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
        // Ends processes that the child has left in its group, too.
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

/// User and system time that a process has used so far (`/proc/PID/stat`, proc(5)); `None` if it is gone.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = parse_cpu_ticks(&stat)?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// utime and stime: fields 14 and 15. The name in field 2 may hold blanks and parentheses.
fn parse_cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Resident memory in bytes (`VmRSS` of `/proc/PID/status`); `None` if the process is gone.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_despite_a_strange_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 70 30 5 6 20 0 1 0 100 0 0";
        assert_eq!(parse_cpu_ticks(stat), Some(100));
        assert_eq!(parse_cpu_ticks("nonsense"), None);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(resident_bytes(std::process::id()).unwrap() > 1 << 20);
        assert!(cpu_time(std::process::id()).is_some());
        assert_eq!(resident_bytes(u32::MAX), None);
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
        // Until it is reaped it may stay a zombie, which has no memory.
        assert_eq!(resident_bytes(grandchild), None);
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
