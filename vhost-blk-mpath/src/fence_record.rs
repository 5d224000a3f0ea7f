//! The associations under which writes may be on their way, written down beside the vhost-user socket. A daemon that was
//! killed cannot lift their fences; the one that follows it reads here how long requests have to wait.
//!
//! The file is there from the first association to the daemon's orderly end. It is replaced as a whole, and is on the disk before
//! the first command of an association leaves. After a reboot it counts as well, if its directory outlives that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mpath_core::{Epoch, PathId};
use serde::{Deserialize, Serialize};

/// No record is as large: 64 paths, a few associations of each that wait for their fence, and one of former daemons.
const LARGEST_BYTES: u64 = 1 << 20;
/// A process is gone for others a moment before the kernel has closed all of its sockets.
const EXIT_MAX: Duration = Duration::from_millis(500);

/// The record of one disk.
#[derive(Clone, Debug)]
pub(crate) struct FenceRecord {
    file: PathBuf,
    /// `None` after the end, when nothing is written any more.
    associations: Arc<Mutex<Option<Associations>>>,
}

type Associations = BTreeMap<Key, RecordedAssociation>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// The longest that daemons before this one have left.
    Inherited,
    Own(PathId, Epoch),
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    associations: Vec<RecordedAssociation>,
}

/// What is written down of an association.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedAssociation {
    /// The path's address, for people.
    pub(crate) path: String,
    /// The controller, for people.
    pub(crate) cntlid: u16,
    /// From the end of its sockets to the moment after which its controller executes nothing of it.
    pub(crate) fence_ms: u64,
}

/// Why the record of an earlier daemon cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(
        "{}: cannot be read: {source}; it tells which writes of an earlier daemon may still be on their way: once twice the keep-alive time-out of the disk has passed since that ended, remove it",
        file.display()
    )]
    Read { file: PathBuf, source: io::Error },
    #[error(
        "{}: is no fence record: {source}; once twice the keep-alive time-out of the disk has passed since the last daemon ended, remove it",
        file.display()
    )]
    Content { file: PathBuf, source: serde_json::Error },
}

/// The record cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}, without which a killed daemon's writes could overwrite newer data: {source}", file.display())]
pub(crate) struct WriteError {
    file: PathBuf,
    source: io::Error,
}

/// The records of disks that share their paths. Each says the same: the next daemon may have the disk without the others.
#[derive(Clone, Debug)]
pub(crate) struct FenceRecords(Vec<FenceRecord>);

impl FenceRecords {
    /// Those of the disks with these vhost-user sockets, and how long the fences take that an earlier daemon left.
    pub(crate) fn open<'a>(sockets: impl Iterator<Item = &'a Path>) -> Result<(Self, Option<Duration>), RecordError> {
        let (mut records, mut longest) = (Vec::new(), None);
        for socket in sockets {
            let (record, fence) = FenceRecord::open(socket)?;
            records.push(record);
            longest = longest.max(fence);
        }
        Ok((Self(records), longest))
    }

    /// See [`FenceRecord::add`].
    pub(crate) async fn add(
        &self,
        path: PathId,
        epoch: Epoch,
        association: RecordedAssociation,
    ) -> Result<(), WriteError> {
        for record in &self.0 {
            record.add(path, epoch, association.clone()).await?;
        }
        Ok(())
    }

    /// See [`FenceRecord::remove`].
    pub(crate) async fn remove(&self, path: PathId, epoch: Epoch) -> Result<(), WriteError> {
        // One that cannot be written does not keep the others from it.
        let mut result = Ok(());
        for record in &self.0 {
            result = record.remove(path, epoch).await.and(result);
        }
        result
    }

    /// See [`FenceRecord::remove_inherited`].
    pub(crate) async fn remove_inherited(&self) -> Result<(), WriteError> {
        let mut result = Ok(());
        for record in &self.0 {
            result = record.remove_inherited().await.and(result);
        }
        result
    }

    /// See [`FenceRecord::end`].
    pub(crate) fn end(&self) {
        self.0.iter().for_each(FenceRecord::end);
    }
}

impl FenceRecord {
    /// The record of the disk with this vhost-user socket, and how long the fences take that an earlier daemon left.
    pub(crate) fn open(socket: &Path) -> Result<(Self, Option<Duration>), RecordError> {
        let mut name = socket.as_os_str().to_owned();
        name.push(".fence");
        let file = PathBuf::from(name);
        let found = read(&file)?;
        // All others are lifted before the longest is. Kept one by one they would add up from one killed daemon to the next.
        let longest = found.into_iter().max_by_key(|association| association.fence_ms);
        let fence = longest.as_ref().map(|left| Duration::from_millis(left.fence_ms) + EXIT_MAX);
        let associations = longest.into_iter().map(|left| (Key::Inherited, left)).collect();
        Ok((Self { file, associations: Arc::new(Mutex::new(Some(associations))) }, fence))
    }

    /// Writes an association down, durably.
    pub(crate) async fn add(
        &self,
        path: PathId,
        epoch: Epoch,
        association: RecordedAssociation,
    ) -> Result<(), WriteError> {
        self.change(move |associations| drop(associations.insert(Key::Own(path, epoch), association))).await
    }

    /// The fence of an association is lifted.
    pub(crate) async fn remove(&self, path: PathId, epoch: Epoch) -> Result<(), WriteError> {
        self.change(move |associations| drop(associations.remove(&Key::Own(path, epoch)))).await
    }

    /// The fences that an earlier daemon left are lifted.
    pub(crate) async fn remove_inherited(&self) -> Result<(), WriteError> {
        self.change(|associations| drop(associations.remove(&Key::Inherited))).await
    }

