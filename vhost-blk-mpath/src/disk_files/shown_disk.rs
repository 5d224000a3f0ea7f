//! Decides: the file of what front-ends were shown has this content.
//!
//! The disk as front-ends of a socket were shown it: a file that outlives the daemon. The next daemon answers a
//! front-end from the file before any path works.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpath_lifecycle::NamespaceName;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use vhost_user_blk::DiskGeometry;

use crate::disk::settings::DiskSettings;
use crate::disk_files::file;

/// The format. A daemon does not use files of other versions.
const VERSION: u32 = 1;

/// A disk as front-ends were shown it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShownDisk {
    version: u32,
    configured: Configured,
    pub(crate) namespace: NamespaceName,
    #[serde(with = "GeometryFields")]
    pub(crate) geometry: DiskGeometry,
}

/// The settings that decide the namespace, or that front-ends see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Configured {
    subsystem: String,
    nsid: Option<u32>,
    read_only: bool,
    queues: u32,
}

impl Configured {
    fn new(subsystem: &str, settings: &DiskSettings) -> Self {
        let DiskSettings { nsid, read_only, queues, .. } = settings;
        Self { subsystem: subsystem.into(), nsid: *nsid, read_only: *read_only, queues: queues.get() }
    }
}

/// The fields of [`DiskGeometry`] in the file.
#[derive(Serialize, Deserialize)]
#[serde(remote = "DiskGeometry")]
struct GeometryFields {
    capacity_sectors: u64,
    block_size: u32,
    physical_block_exp: u8,
    min_io_blocks: u16,
    opt_io_blocks: u32,
    read_only: bool,
    serial: [u8; 20],
    num_queues: u16,
    queue_size_max: u16,
    size_max: u32,
    seg_max: u16,
    max_discard_sectors: u32,
    max_write_zeroes_sectors: u32,
    write_zeroes_may_unmap: bool,
    writeback: bool,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
enum ShownDiskError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("not a description of a disk: {0}")]
    Content(#[from] serde_json::Error),
    #[error("version {0}, and this daemon knows {VERSION}")]
    Version(u32),
}

impl ShownDisk {
    pub(crate) fn new(
        subsystem: &str,
        settings: &DiskSettings,
        namespace: NamespaceName,
        geometry: DiskGeometry,
    ) -> Self {
        Self { version: VERSION, configured: Configured::new(subsystem, settings), namespace, geometry }
    }

    fn parse(text: &[u8]) -> Result<Self, ShownDiskError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } = serde_json::from_slice(text)?;
        if version != VERSION {
            return Err(ShownDiskError::Version(version));
        }
        Ok(serde_json::from_slice(text)?)
    }
}

/// The file of a disk.
#[derive(Debug)]
pub(crate) struct ShownDiskFile {
    path: PathBuf,
    content: Mutex<Content>,
}

#[derive(Debug)]
struct Content {
    /// The content of the file, if there is a usable one.
    saved: Option<ShownDisk>,
    /// The disk was removed. Nothing more is written.
    is_forgotten: bool,
}

