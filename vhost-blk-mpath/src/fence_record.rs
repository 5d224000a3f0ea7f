//! The associations under which writes may be on their way, written down beside the vhost-user socket. A daemon that was
//! killed cannot lift their fences; the one that follows it reads here how long requests have to wait.
//!
//! The file is there from the first association to the daemon's orderly end. It is replaced as a whole, and is on the disk before
//! the first command of an association leaves. After a reboot it counts as well, if its directory outlives that.
//!
//! It also says what namespace the socket is of, and stays for that alone where a front-end may come back with requests in flight: these
//! are executed on the same namespace, or not at all.
//!
//! A lock beside it, as long as a daemon serves the disk: of two that share a handed-over socket the second one would read the
//! record of associations that still write.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use mpath_core::{Epoch, PathId};
use serde::{Deserialize, Serialize};

use crate::fence_lock::{Lock, LockError};
use crate::incarnation::{Incarnation, LeftBy};
use crate::namespace_name::NamespaceName;

/// No record is as large: 64 paths, a few associations of each that wait for their fence, and one of former daemons.
const LARGEST_BYTES: u64 = 1 << 20;
/// A process is gone for others a moment before the kernel has closed all of its sockets.
const EXIT_MAX: Duration = Duration::from_millis(500);
/// A daemon that ends lets go of the lock when its paths are closed, a moment after it let go of the socket.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// No fence takes as long: three times a keep-alive time-out that a controller has rounded up by the coarsest KAS, 6553.5 s, and the
/// longest CQT are 5.5 hours, and connections of MPTCP may linger for minutes (`net.mptcp.close_timeout`).
const FENCE_MAX_MS: u64 = 7 * 24 * 3_600_000;

/// The record of one disk.
#[derive(Clone, Debug)]
pub(crate) struct FenceRecord {
    file: PathBuf,
    /// Who keeps it.
    incarnation: Incarnation,
    /// Who had the disk before has left something.
    is_left: bool,
    /// And that is of this one.
    namespace_before: Option<NamespaceName>,
    /// Of what is written from now on, once it is known.
    namespace: Arc<OnceLock<NamespaceName>>,
    /// `None` after the end, when nothing is written any more.
    kept: Arc<Mutex<Option<Kept>>>,
}

#[derive(Debug)]
struct Kept {
    associations: Associations,
    /// The file says what the disk is.
    is_named: bool,
    _lock: Lock,
}

type Associations = BTreeMap<Key, RecordedAssociation>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// The longest that daemons before this one have left.
    Inherited,
    Own(PathId, Epoch),
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    associations: Vec<RecordedAssociation>,
    /// What the disk is. A guest that comes back repeats what it had in flight there, and nowhere else. Versions before this one
    /// did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<NamespaceName>,
    /// Who has left it so. None while a daemon keeps it, and of one that was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<LeftBy>,
}

/// The longest fence that a disk leaves when it is not served any more.
#[derive(Debug)]
pub(crate) struct LeftFence {
    /// From now on.
    pub(crate) association: RecordedAssociation,
    /// On what, if a path has told or an earlier daemon has said so.
    pub(crate) namespace: Option<NamespaceName>,
    /// It is the disk's own, and not that of who had it before.
    pub(crate) is_own: bool,
    /// What is left in it of who had the disk before.
    inherited: Option<RecordedAssociation>,
}

