//! The fence record ([`Record`]) as a file next to the vhost-user socket.
//!
//! The file exists from the first association until the daemon's orderly end. It is replaced as a whole, and is on
//! disk before the first command of an association is sent. It counts after a reboot too, if its directory outlives
//! that.
//!
//! A daemon holds a lock, a file next to the record, while it serves the disk. Without the lock, the second of two
//! daemons that share an activation socket would read the record of associations that still write.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use monotonic::{Duration, Instant};
use mpath_core::{Epoch, PathId};
use mpath_lifecycle::{
    AssociationId, DaemonRun, DiskShutdown, FENCE_MAX, InheritedFence, NamespaceName, Record, RecordContent,
    RecordedAssociation, RemainingFence,
};
use uuid::Uuid;

use crate::disk_files::file::{self, with_suffix};
use crate::disk_files::history_file::HistoryFile;
use crate::disk_files::lock::{Lock, LockError};
use crate::disk_files::shown_disk::ShownDiskFile;
use crate::disk_files::state_file::StateFile;

/// A daemon that ends releases the lock once its paths are closed, a moment after its socket.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// The fence record of one disk.
#[derive(Clone, Debug)]
pub(crate) struct FenceRecord {
    file: PathBuf,
    /// The run of this daemon.
    daemon_run: DaemonRun,
    /// The record as it was found.
    found: Arc<Record>,
    /// The parts of it that the operator has declared void.
    voided: Arc<Voided>,
    /// The namespace to be written, once it is known.
    namespace: Arc<OnceLock<NamespaceName>>,
    /// The disk as front-ends were shown it, in a file of its own.
    shown: Arc<ShownDiskFile>,
    /// Hints for the next daemon, in a file of their own.
    state: Arc<StateFile>,
    history: Arc<HistoryFile>,
    /// `None` after the end, when nothing more is written.
    kept: Arc<Mutex<Option<OpenRecord>>>,
}

#[derive(Debug, Default)]
struct Voided {
    guest: AtomicBool,
    lost_writes: AtomicBool,
}

#[derive(Debug)]
struct OpenRecord {
    record: Record,
    /// The file names the disk's namespace.
    is_named: bool,
    _lock: Lock,
}

/// Why the record of an earlier daemon cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(
        "cannot read the fence record {}: {source}; it lists writes of an earlier daemon that may still be executed; remove it once \
         three times the disk's keep-alive timeout plus the controllers' quiesce time have passed since that daemon ended",
        file.display()
    )]
    Read { file: PathBuf, source: io::Error },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(
        "{} is not a fence record: {source}; remove it once three times the disk's keep-alive timeout plus the \
         controllers' quiesce time have passed since the last daemon ended",
        file.display()
    )]
    Content { file: PathBuf, source: serde_json::Error },
    #[error(
        "{}: `fence_ms` {fence_ms} is longer than any fence: the limit is {}, one week; remove the file once three times \
         the disk's keep-alive timeout plus the controllers' quiesce time have passed since the last daemon ended",
        file.display(),
        FENCE_MAX.as_millis()
    )]
    FenceTooLong { file: PathBuf, fence_ms: u64 },
}

/// The record cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the fence record {}: {source}; without it, late writes of a killed daemon could overwrite newer data", file.display())]
pub(crate) struct WriteError {
    file: PathBuf,
    source: io::Error,
}

/// The record cannot be updated after its fence has passed.
#[derive(Debug, thiserror::Error)]
enum ExpireError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The records of disks that share their paths. All of them have the same associations, because the next daemon may
/// serve one disk without the others.
#[derive(Clone, Debug)]
pub(crate) struct FenceRecords(Vec<FenceRecord>);

