//! The machine on which the numbers were measured.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

/// The facts that a reader needs to judge a number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    pub date: String,
    pub cpu: String,
    pub cpus: usize,
    pub virtualised: bool,
    pub memory_gib: f64,
    pub kernel: String,
    /// The congestion control of TCP. BBR, for one, keeps some connections slow as long as they live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// One-minute load average before the first measurement.
    pub load_average: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu_storage_daemon: Option<String>,
    /// Commit, with `-dirty` if the tree had changes.
    pub commit: String,
    pub version: String,
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
    /// Reads the facts of this machine, with the version of `qsd` (qemu-storage-daemon) if it takes part.
    pub fn look(qsd: Option<&Path>) -> Self {
        let (cpuinfo, load) = (file("/proc/cpuinfo"), file("/proc/loadavg"));
        let field = |name: &str| {
            let value = cpuinfo.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
            value.map_or("unknown", |(_, value)| value.trim())
        };
        let meminfo = file("/proc/meminfo");
        let kib = meminfo.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0);
        Self {
            date: first_line(Path::new("date"), &["-u", "+%Y-%m-%d %H:%M UTC"]),
            cpu: field("model name").to_owned(),
            cpus: available_parallelism().map_or(0, usize::from),
            virtualised: field("flags").split_ascii_whitespace().any(|flag| flag == "hypervisor"),
            memory_gib: (kib / 1_048_576.0 * 10.0).round() / 10.0,
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            congestion_control: Some(file("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned()),
            load_average: load.split_ascii_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
            qemu_storage_daemon: qsd.map(|qsd| first_line(qsd, &["--version"])),
            commit: first_line(Path::new("git"), &["describe", "--always", "--dirty", "--exclude=*"]),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The facts as one line of a document.
    pub fn text(&self) -> String {
        let Self { date, cpu, cpus, memory_gib, kernel, load_average, commit, .. } = self;
        let kind = if self.virtualised { " (virtual machine)" } else { "" };
        let tcp = self.congestion_control.as_ref().map_or(String::new(), |name| format!(" (TCP {name})"));
        let qsd = self.qemu_storage_daemon.as_ref().map_or(String::new(), |version| format!("; {version}"));
        format!(
            "{cpu}, {cpus} CPUs{kind}, {memory_gib} GiB, Linux {kernel}{tcp}; \
             load average {load_average:.2} before the start{qsd}; commit {commit}; {date}."
        )
    }
}
