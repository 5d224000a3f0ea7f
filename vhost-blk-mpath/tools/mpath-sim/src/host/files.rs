//! The files next to the sockets of disks. They survive the daemon.

use super::fences::RecordFiles;

/// All files of a daemon.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(super) records: RecordFiles,
    pub(super) shown: ShownFiles,
}

/// By disk: the blocks that the next daemon shows to front-ends. `None`: front-ends wait until a path works.
#[derive(Debug, Default)]
pub(super) struct ShownFiles(pub(super) Vec<Option<u64>>);

impl Files {
    /// Front-ends have seen disks with these blocks.
    pub(crate) fn new(shown: impl Iterator<Item = u64>) -> Self {
        Self { records: RecordFiles::default(), shown: ShownFiles(shown.map(Some).collect()) }
    }
}
