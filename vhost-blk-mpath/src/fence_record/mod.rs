//! The record of associations ([`Record`]) as a file beside the vhost-user socket.
//!
//! The file is there from the first association to the daemon's orderly end. It is replaced as a whole, and is on the disk before
//! the first command of an association leaves. After a reboot it counts as well, if its directory outlives that.
//!
//! A lock beside it, as long as a daemon serves the disk: of two that share a handed-over socket the second one would read the
//! record of associations that still write.

pub(crate) mod lock;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use mpath_core::{Epoch, PathId};
use mpath_host::{
    AssociationId, FENCE_MAX, Incarnation, Leaving, LeftFence, NamespaceName, Record, RecordContent,
    RecordedAssociation,
};
use uuid::Uuid;

use crate::fence_record::lock::{Lock, LockError};

/// No record is as large: 64 paths, a few associations of each that wait for their fence, and one of former daemons.
const LARGEST_BYTES: u64 = 1 << 20;
/// A daemon that ends lets go of the lock when its paths are closed, a moment after it let go of the socket.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// The record of one disk.
#[derive(Clone, Debug)]
pub(crate) struct FenceRecord {
    file: PathBuf,
    /// Who keeps it.
    incarnation: Incarnation,
    /// As it was found.
    found: Arc<Record>,
    /// Of what is written from now on, once it is known.
    namespace: Arc<OnceLock<NamespaceName>>,
    /// `None` after the end, when nothing is written any more.
    kept: Arc<Mutex<Option<Kept>>>,
}

#[derive(Debug)]
struct Kept {
    record: Record,
    /// The file says what the disk is.
    is_named: bool,
    _lock: Lock,
}

/// Why the record of an earlier daemon cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(
        "{}: cannot be read: {source}; it tells which writes of an earlier daemon may still be on their way: once three times the keep-alive time-out of the disk and its controllers' quiesce time have passed since that ended, remove it",
        file.display()
    )]
    Read { file: PathBuf, source: io::Error },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(
        "{}: is no fence record: {source}; once three times the keep-alive time-out of the disk and its controllers' quiesce time have passed since the last daemon ended, remove it",
        file.display()
    )]
    Content { file: PathBuf, source: serde_json::Error },
    #[error(
        "{}: fence_ms: {fence_ms} is longer than {}, a week, which no fence takes; once three times the keep-alive time-out of the disk and its controllers' quiesce time have passed since the last daemon ended, remove the file",
        file.display(),
        FENCE_MAX.as_millis()
    )]
    FenceTooLong { file: PathBuf, fence_ms: u64 },
}

/// The record cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}, without which a killed daemon's writes could overwrite newer data: {source}", file.display())]
pub(crate) struct WriteError {
    file: PathBuf,
    source: io::Error,
}

/// What was left cannot be brought up to date.
#[derive(Debug, thiserror::Error)]
enum ExpireError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The records of disks that share their paths. Each says the same: the next daemon may have the disk without the others.
#[derive(Clone, Debug)]
pub(crate) struct FenceRecords(Vec<FenceRecord>);

