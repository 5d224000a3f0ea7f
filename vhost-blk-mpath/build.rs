//! Sets `VHOST_BLK_MPATH_VERSION`: the version, and the commit if this is a git repository of the project. The daemon and
//! `mpathctl` share this script. Only these two programs are built again after a commit.

use std::path::Path;
use std::process::Command;

/// The output of a git command, if it succeeds.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// The commit. `None` without git, and in a repository that holds an unpacked archive without tracking it.
fn commit() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    let branch = git(&["rev-parse", "--symbolic-full-name", "HEAD"])?;
    // Only what a commit or a checkout changes. The log covers a branch that is in `packed-refs`. Cargo would run this script at every
    // build if one of the files did not exist.
    for name in ["HEAD", &branch, "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).is_file() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn main() {
    println!("cargo:rerun-if-changed=Cargo.toml");
    let version = env!("CARGO_PKG_VERSION");
    let version = commit().map_or(version.into(), |commit| format!("{version} ({commit})"));
    println!("cargo:rustc-env=VHOST_BLK_MPATH_VERSION={version}");
}
