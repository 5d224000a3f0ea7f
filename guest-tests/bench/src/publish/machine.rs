//! What the numbers were measured on.

use serde::Serialize;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

/// Facts without which a number says nothing.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)] // The names say it all.
pub struct Machine {
    pub date: String,
    pub cpu: String,
    pub cpus: usize,
    pub virtualised: bool,
    pub memory_gib: f64,
    pub kernel: String,
    /// One-minute load average before the first measurement: what else was going on.
    pub load_average: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu_storage_daemon: Option<String>,
    /// Commit, with `-dirty` when the tree had changes.
    pub commit: String,
    pub version: &'static str,
}

fn file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The first line of what a program prints; "unknown" if it cannot be run.
fn first_line(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

impl Machine {
    /// Of this machine, now; with the version of `qsd` if that takes part.
    #[must_use]
    pub fn look(qsd: Option<&Path>) -> Self {
        let cpuinfo = file("/proc/cpuinfo");
        let field = |name: &str| {
            let value = cpuinfo.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
            value.map_or("unknown", |(_, value)| value.trim())
        };
        let meminfo = file("/proc/meminfo");
        let kib = meminfo.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok());
        let load = file("/proc/loadavg");
        Self {
            date: first_line(Path::new("date"), &["-u", "+%Y-%m-%d %H:%M UTC"]),
            cpu: field("model name").to_owned(),
            cpus: available_parallelism().map_or(0, usize::from),
            virtualised: field("flags").split_ascii_whitespace().any(|flag| flag == "hypervisor"),
            memory_gib: kib.map_or(0.0, |kib| (kib / 1_048_576.0 * 10.0).round() / 10.0),
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_average: load.split_ascii_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
            qemu_storage_daemon: qsd.map(|qsd| first_line(qsd, &["--version"])),
            commit: first_line(Path::new("git"), &["describe", "--always", "--dirty", "--exclude=*"]),
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// What is wrong with it for results that others are to reproduce, if anything is.
    #[must_use]
    pub fn objection(&self) -> Option<String> {
        let dirty = self.commit.ends_with("-dirty");
        dirty.then(|| {
            format!("{} is no commit: others cannot reproduce this; commit first, and build again", self.commit)
        })
    }

    /// One line of a document.
    #[must_use]
    pub fn text(&self) -> String {
        let qsd = self.qemu_storage_daemon.as_ref().map_or(String::new(), |version| format!("; {version}"));
        format!(
            "{}, {} CPUs{}, {} GiB, Linux {}; load average {:.2} before the start{qsd}; commit {}; {}.",
            self.cpu,
            self.cpus,
            if self.virtualised { " (virtual machine)" } else { "" },
            self.memory_gib,
            self.kernel,
            self.load_average,
            self.commit,
            self.date
        )
    }
}