impl FenceRecords {
    /// Those of the disks with these vhost-user sockets, and the longest fence that [`FenceRecord::open`] finds.
    pub(crate) fn open<'a>(sockets: impl Iterator<Item = &'a Path>) -> Result<(Self, Option<Duration>), RecordError> {
        let (mut records, mut longest) = (Vec::new(), None);
        for socket in sockets {
            let (record, fence) = FenceRecord::open(incarnation(), socket)?;
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

    /// See [`FenceRecord::inherit`].
    pub(crate) fn inherit(&self, association: &RecordedAssociation) -> Result<(), WriteError> {
        self.0.iter().try_for_each(|record| record.inherit(association.clone()))
    }

    /// What the disk at this position writes to, for good; its record says so from the next change on, or when it is
    /// [written](Self::write_namespaces).
    pub(crate) fn set_namespace(&self, disk: usize, namespace: NamespaceName) {
        self.0[disk].namespace.get_or_init(|| namespace);
    }

    /// See [`FenceRecord::write_namespace`].
    pub(crate) async fn write_namespaces(&self) -> Result<(), WriteError> {
        for record in &self.0 {
            record.write_namespace().await?;
        }
        Ok(())
    }

    /// Whether who had the disk at this position before has left something: a front-end may come back with requests in flight.
    pub(crate) fn is_left(&self, disk: usize) -> bool {
        self.0[disk].found.is_left()
    }

    /// What the disk at this position was before, if that is another one and has left something there.
    pub(crate) fn other_namespace(&self, disk: usize, namespace: &NamespaceName) -> Option<NamespaceName> {
        self.0[disk].found.namespace_before().filter(|before| !before.is_same(namespace)).cloned()
    }

    /// The file of the disk at this position.
    pub(crate) fn file(&self, disk: usize) -> &Path {
        &self.0[disk].file
    }

    /// Whether who had the disk at this position before has lost writes to this namespace that no flush has reported.
    pub(crate) fn has_lost_writes(&self, disk: usize, namespace: &NamespaceName) -> bool {
        self.0[disk].found.lost_writes().is_some_and(|of| of.is_same(namespace))
    }

    /// See [`FenceRecord::end`]; by disk.
    pub(crate) fn end(&self, leaving: &[Leaving]) -> Vec<Option<LeftFence>> {
        self.0.iter().zip(leaving).map(|(record, leaving)| record.end(*leaving)).collect()
    }

    /// See [`FenceRecord::expire`].
    pub(crate) fn expire(&self) {
        for record in &self.0 {
            if let Err(error) = record.expire() {
                tracing::warn!(file = %record.file.display(), %error, "fence record stays as it is");
            }
        }
    }
}

impl FenceRecord {
    /// The record of the disk with this vhost-user socket, and if who had it before did not end in order, how much longer that one's
    /// fences take: in full those of another daemon, of this one what is left, which may be nothing. Blocks until no other daemon has it, for
    /// ten seconds at most.
    fn open(incarnation: &Incarnation, socket: &Path) -> Result<(Self, Option<Duration>), RecordError> {
        let file = beside(socket, ".fence");
        let lock = Lock::wait_for(beside(&file, ".lock"), LOCK_WAIT)?;
        let content = read(&file)?;
        let is_named = content.namespace.is_some();
        let (record, fence) = Record::open(content, incarnation, Instant::now());
        let found = Arc::new(record.clone());
        let kept = Arc::new(Mutex::new(Some(Kept { record, is_named, _lock: lock })));
        Ok((Self { file, incarnation: incarnation.clone(), found, namespace: Arc::default(), kept }, fence))
    }

    /// Writes an association down, durably.
    pub(crate) async fn add(
        &self,
        path: PathId,
        epoch: Epoch,
        association: RecordedAssociation,
    ) -> Result<(), WriteError> {
        self.change(move |record| record.add(AssociationId { path, epoch }, association)).await
    }

    /// The fence of an association is lifted.
    pub(crate) async fn remove(&self, path: PathId, epoch: Epoch) -> Result<(), WriteError> {
        self.change(move |record| record.remove(AssociationId { path, epoch })).await
    }

    /// The fences that an earlier daemon left are lifted.
    pub(crate) async fn remove_inherited(&self) -> Result<(), WriteError> {
        self.change(Record::remove_inherited).await
    }

    /// Writes down what the disk is, durably, unless the file says so already: a path may have told that came up for other disks only.
    pub(crate) async fn write_namespace(&self) -> Result<(), WriteError> {
        let is_named = |kept: &Option<Kept>| kept.as_ref().is_none_or(|kept| kept.is_named);
        self.write(move |record| {
            if is_named(&record.kept()) {
                return Ok(());
            }
            record.change_now(|_| {})
        })
        .await
    }

    /// Writes down a fence that somebody else has left on what this disk writes to, durably. Blocks.
    pub(crate) fn inherit(&self, association: RecordedAssociation) -> Result<(), WriteError> {
        let inherited = self.change_now(|record| record.inherit(association));
        inherited.map_err(|source| WriteError { file: self.file.clone(), source })
    }

    /// The disk is not served any more, and all sockets are closed. Unless there are writes in doubt nothing can change its data any more.
    /// Of the fences that it has inherited so much is left: who restarts it again and again waits for them once. While there may be requests
    /// that its guest was not answered the record says whose the socket is. The longest fence that whoever writes to the same has to wait for.
    pub(crate) fn end(&self, leaving: Leaving) -> Option<LeftFence> {
        let Kept { record, _lock, .. } = self.kept().take()?;
        let (namespace, incarnation) = (self.namespace.get(), &self.incarnation);
        let (content, left) = record.end(namespace, leaving, incarnation, Instant::now());
        if let Err(error) = write(&self.file, &content) {
            tracing::warn!(file = %self.file.display(), %error, "fence record stays as it is");
        }
        left
    }

    /// The fence that was left at the end may be over: then no daemon has to wait for it, though what was in flight is still to be repeated
    /// nowhere else. Nothing, if somebody has the disk again. Blocks.
    fn expire(&self) -> Result<(), ExpireError> {
        if !self.file.exists() {
            return Ok(());
        }
        let _lock = match Lock::wait_for(beside(&self.file, ".lock"), Duration::ZERO) {
            Ok(lock) => lock,
            Err(LockError::Held { .. }) => return Ok(()),
            Err(error) => return Err(RecordError::from(error).into()),
        };
        let mut content = read(&self.file)?;
        if !content.expire(&self.incarnation, Instant::now()) {
            return Ok(());
        }
        write(&self.file, &content).map_err(|source| WriteError { file: self.file.clone(), source })?;
        Ok(())
    }

    async fn change(&self, change: impl FnOnce(&mut Record) + Send + 'static) -> Result<(), WriteError> {
        self.write(move |record| record.change_now(change)).await
    }

    /// A disk can take a while to say that it has something, and `kept` is locked meanwhile: neither is for the thread that sends keep-alives.
    async fn write(&self, write: impl FnOnce(&Self) -> io::Result<()> + Send + 'static) -> Result<(), WriteError> {
        let record = self.clone();
        let written = tokio::task::spawn_blocking(move || write(&record));
        let written = written.await.unwrap_or_else(|failed| Err(io::Error::other(failed)));
        written.map_err(|source| WriteError { file: self.file.clone(), source })
    }

    /// Blocks while the record is being written.
    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_now(&self, change: impl FnOnce(&mut Record)) -> io::Result<()> {
        // Held until it is written, so that the last one to change it is the last one to write it.
        let mut kept = self.kept();
        let Some(Kept { record, is_named, .. }) = &mut *kept else { return Ok(()) };
        change(record);
        let content = record.content(self.namespace.get());
        write(&self.file, &content)?;
        *is_named = content.namespace.is_some();
        Ok(())
    }
}

/// This process.
fn incarnation() -> &'static Incarnation {
    static THIS: LazyLock<Incarnation> = LazyLock::new(begin);
    &THIS
}

