//! The associations under which writes may be on their way, written down beside the vhost-user socket. A daemon that was
//! killed cannot lift their fences; the one that follows it reads here how long requests have to wait.
//!
//! The file is there from the first association to the daemon's orderly end. It is replaced as a whole, and is on the disk before
//! the first command of an association leaves. After a reboot it counts as well, if its directory outlives that.
//!
//! A lock beside it, as long as a daemon serves the disk: of two that share a handed-over socket the second one would read the
//! record of associations that still write.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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
    /// What was left when it was opened is of this one.
    namespace_before: Option<NamespaceName>,
    /// Of what is written from now on, once it is known.
    namespace: Arc<OnceLock<NamespaceName>>,
    /// `None` after the end, when nothing is written any more.
    kept: Arc<Mutex<Option<Kept>>>,
}

#[derive(Debug)]
struct Kept {
    associations: Associations,
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
    /// What they wrote to. A guest that comes back repeats what it had in flight there, and nowhere else. Versions before this one
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
    /// What is left in it of who had the disk before.
    inherited: Option<RecordedAssociation>,
}

impl LeftFence {
    /// Of a disk that has only read: it has left nothing itself, though others over its paths may have.
    pub(crate) fn without_its_own(self) -> Option<Self> {
        let association = self.inherited.clone()?;
        Some(Self { association, ..self })
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

    /// What the disk at this position writes to, for good; its record says so from the next change on.
    pub(crate) fn set_namespace(&self, disk: usize, namespace: NamespaceName) {
        self.0[disk].namespace.get_or_init(|| namespace);
    }

    /// What the disk at this position was before, if that is another one and has left something there.
    pub(crate) fn other_namespace(&self, disk: usize, namespace: &NamespaceName) -> Option<NamespaceName> {
        self.0[disk].namespace_before.clone().filter(|before| !before.is_same(namespace))
    }

    /// The file of the disk at this position.
    pub(crate) fn file(&self, disk: usize) -> &Path {
        &self.0[disk].file
    }

    /// See [`FenceRecord::end`]; by disk.
    pub(crate) fn end(&self, in_doubt: bool, inherited_left: Duration) -> Vec<Option<LeftFence>> {
        self.0.iter().map(|record| record.end(in_doubt, inherited_left)).collect()
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
        let fence = longest.as_ref().map(|longest| {
            let in_full = Duration::from_millis(longest.fence_ms);
            // Who has written down that it leaves has closed its sockets before.
            let Some(left) = &left else { return in_full + EXIT_MAX };
            incarnation.remains(left).map_or(in_full, |left| left.min(in_full))
        });
        let associations = longest.into_iter().map(|left| (Key::Inherited, left)).collect();
        let kept = Arc::new(Mutex::new(Some(Kept { associations, _lock: lock })));
        let incarnation = incarnation.clone();
        Ok((Self { file, incarnation, namespace_before, namespace: Arc::default(), kept }, fence))
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
    /// Of the fences that it has inherited so much is left: who restarts it again and again waits for them once. The longest fence that
    /// whoever writes to the same has to wait for.
    pub(crate) fn end(&self, in_doubt: bool, inherited_left: Duration) -> Option<LeftFence> {
        let Kept { mut associations, _lock } = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        if !in_doubt {
            associations.retain(|key, _| *key == Key::Inherited);
        }
        let inherited_ms = inherited_left.as_millis() as u64;
        // The moment that a killed process takes to go is left as well; whoever opens the record counts it anew.
        let left = associations.iter().map(|(key, left)| match key {
            Key::Inherited => RecordedAssociation { fence_ms: inherited_ms, ..left.clone() },
            Key::Own(..) => left.clone(),
        });
        let left = longest(left.collect()).filter(|left| left.fence_ms > 0);
        let inherited = associations.get(&Key::Inherited).filter(|_| inherited_ms > 0);
        let inherited = inherited.map(|left| RecordedAssociation { fence_ms: inherited_ms, ..left.clone() });
        if let Some(inherited) = associations.get_mut(&Key::Inherited) {
            inherited.fence_ms = inherited.fence_ms.min(inherited_ms);
        }
        let mut content = self.content(&associations);
        let fence = Duration::from_millis(left.as_ref().map_or(0, |left| left.fence_ms));
        content.left = Some(self.incarnation.leaves(fence));
        if let Err(error) = write(&self.file, &content) {
            tracing::warn!(file = %self.file.display(), %error, "fence record stays as it is");
        }
        left.map(|association| LeftFence { association, namespace: content.namespace, inherited })
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

    /// A disk can take a while to say that it has something.
    async fn change(&self, change: impl FnOnce(&mut Associations) + Send + 'static) -> Result<(), WriteError> {
        let record = self.clone();
        let written = tokio::task::spawn_blocking(move || record.change_now(change));
        let written = written.await.unwrap_or_else(|failed| Err(io::Error::other(failed)));
        written.map_err(|source| WriteError { file: self.file.clone(), source })
    }

    fn change_now(&self, change: impl FnOnce(&mut Associations)) -> io::Result<()> {
        // Held until it is written, so that the last one to change it is the last one to write it.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Kept { associations, .. }) = &mut *kept else { return Ok(()) };
        change(associations);
        write(&self.file, &self.content(associations))
    }

    fn content(&self, associations: &Associations) -> Content {
        // What was left counts as long as it is there: who had it may come back.
        let before = self.namespace_before.as_ref().filter(|_| associations.contains_key(&Key::Inherited));
        let namespace = before.or(self.namespace.get()).cloned();
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
    if content.associations.is_empty() {
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
mod tests {
    use super::*;

    const A: PathId = PathId(0);
    const B: PathId = PathId(1);

    fn association(fence_ms: u64) -> RecordedAssociation {
        RecordedAssociation { path: "tcp://127.0.0.1:4420".into(), cntlid: 7, fence_ms }
    }

    /// By a daemon that nobody has seen before.
    fn open(socket: &Path) -> Result<(FenceRecord, Option<Duration>), RecordError> {
        FenceRecord::open(&Incarnation::begin(), socket)
    }

    fn waits(left: Option<LeftFence>) -> Option<u64> {
        left.map(|left| left.association.fence_ms)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// The longest fence that a daemon would leave if it were killed now, in ms.
    fn left(socket: &Path) -> Option<u64> {
        longest(read(&beside(socket, ".fence")).unwrap().associations).map(|left| left.fence_ms)
    }

    #[test]
    fn the_next_daemon_finds_the_longest_fence_of_what_was_not_lifted() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let (record, inherited) = open(&socket).unwrap();
        assert_eq!(inherited, None);
        run(async {
            record.add(A, Epoch(1), association(11_000)).await.unwrap();
            record.add(B, Epoch(1), association(5_000)).await.unwrap();
            assert_eq!(left(&socket), Some(11_000));
            record.add(A, Epoch(2), association(2_000)).await.unwrap();
            record.remove(A, Epoch(1)).await.unwrap();
            assert_eq!(left(&socket), Some(5_000));
        });
        drop(record);
        // It is killed, and so is the next one: what the first one left is not forgotten.
        let (second, inherited) = open(&socket).unwrap();
        assert_eq!(inherited, Some(Duration::from_millis(5_500)));
        run(second.add(A, Epoch(1), association(3_000))).unwrap();
        assert_eq!(left(&socket), Some(5_000));
        run(second.remove_inherited()).unwrap();
        assert_eq!(left(&socket), Some(3_000));
        second.end(false, Duration::ZERO);
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
            let (record, _) = open(&socket).unwrap();
            run(record.add(A, Epoch(1), association(4_000))).unwrap();
            run(record.add(B, Epoch(1), association(if life == 0 { 9_000 } else { 5_000 }))).unwrap();
        }
        assert_eq!(left(&socket), Some(9_000));
        assert_eq!(read(&place.path().join("disk.sock.fence")).unwrap().associations.len(), 3);
    }

    #[test]
    fn an_end_before_the_inherited_fences_leaves_them_to_the_next() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        run(open(&socket).unwrap().0.add(A, Epoch(1), association(5_000))).unwrap();
        for (waited_for, is_left) in [(9_000, 5_000), (3_000, 3_000), (4_000, 3_000)] {
            let (record, _) = open(&socket).unwrap();
            run(record.add(B, Epoch(1), association(8_000))).unwrap();
            record.end(false, Duration::from_millis(waited_for));
            assert_eq!(left(&socket), Some(is_left), "of its own nothing");
        }
    }

    #[test]
    fn of_fences_that_others_left_the_longest_counts() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let (record, _) = open(&socket).unwrap();
        for (also, longest) in [(4_000, 4_000), (3_000, 4_000), (5_000, 5_000)] {
            record.inherit(association(also)).unwrap();
            assert_eq!(left(&socket), Some(longest));
        }
        // Whoever has the disk next waits for what is left of it, and so does who else writes to the same.
        let left_behind = waits(record.end(false, Duration::from_secs(2)));
        assert_eq!((left_behind, left(&socket)), (Some(2_000), Some(2_000)));
        // Of one that has ended in order no more than it says.
        let (record, inherited) = open(&socket).unwrap();
        let left_behind = waits(record.end(false, inherited.unwrap()));
        assert_eq!((left_behind, left(&socket)), (Some(2_000), Some(2_000)));
    }

    #[test]
    fn an_end_in_doubt_leaves_its_own_to_the_next() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let (record, _) = open(&socket).unwrap();
        run(record.add(A, Epoch(1), association(5_000))).unwrap();
        assert_eq!(waits(record.end(true, Duration::ZERO)), Some(5_000));
        // Nor does what still ends change it: it is the next one's.
        run(record.remove(A, Epoch(1))).unwrap();
        assert_eq!(open(&socket).unwrap().1, Some(Duration::from_secs(5)));
    }

    #[test]
    fn of_what_a_daemon_has_left_itself_it_waits_for_the_rest() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let daemon = Incarnation::begin();
        let leave = |fence_ms| {
            let (record, inherited) = FenceRecord::open(&daemon, &socket).unwrap();
            run(record.add(A, Epoch(1), association(fence_ms))).unwrap();
            record.end(true, inherited.unwrap_or_default());
        };
        leave(1);
        std::thread::sleep(Duration::from_millis(3));
        // There is something, and nothing to wait for.
        assert_eq!(FenceRecord::open(&daemon, &socket).unwrap().1, Some(Duration::ZERO));
        leave(60_000);
        let rest = FenceRecord::open(&daemon, &socket).unwrap().1.unwrap();
        assert!(rest > Duration::from_secs(30) && rest <= Duration::from_millis(60_001), "{rest:?}");
        assert_eq!(open(&socket).unwrap().1, Some(Duration::from_secs(60)), "of another one");
        // One that had it in between, and was killed.
        run(open(&socket).unwrap().0.add(B, Epoch(1), association(70_000))).unwrap();
        assert_eq!(FenceRecord::open(&daemon, &socket).unwrap().1, Some(Duration::from_millis(70_500)));
    }

    #[test]
    fn a_fence_that_a_daemon_has_seen_pass_costs_the_next_one_nothing_more() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let fence = |fence_ms| {
            let (record, _) = open(&socket).unwrap();
            run(record.add(A, Epoch(1), association(fence_ms))).unwrap();
            record.end(true, Duration::ZERO);
            record
        };
        fence(60_000).expire().unwrap();
        assert_eq!(left(&socket), Some(60_000), "it is not over");
        fs::remove_file(place.path().join("disk.sock.fence")).unwrap();
        let record = fence(1);
        std::thread::sleep(Duration::from_millis(3));
        // Somebody has the disk.
        let (other, _) = open(&socket).unwrap();
        record.expire().unwrap();
        assert_eq!(left(&socket), Some(1));
        drop(other);
        record.expire().unwrap();
        assert_eq!(left(&socket), Some(0), "and it still says whose it was");
        assert_eq!(open(&socket).unwrap().1, Some(Duration::ZERO), "and nobody waits");
        // What somebody else has left meanwhile counts.
        fence(5_000);
        record.expire().unwrap();
        assert_eq!(left(&socket), Some(5_000));
    }