    /// The daemon ends, and nothing of it can change data any more.
    pub(crate) fn end(&self) {
        let Some(associations) = self.associations.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        // What it has not waited for stays for the next one.
        if !associations.contains_key(&Key::Inherited)
            && let Err(error) = fs::remove_file(&self.file)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = %self.file.display(), %error, "fence record stays");
        }
    }

    /// A disk can take a while to say that it has something.
    async fn change(&self, change: impl FnOnce(&mut Associations) + Send + 'static) -> Result<(), WriteError> {
        let record = self.clone();
        let written = tokio::task::spawn_blocking(move || {
            // Held until it is written, so that the last one to change it is the last one to write it.
            let mut associations = record.associations.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(associations) = &mut *associations else { return Ok(()) };
            change(associations);
            write(&record.file, associations.values().cloned().collect())
        });
        let written = written.await.unwrap_or_else(|failed| Err(io::Error::other(failed)));
        written.map_err(|source| WriteError { file: self.file.clone(), source })
    }
}

fn read(file: &Path) -> Result<Vec<RecordedAssociation>, RecordError> {
    let error = |source| RecordError::Read { file: file.to_owned(), source };
    match fs::metadata(file) {
        Ok(metadata) if metadata.len() <= LARGEST_BYTES => {}
        Ok(_) => return Err(error(io::ErrorKind::FileTooLarge.into())),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(error(source)),
    }
    let text = fs::read(file).map_err(error)?;
    let content: Content =
        serde_json::from_slice(&text).map_err(|source| RecordError::Content { file: file.to_owned(), source })?;
    Ok(content.associations)
}

/// Replaces the file, or removes it if there is nothing to say. In either case the directory is on the disk when this returns.
fn write(file: &Path, associations: Vec<RecordedAssociation>) -> io::Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if associations.is_empty() {
        fs::remove_file(file)
            .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    } else {
        let mut name = file.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        let mut writing = File::create(&new)?;
        serde_json::to_writer_pretty(&mut writing, &Content { associations })?;
        writing.write_all(b"\n")?;
        writing.sync_all()?;
        fs::rename(&new, file)?;
    }
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PathId = PathId(0);
    const B: PathId = PathId(1);

    fn association(fence_ms: u64) -> RecordedAssociation {
        RecordedAssociation { path: "tcp://127.0.0.1:4420".into(), cntlid: 7, fence_ms }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// How long a daemon that starts now has to wait, in ms.
    fn left(socket: &Path) -> Option<u128> {
        FenceRecord::open(socket).unwrap().1.map(|fence| fence.as_millis())
    }

    #[test]
    fn the_next_daemon_finds_the_longest_fence_of_what_was_not_lifted() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let (record, inherited) = FenceRecord::open(&socket).unwrap();
        assert_eq!(inherited, None);
        run(async {
            record.add(A, Epoch(1), association(11_000)).await.unwrap();
            record.add(B, Epoch(1), association(5_000)).await.unwrap();
            assert_eq!(left(&socket), Some(11_500));
            record.add(A, Epoch(2), association(2_000)).await.unwrap();
            record.remove(A, Epoch(1)).await.unwrap();
            assert_eq!(left(&socket), Some(5_500));
        });
        drop(record);
        // It is killed, and so is the next one: what the first one left is not forgotten.
        let (second, inherited) = FenceRecord::open(&socket).unwrap();
        assert_eq!(inherited, Some(Duration::from_millis(5_500)));
        run(second.add(A, Epoch(1), association(3_000))).unwrap();
        assert_eq!(left(&socket), Some(5_500));
        run(second.remove_inherited()).unwrap();
        assert_eq!(left(&socket), Some(3_500));
        second.end();
        // A path that came up at the very end.
        run(second.add(A, Epoch(2), association(3_000))).unwrap();
        assert_eq!(left(&socket), None);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_daemon_killed_again_and_again_leaves_a_record_that_does_not_grow() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        for life in 0..100 {
            let (record, _) = FenceRecord::open(&socket).unwrap();
            run(record.add(A, Epoch(1), association(4_000))).unwrap();
            run(record.add(B, Epoch(1), association(if life == 0 { 9_000 } else { 5_000 }))).unwrap();
        }
        assert_eq!(left(&socket), Some(9_500));
        assert_eq!(read(&place.path().join("disk.sock.fence")).unwrap().len(), 3);
    }

    #[test]
    fn an_end_before_the_inherited_fences_leaves_them_to_the_next() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        run(FenceRecord::open(&socket).unwrap().0.add(A, Epoch(1), association(5_000))).unwrap();
        FenceRecord::open(&socket).unwrap().0.end();
        assert_eq!(left(&socket), Some(5_500));
    }

    #[test]
    fn with_the_last_fence_the_file_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let (record, _) = FenceRecord::open(&place.path().join("disk.sock")).unwrap();
        run(record.add(A, Epoch(1), association(1))).unwrap();
        run(record.remove(A, Epoch(1))).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        record.end();
    }

    #[test]
    fn what_cannot_be_read_or_written_is_said() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let file = place.path().join("disk.sock.fence");
        let name = file.display().to_string();
        fs::write(&file, "{\"associations\": 3}").unwrap();
        let error = FenceRecord::open(&socket).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name}: is no fence record: ")) && error.ends_with("remove it"), "{error}");
        fs::write(&file, vec![b' '; LARGEST_BYTES as usize + 1]).unwrap();
        let error = FenceRecord::open(&socket).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name}: cannot be read: ")), "{error}");
        fs::remove_file(&file).unwrap();
        let (record, _) = FenceRecord::open(&socket).unwrap();
        drop(place);
        let error = run(record.add(A, Epoch(1), association(1))).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write {name}, ")), "{error}");
    }
}