impl LeftFence {
    /// Of a disk that has only read: it has left nothing itself, though others over its paths may have.
    pub(crate) fn without_its_own(self) -> Option<Self> {
        let association = self.inherited.clone()?;
        Some(Self { association, is_own: false, ..self })
    }
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
        "{}: fence_ms: {fence_ms} is longer than {FENCE_MAX_MS}, a week, which no fence takes; once three times the keep-alive time-out of the disk and its controllers' quiesce time have passed since the last daemon ended, remove the file",
        file.display()
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
            let (record, fence) = FenceRecord::open(Incarnation::of_this_process(), socket)?;
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
        self.0[disk].is_left
    }

    /// What the disk at this position was before, if that is another one and has left something there.
    pub(crate) fn other_namespace(&self, disk: usize, namespace: &NamespaceName) -> Option<NamespaceName> {
        self.0[disk].namespace_before.clone().filter(|before| !before.is_same(namespace))
    }

    /// The file of the disk at this position.
    pub(crate) fn file(&self, disk: usize) -> &Path {
        &self.0[disk].file
    }

    /// See [`FenceRecord::end`]; by disk, as is `unanswered`.
    pub(crate) fn end(&self, in_doubt: bool, inherited_left: Duration, unanswered: &[bool]) -> Vec<Option<LeftFence>> {
        let records = self.0.iter().zip(unanswered);
        records.map(|(record, unanswered)| record.end(in_doubt, inherited_left, *unanswered)).collect()
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
        let Content { associations, namespace: namespace_before, left } = read(&file)?;
        let longest = longest(associations);
        let is_left = longest.is_some() || namespace_before.is_some();
        let fence = match &longest {
            Some(longest) => {
                let in_full = Duration::from_millis(longest.fence_ms);
                // Who has written down that it leaves has closed its sockets before.
                let remains = |left: &LeftBy| incarnation.remains(left).map_or(in_full, |left| left.min(in_full));
                Some(left.as_ref().map_or(in_full + EXIT_MAX, remains))
            }
            // It was killed while it had no association.
            None => (is_left && left.is_none()).then_some(Duration::ZERO),
        };
        let associations = longest.into_iter().map(|left| (Key::Inherited, left)).collect();
        let is_named = namespace_before.is_some();
        let kept = Arc::new(Mutex::new(Some(Kept { associations, is_named, _lock: lock })));
        let incarnation = incarnation.clone();
        Ok((Self { file, incarnation, is_left, namespace_before, namespace: Arc::default(), kept }, fence))
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
        let inherit = |associations: &mut Associations| {
            let before = associations.remove(&Key::Inherited);
            let longest = longest(before.into_iter().chain([association]).collect());
            associations.extend(longest.map(|association| (Key::Inherited, association)));
        };
        self.change_now(inherit).map_err(|source| WriteError { file: self.file.clone(), source })
    }

    /// The disk is not served any more, and all sockets are closed. Unless there are writes in doubt nothing can change its data any more.
    /// Of the fences that it has inherited so much is left: who restarts it again and again waits for them once. While there may be requests
    /// that its guest was not answered the record says whose the socket is. The longest fence that whoever writes to the same has to wait for.
    pub(crate) fn end(&self, in_doubt: bool, inherited_left: Duration, unanswered: bool) -> Option<LeftFence> {
        let Kept { mut associations, _lock, .. } = self.kept().take()?;
        if !in_doubt {
            associations.retain(|key, _| *key == Key::Inherited);
        }
        let inherited_ms = inherited_left.as_millis() as u64;
        if inherited_ms == 0 && !unanswered {
            associations.remove(&Key::Inherited);
        }
        // The moment that a killed process takes to go is left as well; whoever opens the record counts it anew.
        let left = associations.iter().map(|(key, left)| match key {
            Key::Inherited => (RecordedAssociation { fence_ms: inherited_ms, ..left.clone() }, false),
            Key::Own(..) => (left.clone(), true),
        });
        let left = left.max_by_key(|(left, _)| left.fence_ms).filter(|(left, _)| left.fence_ms > 0);
        let inherited = associations.get(&Key::Inherited).filter(|_| inherited_ms > 0);
        let inherited = inherited.map(|left| RecordedAssociation { fence_ms: inherited_ms, ..left.clone() });
        if let Some(inherited) = associations.get_mut(&Key::Inherited) {
            inherited.fence_ms = inherited.fence_ms.min(inherited_ms);
        }
        let mut content = self.content(&associations);
        let fence = Duration::from_millis(left.as_ref().map_or(0, |(left, _)| left.fence_ms));
        content.left = Some(self.incarnation.leaves(fence));
        if content.associations.is_empty() && !unanswered {
            content.namespace = None;
        }
        if let Err(error) = write(&self.file, &content) {
            tracing::warn!(file = %self.file.display(), %error, "fence record stays as it is");
        }
        left.map(|(association, is_own)| LeftFence { association, namespace: content.namespace, is_own, inherited })
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
        if content.left.as_ref().and_then(|left| self.incarnation.remains(left)) != Some(Duration::ZERO) {
            return Ok(());
        }
        content.associations.iter_mut().for_each(|association| association.fence_ms = 0);
        write(&self.file, &content).map_err(|source| WriteError { file: self.file.clone(), source })?;
        Ok(())
    }

    async fn change(&self, change: impl FnOnce(&mut Associations) + Send + 'static) -> Result<(), WriteError> {
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

    fn change_now(&self, change: impl FnOnce(&mut Associations)) -> io::Result<()> {
        // Held until it is written, so that the last one to change it is the last one to write it.
        let mut kept = self.kept();
        let Some(Kept { associations, is_named, .. }) = &mut *kept else { return Ok(()) };
        change(associations);
        let content = self.content(associations);
        write(&self.file, &content)?;
        *is_named = content.namespace.is_some();
        Ok(())
    }

    fn content(&self, associations: &Associations) -> Content {
        // They are the same, unless this disk is refused: who had it before may come back.
        let namespace = self.namespace_before.as_ref().or(self.namespace.get()).cloned();
        Content { associations: associations.values().cloned().collect(), namespace, left: None }
    }
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// All others are lifted before the longest is. Kept one by one they would add up from one killed daemon to the next.
fn longest(found: Vec<RecordedAssociation>) -> Option<RecordedAssociation> {
    found.into_iter().max_by_key(|association| association.fence_ms)
}

fn read(file: &Path) -> Result<Content, RecordError> {
    let error = |source| RecordError::Read { file: file.to_owned(), source };
    match fs::metadata(file) {
        Ok(metadata) if metadata.len() <= LARGEST_BYTES => {}
        Ok(_) => return Err(error(io::ErrorKind::FileTooLarge.into())),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(Content::default()),
        Err(source) => return Err(error(source)),
    }
    let text = fs::read(file).map_err(error)?;
    let content: Content =
        serde_json::from_slice(&text).map_err(|source| RecordError::Content { file: file.to_owned(), source })?;
    match content.associations.iter().find(|left| left.fence_ms > FENCE_MAX_MS) {
        Some(left) => Err(RecordError::FenceTooLong { file: file.to_owned(), fence_ms: left.fence_ms }),
        None => Ok(content),
    }
}

/// Replaces the file, or removes it if there is nothing to say. In either case the directory is on the disk when this returns.
fn write(file: &Path, content: &Content) -> io::Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if content.associations.is_empty() && content.namespace.is_none() {
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
#[path = "fence_record_tests.rs"]
mod tests;