impl FenceRecords {
    /// Opens the records of the disks with these vhost-user sockets. Also returns the fence that they wait for.
    pub(crate) fn open<'a>(
        sockets: impl Iterator<Item = &'a Path>,
    ) -> Result<(Self, Option<InheritedFence>), RecordError> {
        let opened = sockets.map(|socket| FenceRecord::open(daemon_run(), socket));
        let (records, fences): (_, Vec<_>) = opened.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        Ok((Self(records), InheritedFence::longest(Instant::now(), fences)))
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
        // A failure does not stop the others.
        let mut result = Ok(());
        for record in &self.0 {
            result = record.remove(path, epoch).await.and(result);
        }
        result
    }

    /// See [`FenceRecord::remove_inherited`].
    pub(crate) async fn remove_inherited(&self, disk: usize) -> Result<(), WriteError> {
        self.0[disk].remove_inherited().await
    }

    /// See [`FenceRecord::inherit`].
    pub(crate) fn inherit(&self, disk: usize, association: RecordedAssociation) -> Result<(), WriteError> {
        self.0[disk].inherit(association)
    }

    /// Sets the namespace of the disk at this position, once. The file names it from the next change on, or when
    /// [written](Self::write_namespace).
    pub(crate) fn set_namespace(&self, disk: usize, namespace: NamespaceName) {
        self.0[disk].namespace.get_or_init(|| namespace);
    }

    /// See [`FenceRecord::write_namespace`].
    pub(crate) async fn write_namespace(&self, disk: usize) -> Result<(), WriteError> {
        self.0[disk].write_namespace().await
    }

    /// Whether an earlier daemon has left anything for the disk at this position. A front-end may then come back with
    /// requests in flight.
    pub(crate) fn has_predecessor(&self, disk: usize) -> bool {
        self.0[disk].found.has_predecessor()
    }

    /// The earlier namespace of the disk at this position, if an earlier daemon has left anything.
    pub(crate) fn previous_namespace(&self, disk: usize) -> Option<&NamespaceName> {
        let FenceRecord { found, voided, .. } = &self.0[disk];
        found.previous_namespace().filter(|_| !voided.guest.load(Ordering::SeqCst))
    }

    /// Removes durably the guest that the disk at this position waits for, and the losses that it has to report.
    pub(crate) async fn forget_guest(&self, disk: usize, with_lost_writes: bool) -> Result<(), WriteError> {
        self.0[disk].forget_guest(with_lost_writes).await
    }

    /// The disk at this position as front-ends were shown it.
    pub(crate) fn shown(&self, disk: usize) -> &Arc<ShownDiskFile> {
        &self.0[disk].shown
    }

    /// The state file of the disk at this position.
    pub(crate) fn state(&self, disk: usize) -> &Arc<StateFile> {
        &self.0[disk].state
    }

    /// The history of the disk at this position.
    pub(crate) fn history(&self, disk: usize) -> &Arc<HistoryFile> {
        &self.0[disk].history
    }

    /// Removes the files of the disk at this position that describe it, because the disk is removed. Blocks.
    pub(crate) fn forget_files(&self, disk: usize) {
        self.0[disk].shown.forget();
        self.0[disk].state.forget();
    }

    /// The file of the disk at this position.
    pub(crate) fn file(&self, disk: usize) -> &Path {
        &self.0[disk].file
    }

    /// Whether an earlier daemon of the disk at this position lost writes to this namespace that no flush has
    /// reported.
    pub(crate) fn has_lost_writes(&self, disk: usize, namespace: &NamespaceName) -> bool {
        self.lost_writes(disk).is_some_and(|of| of.is_same(namespace))
    }

    /// The namespace of writes that an earlier daemon of the disk at this position lost and that no flush has reported.
    pub(crate) fn lost_writes(&self, disk: usize) -> Option<&NamespaceName> {
        let FenceRecord { found, voided, .. } = &self.0[disk];
        found.lost_writes().filter(|_| !voided.lost_writes.load(Ordering::SeqCst))
    }

    /// See [`FenceRecord::end`]; by disk.
    pub(crate) fn end(&self, leaving: &[DiskShutdown]) -> Vec<Option<RemainingFence>> {
        self.0.iter().zip(leaving).map(|(record, leaving)| record.end(*leaving)).collect()
    }

    /// See [`FenceRecord::expire`].
    pub(crate) fn expire(&self) {
        for record in &self.0 {
            if let Err(error) = record.expire() {
                tracing::warn!(file = %record.file.display(), %error, "cannot update the fence record");
            }
        }
    }
}

impl FenceRecord {
    /// Opens the record of the disk with this vhost-user socket. Also returns how long earlier fences still take, as
    /// [`Record::open`] does. Blocks until no other daemon holds the record, for at most ten seconds.
    fn open(daemon_run: &DaemonRun, socket: &Path) -> Result<(Self, Option<Duration>), RecordError> {
        let file = with_suffix(socket, ".fence");
        let lock = Lock::wait_for(with_suffix(&file, ".lock"), LOCK_WAIT)?;
        let content = read(&file)?;
        let is_named = content.namespace.is_some();
        let (record, fence) = Record::open(content, daemon_run, Instant::now());
        let found = Arc::new(record.clone());
        let kept = Arc::new(Mutex::new(Some(OpenRecord { record, is_named, _lock: lock })));
        let shown = Arc::new(ShownDiskFile::open(with_suffix(socket, ".shown")));
        let state = Arc::new(StateFile::open(socket));
        let history = Arc::new(HistoryFile::new(socket));
        let (daemon_run, namespace, voided) = (daemon_run.clone(), Arc::default(), Arc::default());
        Ok((Self { file, daemon_run, found, voided, namespace, shown, state, history, kept }, fence))
    }

    /// Records an association durably.
    pub(crate) async fn add(
        &self,
        path: PathId,
        epoch: Epoch,
        association: RecordedAssociation,
    ) -> Result<(), WriteError> {
        self.change(move |record| record.add(AssociationId { path, epoch }, association)).await
    }

    /// Removes an association whose fence is lifted.
    pub(crate) async fn remove(&self, path: PathId, epoch: Epoch) -> Result<(), WriteError> {
        self.change(move |record| record.remove(AssociationId { path, epoch })).await
    }

    /// Removes the inherited fences, which are lifted.
    pub(crate) async fn remove_inherited(&self) -> Result<(), WriteError> {
        self.change(Record::remove_inherited).await
    }

