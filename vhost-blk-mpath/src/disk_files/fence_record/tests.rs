//! Fence records: what is written, and who waits for it.

use std::fs;

use mpath_lifecycle::{EXIT_MAX, longest_fence};
use nvme_tcp::host::NamespaceIdentity;

use super::*;

const A: PathId = PathId(0);
const B: PathId = PathId(1);

fn association(fence_ms: u64) -> RecordedAssociation {
    RecordedAssociation { path: "tcp://127.0.0.1:4420".into(), cntlid: 7, fence_ms }
}

/// Opens the record as a daemon that has not run before.
fn open(socket: &Path) -> Result<(FenceRecord, Option<Duration>), RecordError> {
    FenceRecord::open(&begin(), socket)
}

fn waits(left: Option<&RemainingFence>) -> Option<u64> {
    left.map(|left| left.association.fence_ms)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// The longest fence, in ms, that a daemon would leave if it were killed now.
fn left(socket: &Path) -> Option<u64> {
    longest_fence(read(&with_suffix(socket, ".fence")).unwrap().associations).map(|left| left.fence_ms)
}

fn leaving(in_doubt: bool, inherited_left: Duration, unanswered: bool) -> DiskShutdown {
    DiskShutdown { in_doubt, inherited_left, unanswered, lost_writes: false }
}

#[test]
fn the_next_daemon_finds_the_longest_fence_not_lifted() {
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
    // Both daemons are killed. The fence of the first one is kept.
    let (second, inherited) = open(&socket).unwrap();
    assert_eq!(inherited, Some(Duration::from_millis(5_500)));
    run(second.add(A, Epoch(1), association(3_000))).unwrap();
    assert_eq!(left(&socket), Some(5_000));
    run(second.remove_inherited()).unwrap();
    assert_eq!(left(&socket), Some(3_000));
    second.end(leaving(false, Duration::ZERO, false));
    // A path came up at the very end.
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
    assert_eq!(read(&place.path().join("disk.sock.fence")).unwrap().associations.len(), 1);
}

#[test]
fn an_end_before_the_inherited_fences_leaves_them_to_the_next() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("disk.sock");
    run(open(&socket).unwrap().0.add(A, Epoch(1), association(5_000))).unwrap();
    for (waited_for, is_left) in [(9_000, 5_000), (3_000, 3_000), (4_000, 3_000)] {
        let (record, _) = open(&socket).unwrap();
        run(record.add(B, Epoch(1), association(8_000))).unwrap();
        record.end(leaving(false, Duration::from_millis(waited_for), false));
        assert_eq!(left(&socket), Some(is_left), "of its own nothing");
    }
}

#[test]
fn the_longest_inherited_fence_counts() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("disk.sock");
    let (record, _) = open(&socket).unwrap();
    for (also, longest) in [(4_000, 4_000), (3_000, 4_000), (5_000, 5_000)] {
        record.inherit(association(also)).unwrap();
        assert_eq!(left(&socket), Some(longest));
    }
    // The next daemon waits for the rest, and so do other writers of the namespace.
    let pending_fences = waits(record.end(leaving(false, Duration::from_secs(2), false)).as_ref());
    assert_eq!((pending_fences, left(&socket)), (Some(2_000), Some(2_000)));
    // After an orderly end the next daemon waits no longer than recorded.
    let (record, inherited) = open(&socket).unwrap();
    let pending_fences = waits(record.end(leaving(false, inherited.unwrap(), false)).as_ref());
    assert_eq!((pending_fences, left(&socket)), (Some(2_000), Some(2_000)));
}

#[test]
fn an_end_with_writes_in_doubt_leaves_its_fence_to_the_next() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("disk.sock");
    let (record, _) = open(&socket).unwrap();
    run(record.add(A, Epoch(1), association(5_000))).unwrap();
    assert_eq!(waits(record.end(leaving(true, Duration::ZERO, false)).as_ref()), Some(5_000));
    // Later changes of the ended daemon are ignored.
    run(record.remove(A, Epoch(1))).unwrap();
    assert_eq!(open(&socket).unwrap().1, Some(Duration::from_secs(5)));
}

