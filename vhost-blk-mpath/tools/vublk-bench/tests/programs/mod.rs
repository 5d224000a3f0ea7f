//! The programs that measure, with the daemon, the target and `mpathctl` from their own folder. Builds these if they are
//! not there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder_of(program: &Path) -> PathBuf {
    let folder = program.parent().unwrap().to_owned();
    let missing = |name: &&str| !folder.join(name).exists();
    if ["vhost-blk-mpath", "mpath-target", "mpathctl"].iter().any(missing) {
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--locked", "--bins", "-p", "vhost-blk-mpath", "-p", "mpath-target", "-p", "mpathctl"]);
        command.arg("--target-dir").arg(folder.parent().unwrap());
        if folder.ends_with("release") {
            command.arg("--release");
        }
        assert!(command.status().unwrap().success());
    }
    folder
}

/// Runs `program` with `arguments` on the documentation in `docs`.
pub(crate) fn run(program: &str, docs: &Path, arguments: &str) -> Output {
    let program = Path::new(program);
    let folder = folder_of(program);
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).arg("--docs").arg(docs);
    for (variable, program) in
        [("VHOST_BLK_MPATH", "vhost-blk-mpath"), ("MPATH_TARGET", "mpath-target"), ("MPATHCTL", "mpathctl")]
    {
        command.env(variable, folder.join(program));
    }
    command.output().unwrap()
}
