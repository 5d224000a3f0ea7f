//! What the numbers were measured on.

use serde::Serialize;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

/// Facts without which a number says nothing.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) virtualised: bool,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    /// One-minute load average before the first measurement: what else was going on.
    pub(crate) load_average: f64,
    pub(crate) qemu_storage_daemon: String,
    /// Commit, with `-dirty` when the tree had changes.
    pub(crate) commit: String,
    pub(crate) version: &'static str,
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
    pub(crate) fn look(qsd: &Path) -> Self {
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
            qemu_storage_daemon: first_line(qsd, &["--version"]),
            commit: first_line(Path::new("git"), &["describe", "--always", "--dirty", "--exclude=*"]),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}