/// The disk's own writes count for the disks that share its paths. Inherited fences are on the namespace that the disk
/// reads.
#[test]
fn a_disk_that_only_reads_passes_on_what_it_has_inherited() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("disk.sock");
    let reader = |inherited: Duration| {
        let (record, _) = open(&socket).unwrap();
        run(record.add(B, Epoch(1), association(9_000))).unwrap();
        let left = record.end(leaving(true, inherited, false));
        assert_eq!(waits(left.as_ref()), Some(9_000));
        waits(left.and_then(RemainingFence::inherited_only).as_ref())
    };
    assert_eq!(reader(Duration::ZERO), None);
    fs::remove_file(place.path().join("disk.sock.fence")).unwrap();
    run(open(&socket).unwrap().0.add(A, Epoch(1), association(5_000))).unwrap();
    assert_eq!(reader(Duration::from_secs(3)), Some(3_000));
}

#[test]
fn a_daemon_waits_for_the_rest_of_its_own_fence() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("disk.sock");
    let daemon = begin();
    let leave = |fence_ms| {
        let (record, inherited) = FenceRecord::open(&daemon, &socket).unwrap();
        run(record.add(A, Epoch(1), association(fence_ms))).unwrap();
        record.end(leaving(true, inherited.unwrap_or_default(), false));
    };
    leave(1);
    std::thread::sleep(Duration::from_millis(3).into());
    // There is a fence, and it has passed.
    assert_eq!(FenceRecord::open(&daemon, &socket).unwrap().1, Some(Duration::ZERO));
    leave(60_000);
    let rest = FenceRecord::open(&daemon, &socket).unwrap().1.unwrap();
    assert!(rest > Duration::from_secs(30) && rest <= Duration::from_millis(60_001), "{rest:?}");
    assert_eq!(open(&socket).unwrap().1, Some(Duration::from_secs(60)), "of another one");
    // Another daemon had the disk in between, and was killed.
    run(open(&socket).unwrap().0.add(B, Epoch(1), association(70_000))).unwrap();
    assert_eq!(FenceRecord::open(&daemon, &socket).unwrap().1, Some(Duration::from_millis(70_500)));
}

#[test]
fn a_fence_that_has_passed_does_not_delay_the_next_daemon() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("disk.sock");
    let fence = |fence_ms| {
        let (record, _) = open(&socket).unwrap();
        run(record.add(A, Epoch(1), association(fence_ms))).unwrap();
        record.end(leaving(true, Duration::ZERO, false));
        record
    };
    fence(60_000).expire().unwrap();
    assert_eq!(left(&socket), Some(60_000), "it is not over");
    fs::remove_file(place.path().join("disk.sock.fence")).unwrap();
    let record = fence(1);
    std::thread::sleep(Duration::from_millis(3).into());
    // Another daemon has the disk.
    let (other, _) = open(&socket).unwrap();
    record.expire().unwrap();
    assert_eq!(left(&socket), Some(1));
    drop(other);
    record.expire().unwrap();
    assert_eq!(left(&socket), Some(0), "the record still names the namespace");
    assert_eq!(open(&socket).unwrap().1, Some(Duration::ZERO), "no daemon waits");
    // A fence left by another daemon meanwhile counts.
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
    record.end(leaving(false, Duration::ZERO, false));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

fn namespace(number: u8) -> NamespaceName {
    let known = crate::disk::geometry::tests::controller().namespaces[0].as_ref().unwrap().identity;
    let identity = NamespaceIdentity { nsid: number.into(), uuid: [number; 16], ..known };
    NamespaceName::new("nqn.2026-11.io.example:disk", &identity)
}

/// This holds even if the daemon is killed without an association, for example when all paths are down.
#[test]
fn a_socket_keeps_its_namespace_until_no_guest_can_come_back() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("disk.sock");
    let of = |number| {
        let (record, waits) = open(&socket).unwrap();
        record.namespace.get_or_init(|| namespace(number));
        (record, waits)
    };
    let (first, _) = of(1);
    assert!(!first.found.has_predecessor());
    run(first.add(A, Epoch(1), association(5_000))).unwrap();
    run(first.remove(A, Epoch(1))).unwrap();
    drop(first);
    // No fence is left, but unflushed writes may be anywhere.
    let (killed, waits) = of(1);
    assert_eq!((killed.found.has_predecessor(), waits), (true, Some(Duration::ZERO)));
    run(killed.remove_inherited()).unwrap();
    drop(killed);
    // A refused daemon, with or without an association, changes nothing.
    for has_association in [false, true] {
        let (refused, _) = of(2);
        assert!(refused.found.previous_namespace().is_some_and(|before| before.is_same(&namespace(1))));
        if has_association {
            run(refused.add(B, Epoch(1), association(7_000))).unwrap();
        }
        assert_eq!(waits_after(refused, true), None);
    }
    let (served, waits) = of(1);
    // The refused daemons have flushed nothing.
    assert_eq!((served.found.has_predecessor(), waits), (true, Some(Duration::ZERO)), "the kill is remembered");
    assert_eq!(waits_after(served, false), None);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[allow(clippy::needless_pass_by_value)] // it has ended