impl ShownDiskFile {
    /// Reads the file. A file that cannot be used is reported and counts as missing.
    pub(super) fn open(path: PathBuf) -> Self {
        let found = file::read(&path).map_err(ShownDiskError::from);
        let saved = found.and_then(|text| text.map(|text| ShownDisk::parse(&text)).transpose());
        let saved = saved.unwrap_or_else(|error| {
            tracing::warn!(
                file = %path.display(),
                %error,
                "cannot use the description of the disk that front-ends were shown; they wait until a path works"
            );
            None
        });
        Self { path, content: Mutex::new(Content { saved, is_forgotten: false }) }
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The disk as front-ends were shown it, if the settings that decide about it are the same.
    pub(crate) fn load(&self, subsystem: &str, settings: &DiskSettings) -> Option<ShownDisk> {
        let wanted = Configured::new(subsystem, settings);
        // The file is input: nothing in it may exceed the settings.
        let fits = |of: &DiskGeometry| {
            u32::from(of.num_queues) == settings.queues.get() && (of.read_only || !settings.read_only)
        };
        self.content().saved.clone().filter(|saved| saved.configured == wanted && fits(&saved.geometry))
    }

    /// Writes the file durably, unless it has that content. If that fails, the file stays as it was, or is as wanted.
    pub(crate) async fn save(self: &Arc<Self>, shown: ShownDisk) -> io::Result<()> {
        let file = Arc::clone(self);
        // Writing to disk can take a while, and the control thread has to send keep-alives.
        spawn_blocking(move || file.save_now(shown)).await.unwrap_or_else(|failed| Err(io::Error::other(failed)))
    }

    fn save_now(&self, shown: ShownDisk) -> io::Result<()> {
        // Held until the file is written, so that changes are written in their order.
        let mut content = self.content();
        if content.is_forgotten || content.saved.as_ref() == Some(&shown) {
            return Ok(());
        }
        content.saved = None;
        file::replace(&self.path, &shown)?;
        content.saved = Some(shown);
        Ok(())
    }

    /// Removes the file for good, because the disk is removed. Blocks.
    pub(crate) fn forget(&self) {
        let mut content = self.content();
        *content = Content { saved: None, is_forgotten: true };
        if let Err(error) = file::remove(&self.path) {
            tracing::warn!(file = %self.path.display(), %error, "cannot remove the description of a removed disk; remove the file");
        }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::disk::geometry;

    fn shown() -> (DiskSettings, ShownDisk) {
        let settings = DiskSettings::all(&geometry::tests::config()).remove(0);
        let info = geometry::tests::controller();
        let identity = info.namespaces[0].as_ref().unwrap().identity;
        let namespace = NamespaceName::new("nqn.example", &identity);
        let geometry = geometry::of(&settings, &info, &identity);
        let shown = ShownDisk::new("nqn.example", &settings, namespace, geometry);
        (settings, shown)
    }

    #[tokio::test]
    async fn a_disk_is_found_again_with_the_same_settings() {
        let place = tempfile::tempdir().unwrap();
        let open = || Arc::new(ShownDiskFile::open(place.path().join("disk.shown")));
        let (settings, shown) = shown();
        assert_eq!(open().load("nqn.example", &settings), None);
        open().save(shown.clone()).await.unwrap();
        assert_eq!(open().load("nqn.example", &settings), Some(shown.clone()));
        assert_eq!(open().load("nqn.other", &settings), None);
        let queues = "3".parse().unwrap();
        let others = [
            DiskSettings { nsid: Some(7), ..settings.clone() },
            DiskSettings { read_only: true, ..settings.clone() },
            DiskSettings { queues, ..settings.clone() },
        ];
        assert!(others.iter().all(|other| open().load("nqn.example", other).is_none()));
        let removed = open();
        removed.forget();
        removed.save(shown).await.unwrap();
        assert!(!removed.path().exists() && open().load("nqn.example", &settings).is_none());
    }

    /// Guests see what the file says until another size is saved.
    #[tokio::test]
    async fn a_file_that_cannot_be_replaced_stays() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("disk.shown");
        let open = || Arc::new(ShownDiskFile::open(path.clone()));
        let (settings, shown) = shown();
        open().save(shown.clone()).await.unwrap();
        fs::create_dir(place.path().join("disk.shown.new")).unwrap();
        let capacity_sectors = shown.geometry.capacity_sectors * 2;
        let grown =
            ShownDisk { geometry: DiskGeometry { capacity_sectors, ..shown.geometry.clone() }, ..shown.clone() };
        let file = open();
        assert!(file.save(grown.clone()).await.is_err());
        assert_eq!(open().load("nqn.example", &settings), Some(shown));
        fs::remove_dir(place.path().join("disk.shown.new")).unwrap();
        file.save(grown.clone()).await.unwrap();
        assert_eq!(open().load("nqn.example", &settings), Some(grown));
    }

    #[test]
    fn a_damaged_or_later_file_counts_as_missing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("disk.shown");
        let (settings, shown) = shown();
        let text = serde_json::to_string(&shown).unwrap();
        let later = text.replace("\"version\":1", "\"version\":2,\"more\":3");
        for damaged in ["", "{", &text[..text.len() - 2], &later, "[]", "{\"version\":1}"] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(ShownDiskFile::open(path.clone()).load("nqn.example", &settings), None, "{damaged}");
        }
        fs::write(&path, &text).unwrap();
        assert_eq!(ShownDiskFile::open(path.clone()).load("nqn.example", &settings), Some(shown));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(ShownDiskFile::open(path).load("nqn.example", &settings), None);
    }
}