    async fn forget_guest(&self, with_lost_writes: bool) -> Result<(), WriteError> {
        self.change(move |record| {
            record.forget_guest();
            if with_lost_writes {
                record.forget_lost_writes();
            }
        })
        .await?;
        self.voided.guest.store(true, Ordering::SeqCst);
        self.voided.lost_writes.fetch_or(with_lost_writes, Ordering::SeqCst);
        Ok(())
    }

    /// Records the disk's namespace durably, unless the file names it already. The path that reported it may have
    /// failed for this disk.
    pub(crate) async fn write_namespace(&self) -> Result<(), WriteError> {
        let is_named = |kept: &Option<OpenRecord>| kept.as_ref().is_none_or(|kept| kept.is_named);
        self.write(move |record| {
            if is_named(&record.kept()) {
                return Ok(());
            }
            record.change_now(|_| {})
        })
        .await
    }

    /// Records durably a fence that another disk left on this disk's namespace. Blocks.
    pub(crate) fn inherit(&self, association: RecordedAssociation) -> Result<(), WriteError> {
        let inherited = self.change_now(|record| record.inherit(association));
        inherited.map_err(|source| WriteError { file: self.file.clone(), source })
    }

    /// Closes the record at the shutdown of the disk, when all sockets are closed, as [`Record::end`] does. Returns
    /// the longest fence that other writers of the namespace have to wait for.
    pub(crate) fn end(&self, leaving: DiskShutdown) -> Option<RemainingFence> {
        let OpenRecord { record, _lock, .. } = self.kept().take()?;
        let (namespace, daemon_run) = (self.namespace.get(), &self.daemon_run);
        let (content, left) = record.end(namespace, leaving, daemon_run, Instant::now());
        if let Err(error) = write(&self.file, &content) {
            tracing::warn!(file = %self.file.display(), %error, "cannot update the fence record");
        }
        left
    }

    /// Updates the file if the fence left at the end has passed, so that no daemon waits for it. Does nothing if
    /// another daemon holds the record. Blocks.
    fn expire(&self) -> Result<(), ExpireError> {
        if !self.file.exists() {
            return Ok(());
        }
        let _lock = match Lock::wait_for(with_suffix(&self.file, ".lock"), Duration::ZERO) {
            Ok(lock) => lock,
            Err(LockError::Held { .. }) => return Ok(()),
            Err(error) => return Err(RecordError::from(error).into()),
        };
        let mut content = read(&self.file)?;
        if !content.expire(&self.daemon_run, Instant::now()) {
            return Ok(());
        }
        write(&self.file, &content).map_err(|source| WriteError { file: self.file.clone(), source })?;
        Ok(())
    }

    async fn change(&self, change: impl FnOnce(&mut Record) + Send + 'static) -> Result<(), WriteError> {
        self.write(move |record| record.change_now(change)).await
    }

    /// Runs `write` on a blocking thread. Writing to disk can take a while with `kept` locked, and the control thread
    /// has to send keep-alives.
    async fn write(&self, write: impl FnOnce(&Self) -> io::Result<()> + Send + 'static) -> Result<(), WriteError> {
        let record = self.clone();
        let written = tokio::task::spawn_blocking(move || write(&record));
        let written = written.await.unwrap_or_else(|failed| Err(io::Error::other(failed)));
        written.map_err(|source| WriteError { file: self.file.clone(), source })
    }

    /// Blocks while the record is being written.
    fn kept(&self) -> MutexGuard<'_, Option<OpenRecord>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_now(&self, change: impl FnOnce(&mut Record)) -> io::Result<()> {
        // Held until it is written, so that changes are written in their order.
        let mut kept = self.kept();
        let Some(OpenRecord { record, is_named, .. }) = &mut *kept else { return Ok(()) };
        change(record);
        let content = record.content(self.namespace.get());
        write(&self.file, &content)?;
        *is_named = content.namespace.is_some();
        Ok(())
    }
}

/// The run of this process.
fn daemon_run() -> &'static DaemonRun {
    static THIS: LazyLock<DaemonRun> = LazyLock::new(begin);
    &THIS
}

fn begin() -> DaemonRun {
    DaemonRun::new(Uuid::new_v4().to_string(), Instant::now())
}

fn read(file: &Path) -> Result<RecordContent, RecordError> {
    let error = |source| RecordError::Read { file: file.to_owned(), source };
    let Some(text) = file::read(file).map_err(error)? else { return Ok(RecordContent::default()) };
    let content: RecordContent =
        serde_json::from_slice(&text).map_err(|source| RecordError::Content { file: file.to_owned(), source })?;
    match content.associations.iter().find(|left| left.fence_ms > FENCE_MAX.as_millis()) {
        Some(left) => Err(RecordError::FenceTooLong { file: file.to_owned(), fence_ms: left.fence_ms }),
        None => Ok(content),
    }
}

/// Replaces the file, or removes it if there is nothing to record. The directory is synced when this returns.
fn write(file: &Path, content: &RecordContent) -> io::Result<()> {
    if content.is_empty() { file::remove(file) } else { file::replace(file, content) }
}

#[cfg(test)]
mod tests;