fn begin() -> Incarnation {
    Incarnation::new(Uuid::new_v4().to_string(), Instant::now())
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn read(file: &Path) -> Result<RecordContent, RecordError> {
    let error = |source| RecordError::Read { file: file.to_owned(), source };
    match fs::metadata(file) {
        Ok(metadata) if metadata.len() <= LARGEST_BYTES => {}
        Ok(_) => return Err(error(io::ErrorKind::FileTooLarge.into())),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(RecordContent::default()),
        Err(source) => return Err(error(source)),
    }
    let text = fs::read(file).map_err(error)?;
    let content: RecordContent =
        serde_json::from_slice(&text).map_err(|source| RecordError::Content { file: file.to_owned(), source })?;
    match content.associations.iter().find(|left| u128::from(left.fence_ms) > FENCE_MAX.as_millis()) {
        Some(left) => Err(RecordError::FenceTooLong { file: file.to_owned(), fence_ms: left.fence_ms }),
        None => Ok(content),
    }
}

/// Replaces the file, or removes it if there is nothing to say. In either case the directory is on the disk when this returns.
fn write(file: &Path, content: &RecordContent) -> io::Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if content.is_empty() {
        fs::remove_file(file)
            .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    } else {
        let new = beside(file, ".new");
        // Not through a link that somebody has put there.
        let mut writing =
            File::options().write(true).create(true).truncate(true).custom_flags(libc::O_NOFOLLOW).open(&new)?;
        serde_json::to_writer_pretty(&mut writing, content)?;
        writing.write_all(b"\n")?;
        writing.sync_all()?;
        fs::rename(&new, file)?;
    }
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests;