    #[test]
    fn with_the_last_fence_the_file_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let (record, _) = open(&place.path().join("disk.sock")).unwrap();
        run(record.add(A, Epoch(1), association(1))).unwrap();
        run(record.remove(A, Epoch(1))).unwrap();
        record.end(false, Duration::ZERO);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    /// A directory that a front-end's user may write to has whatever that user puts there.
    #[test]
    fn a_lock_that_leads_elsewhere_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (socket, other) = (place.path().join("disk.sock"), place.path().join("other"));
        fs::write(&other, "what somebody needs").unwrap();
        std::os::unix::fs::symlink(&other, place.path().join("disk.sock.fence.lock")).unwrap();
        let opened = open(&socket);
        assert_eq!(fs::read_to_string(&other).unwrap(), "what somebody needs");
        assert!(matches!(opened, Err(RecordError::Lock(LockError::Cannot { .. }))));
    }

    #[test]
    fn a_fence_that_none_can_be_is_refused_and_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let (socket, file) = (place.path().join("disk.sock"), place.path().join("disk.sock.fence"));
        let holds = |fence_ms: u64| {
            let associations = vec![association(5), association(fence_ms)];
            fs::write(&file, serde_json::to_vec(&Content { associations, ..Content::default() }).unwrap()).unwrap();
            open(&socket).map(|(_, inherited)| inherited)
        };
        // The longest that a daemon may have written.
        for fence_ms in [3 * 6_553_500 + 65_535, FENCE_MAX_MS] {
            assert_eq!(holds(fence_ms).unwrap(), Some(Duration::from_millis(fence_ms) + EXIT_MAX));
        }
        for fence_ms in [FENCE_MAX_MS + 1, u64::MAX] {
            let error = holds(fence_ms).unwrap_err().to_string();
            let said = format!("{}: fence_ms: {fence_ms} is longer than 604800000, a week,", file.display());
            assert!(error.starts_with(&said) && error.ends_with("remove the file"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_read_or_written_is_said() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let file = place.path().join("disk.sock.fence");
        let name = file.display().to_string();
        fs::write(&file, "{\"associations\": 3}").unwrap();
        let error = open(&socket).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name}: is no fence record: ")) && error.ends_with("remove it"), "{error}");
        fs::write(&file, vec![b' '; LARGEST_BYTES as usize + 1]).unwrap();
        let error = open(&socket).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name}: cannot be read: ")), "{error}");
        fs::remove_file(&file).unwrap();
        let (record, _) = open(&socket).unwrap();
        drop(place);
        let error = run(record.add(A, Epoch(1), association(1))).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write {name}, ")), "{error}");
    }
}