fn waits_after(record: FenceRecord, unanswered: bool) -> Option<u64> {
    waits(record.end(leaving(false, Duration::ZERO, unanswered)).as_ref())
}

/// The directory may belong to the front-end's user, who can put anything there.
#[test]
fn a_lock_file_that_is_a_symbolic_link_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (socket, other) = (place.path().join("disk.sock"), place.path().join("other"));
    fs::write(&other, "other content").unwrap();
    std::os::unix::fs::symlink(&other, place.path().join("disk.sock.fence.lock")).unwrap();
    let opened = open(&socket);
    assert_eq!(fs::read_to_string(&other).unwrap(), "other content");
    assert!(matches!(opened, Err(RecordError::Lock(LockError::Cannot { .. }))));
}

#[test]
fn an_impossible_fence_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (socket, file) = (place.path().join("disk.sock"), place.path().join("disk.sock.fence"));
    let holds = |fence_ms: u64| {
        let associations = vec![association(5), association(fence_ms)];
        fs::write(&file, serde_json::to_vec(&RecordContent { associations, ..RecordContent::default() }).unwrap())
            .unwrap();
        open(&socket).map(|(_, inherited)| inherited)
    };
    let fence_max_ms = FENCE_MAX.as_millis();
    // The longest fences that a daemon may write.
    for fence_ms in [3 * 6_553_500 + 65_535, fence_max_ms] {
        assert_eq!(holds(fence_ms).unwrap(), Some(Duration::from_millis(fence_ms) + EXIT_MAX));
    }
    for fence_ms in [fence_max_ms + 1, u64::MAX] {
        let error = holds(fence_ms).unwrap_err().to_string();
        let said =
            format!("{}: `fence_ms` {fence_ms} is longer than any fence: the limit is 604800000,", file.display());
        assert!(error.starts_with(&said) && error.contains("; remove the file once "), "{error}");
    }
}

#[test]
fn unreadable_and_unwritable_records_are_reported() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("disk.sock");
    let file = place.path().join("disk.sock.fence");
    let name = file.display().to_string();
    fs::write(&file, "{\"associations\": 3}").unwrap();
    let error = open(&socket).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{name} is not a fence record: ")) && error.contains("; remove it once "),
        "{error}"
    );
    fs::write(&file, vec![b' '; file::LARGEST_BYTES as usize + 1]).unwrap();
    let error = open(&socket).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read the fence record {name}: ")), "{error}");
    fs::remove_file(&file).unwrap();
    let (record, _) = open(&socket).unwrap();
    drop(place);
    let error = run(record.add(A, Epoch(1), association(1))).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot write the fence record {name}: ")), "{error}");
}

/// The file system is slow, and `kept` is locked meanwhile.
#[test]
fn a_slow_file_system_does_not_block_the_control_thread() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("disk.sock");
    let (record, _) = open(&socket).unwrap();
    let (locked, is_locked) = std::sync::mpsc::channel();
    let (written, is_written) = std::sync::mpsc::channel();
    let writing = record.clone();
    let slow = std::thread::spawn(move || {
        let _kept = writing.kept();
        locked.send(()).unwrap();
        is_written.recv_timeout(Duration::from_secs(10).into()).expect("the control thread continues");
    });
    is_locked.recv().unwrap();
    run(async {
        let changes = async {
            let (name, add) = (record.write_namespace(), record.add(A, Epoch(1), association(1)));
            let changes = tokio::join!(name, add, record.remove(B, Epoch(1)));
            assert!(matches!(changes, (Ok(()), Ok(()), Ok(()))), "{changes:?}");
        };
        let keep_alive = async { written.send(()).unwrap() };
        tokio::join!(changes, keep_alive);
    });
    slow.join().unwrap();
    assert_eq!(left(&socket), Some(1));
}
