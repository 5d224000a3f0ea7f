//! Decides: the next daemon finds what this one knew.
//!
//! The state files next to the fence record and to the API socket: hints of a daemon for the next one, in sections with a name each.
//!
//! Nothing in the file decides about data: a file that is lost or damaged costs time, not correctness. A daemon keeps the sections
//! that it does not know, because another version may have written them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::task::spawn_blocking;

use crate::disk_files::file::{self, LARGEST_BYTES, with_suffix};

/// The format of the file, apart from its sections. A daemon does not use files of other versions.
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Content {
    version: u32,
    #[serde(flatten)]
    sections: Map<String, Value>,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
enum StateFileError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("not a state file: {0}")]
    Content(#[from] serde_json::Error),
    #[error("version {0}, and this daemon knows {VERSION}")]
    Version(u32),
}

/// The state file of a disk or of the daemon.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    /// The content of the file. `None` once the disk is removed, when nothing more is written.
    content: Mutex<Option<Content>>,
}

impl StateFile {
    /// Reads the file next to this socket, of a disk or of the API. A file that cannot be used is reported and counts as empty.
    pub(crate) fn open(socket: &Path) -> Self {
        let path = with_suffix(socket, ".state");
        let content = read(&path).unwrap_or_else(|error| {
            tracing::warn!(file = %path.display(), %error, "cannot use what the earlier daemon has remembered; it is learnt anew");
            empty()
        });
        Self { path, content: Mutex::new(Some(content)) }
    }

    /// A section; `None` if there is none, or if this daemon cannot read it.
    pub(crate) fn get<T: DeserializeOwned>(&self, section: &str) -> Option<T> {
        let value = self.content().as_ref()?.sections.get(section)?.clone();
        let read = serde_json::from_value(value);
        read.inspect_err(|error| tracing::warn!(file = %self.path.display(), section, %error, "cannot read a section"))
            .ok()
    }

    /// Writes a section durably, unless it has that content. If that fails, the file stays as it was, or is as wanted.
    pub(crate) async fn set(self: &Arc<Self>, section: &'static str, value: &impl Serialize) -> io::Result<()> {
        let (file, value) = (Arc::clone(self), serde_json::to_value(value)?);
        // Writing to disk can take a while, and the control thread has to send keep-alives.
        let written = spawn_blocking(move || file.set_now(section, value)).await;
        written.unwrap_or_else(|failed| Err(io::Error::other(failed)))
    }

    /// [`Self::set`] that blocks.
    pub(crate) fn set_now(&self, section: &'static str, value: Value) -> io::Result<()> {
        // Held until the file is written, so that changes are written in their order.
        let mut kept = self.content();
        let Some(content) = &mut *kept else { return Ok(()) };
        if content.sections.get(section) == Some(&value) {
            return Ok(());
        }
        let mut changed = content.clone();
        changed.sections.insert(section.to_owned(), value);
        if serde_json::to_vec_pretty(&changed)?.len() as u64 >= LARGEST_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        file::replace(&self.path, &changed)?;
        *content = changed;
        Ok(())
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file for good, because the disk is removed. Blocks.
    pub(crate) fn forget(&self) {
        *self.content() = None;
        if let Err(error) = file::remove(&self.path) {
            tracing::warn!(file = %self.path.display(), %error, "cannot remove the state of a removed disk; remove the file");
        }
    }

    fn content(&self) -> MutexGuard<'_, Option<Content>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn empty() -> Content {
    Content { version: VERSION, sections: Map::new() }
}

fn read(path: &Path) -> Result<Content, StateFileError> {
    let Some(text) = file::read(path)? else { return Ok(empty()) };
    let content: Content = serde_json::from_slice(&text)?;
    if content.version == VERSION { Ok(content) } else { Err(StateFileError::Version(content.version)) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_section_is_found_again_and_unknown_ones_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let open = || Arc::new(StateFile::open(&socket));
        let file = open();
        assert_eq!((file.get::<u32>("one"), file.path().exists()), (None, false));
        fs::write(file.path(), "{\"version\": 1, \"of-another-version\": [{\"any\": 1}]}").unwrap();
        let file = open();
        file.set("one", &vec![1, 2]).await.unwrap();
        file.set("two", &"text").await.unwrap();
        let found = open();
        assert_eq!((found.get("one"), found.get("two")), (Some(vec![1, 2]), Some("text".to_owned())));
        assert_eq!(found.get::<u32>("one"), None, "of another form");
        assert!(found.get::<Value>("of-another-version").is_some());
        found.forget();
        found.set("one", &3).await.unwrap();
        assert!(!found.path().exists());
    }

    #[tokio::test]
    async fn a_damaged_or_later_file_counts_as_empty_and_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let path = place.path().join("disk.sock.state");
        for text in ["", "{", "[]", "{\"one\": 1}", "{\"version\": 2, \"one\": 1}"] {
            fs::write(&path, text).unwrap();
            let file = Arc::new(StateFile::open(&socket));
            assert_eq!(file.get::<u32>("one"), None, "{text}");
            file.set("one", &7).await.unwrap();
            assert_eq!(StateFile::open(&socket).get("one"), Some(7));
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_stays_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let file = Arc::new(StateFile::open(&socket));
        file.set("one", &1).await.unwrap();
        assert!(file.set("two", &"x".repeat(LARGEST_BYTES as usize)).await.is_err());
        fs::create_dir(place.path().join("disk.sock.state.new")).unwrap();
        assert!(file.set("one", &2).await.is_err());
        assert_eq!(StateFile::open(&socket).get("one"), Some(1));
    }
}
