//! The vendor window in the configuration space (docs/qemu.md), with front-ends that know it and others.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag};
use vhost_user_blk::{Queue, QueueRunner, SetPolicyError, VendorWindow, VirtioDisk, serve_connection};
use virtio_guest::features::{FLUSH, PROTOCOL_FEATURES};

use crate::geometry;
use crate::guest::{Guest, assert_told};
use crate::resize::assert_not_told;

const WINDOW: VendorWindow = VendorWindow { policy: 9, paths_total: 4, paths_live: 3, paths_optimized: 2 };
const POLICIES: u16 = 9;
/// A policy that the runner refuses for a reason of its own.
const ANOTHER_DISKS: u16 = 100;

/// A runner with policies and without queues.
struct PolicyRunner(Arc<VirtioDisk>);

impl QueueRunner for PolicyRunner {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        Err(queue)
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        indices.iter().map(|_| None).collect()
    }

    fn set_policy(&self, id: u16) -> Result<(), SetPolicyError> {
        match id {
            1..=POLICIES => {
                self.0.set_vendor_window(VendorWindow { policy: id, ..WINDOW });
                Ok(())
            }
            ANOTHER_DISKS => Err(SetPolicyError::OwnedByOtherDisk),
            _ => Err(SetPolicyError::Unknown(id)),
        }
    }
}

fn with_vendor_window() -> Arc<VirtioDisk> {
    let disk = VirtioDisk::new(geometry()).unwrap().with_vendor_window();
    disk.set_vendor_window(WINDOW);
    Arc::new(disk)
}

/// Serves one front-end, which ends the connection.
fn serve(disk: &Arc<VirtioDisk>, front_end: impl FnOnce(&mut Guest)) {
    let runner = PolicyRunner(Arc::clone(disk));
    let (ours, theirs) = UnixStream::pair().unwrap();
    let outcome = thread::scope(|scope| {
        let served = scope.spawn(|| serve_connection(ours, disk, &runner));
        front_end(&mut Guest::over(theirs, PROTOCOL_FEATURES | FLUSH));
        served.join().unwrap()
    });
    outcome.unwrap();
}

fn get(guest: &mut Guest, offset: u32, size: u32) -> Vec<u8> {
    guest.frontend.get_config(offset, size, VhostUserConfigFlags::empty(), &vec![0; size as usize]).unwrap().1
}

/// The front-end's end of a new channel. Waits until the channel is in use.
fn listen(guest: &mut Guest) -> UnixStream {
    let channel = guest.listen();
    get(guest, 60, 1);
    channel
}

/// Reads from offset 0 on, as QEMU does.
fn read(guest: &mut Guest) -> Option<(VendorWindow, u32)> {
    VendorWindow::find(&get(guest, 0, 256))
}

/// Writes, and returns whether the write was accepted.
fn set(guest: &mut Guest, offset: u32, bytes: &[u8]) -> bool {
    guest.frontend.set_config(offset, VhostUserConfigFlags::empty(), bytes).is_ok()
}

fn live(paths_live: u16) -> VendorWindow {
    VendorWindow { paths_live, ..WINDOW }
}

#[test]
fn the_window_is_read_behind_the_fields_of_virtio() {
    let disk = with_vendor_window();
    serve(&disk, |guest| {
        let before = get(guest, 0, 192);
        let (window, generation) = read(guest).unwrap();
        assert_eq!(window, WINDOW);
        let whole = get(guest, 0, 256);
        assert_eq!((whole[..192] == before, &whole[192..196]), (true, &b"MPTH"[..]));
        // In any piece. Nothing is behind it.
        assert_eq!(get(guest, 198, 2), 9_u16.to_le_bytes());
        assert_eq!(get(guest, 200, 4), generation.to_le_bytes());
        let endless: Vec<u8> = whole.iter().copied().chain([0; 100]).collect();
        for (offset, size) in
            [(192, 64), (255, 1), (190, 4), (60, 133), (180, 176), (250, 20), (256, 9), (300, 4), (0, 300)]
        {
            let range = offset as usize..(offset + size) as usize;
            assert_eq!(get(guest, offset, size), endless[range], "{offset}+{size}");
        }
        // Sets the same content again.
        disk.set_vendor_window(WINDOW);
        assert_eq!(read(guest), Some((WINDOW, generation)));
        disk.set_vendor_window(live(0));
        assert_eq!(read(guest), Some((live(0), generation + 1)));
    });
}

#[test]
fn a_front_end_is_told_of_changes_once_until_it_reads_again() {
    let disk = with_vendor_window();
    serve(&disk, |guest| {
        let mut channel = listen(guest);
        // Any QEMU reads the configuration like this, and would pass every change notice on to the guest.
        get(guest, 0, 60);
        get(guest, 0, 192);
        disk.set_vendor_window(live(0));
        assert_not_told(&channel);
        read(guest);
        disk.set_vendor_window(live(0));
        assert_not_told(&channel);
        for round in 0..3 {
            for paths in [1, 2, 1] {
                disk.set_vendor_window(live(paths + round));
            }
            assert_told(&mut channel);
            assert_not_told(&channel);
            // A read of less than the window does not count.
            get(guest, 0, 60);
            disk.set_vendor_window(live(100 + round));
            assert_not_told(&channel);
            assert_eq!(read(guest).unwrap().0, live(100 + round));
            assert_not_told(&channel);
        }
    });
}

/// A later front-end knows nothing of notifications to an earlier one.
#[test]
fn a_new_front_end_is_told_of_changes_only_after_a_read() {
    for told_before in [false, true] {
        let disk = with_vendor_window();
        let mut generation = 0;
        serve(&disk, |guest| {
            let mut channel = listen(guest);
            generation = read(guest).unwrap().1;
            if told_before {
                disk.set_vendor_window(live(10));
                assert_told(&mut channel);
            }
        });
        disk.set_vendor_window(live(11));
        disk.set_vendor_window(live(12));
        serve(&disk, |guest| {
            let mut channel = listen(guest);
            assert_not_told(&channel);
            disk.set_vendor_window(live(13));
            assert_not_told(&channel);
            get(guest, 255, 1);
            assert_not_told(&channel);
            disk.set_vendor_window(live(14));
            assert_told(&mut channel);
            // Changes count whether they were notified or not.
            assert_eq!(read(guest), Some((live(14), generation + 4 + u32::from(told_before))));
        });
    }
}

#[test]
fn one_disk_does_not_delay_notifications_of_another() {
    let (busy, quiet) = (with_vendor_window(), with_vendor_window());
    serve(&busy, |busy_guest| {
        serve(&quiet, |guest| {
            let (mut busy_channel, mut channel) = (listen(busy_guest), listen(guest));
            read(busy_guest);
            read(guest);
            for round in 0..100 {
                for change in 0..10 {
                    busy.set_vendor_window(live(100 * round + change));
                }
                assert_told(&mut busy_channel);
                assert_not_told(&busy_channel);
                assert_not_told(&channel);
                quiet.set_vendor_window(live(round));
                assert_told(&mut channel);
                assert_eq!(read(guest).unwrap().0, live(round));
                read(busy_guest);
            }
        });
    });
}

#[test]
fn a_change_before_the_channel_exists_is_notified_with_the_channel() {
    let disk = with_vendor_window();
    serve(&disk, |guest| {
        read(guest);
        disk.set_vendor_window(live(0));
        disk.set_vendor_window(live(1));
        let mut channel = listen(guest);
        assert_told(&mut channel);
        assert_not_told(&channel);
        read(guest);
        let mut other = listen(guest);
        assert_not_told(&other);
        disk.set_vendor_window(live(0));
        assert_told(&mut other);
    });
}

#[test]
fn growth_is_notified_to_front_ends_that_do_not_use_the_window() {
    let disk = with_vendor_window();
    serve(&disk, |guest| {
        let mut channel = listen(guest);
        disk.set_vendor_window(live(0));
        disk.grow(16384).unwrap();
        assert_told(&mut channel);
        assert_not_told(&channel);
        read(guest);
        disk.set_vendor_window(live(1));
        assert_told(&mut channel);
        disk.grow(32768).unwrap();
        assert_told(&mut channel);
        let space = get(guest, 0, 256);
        assert_eq!((&space[..8], VendorWindow::find(&space).unwrap().0), (&32768_u64.to_le_bytes()[..], live(1)));
        assert_not_told(&channel);
    });
}

#[test]
fn a_policy_is_written_and_read_back() {
    let disk = with_vendor_window();
    serve(&disk, |guest| {
        let mut channel = listen(guest);
        // A front-end that has not read the window may set the policy too.
        assert!(set(guest, 198, &1_u16.to_le_bytes()));
        assert_not_told(&channel);
        let (window, before) = read(guest).unwrap();
        assert_eq!(window.policy, 1);
        for policy in 2..=POLICIES {
            assert!(set(guest, 198, &policy.to_le_bytes()));
            assert_told(&mut channel);
            assert_eq!(read(guest).unwrap(), (VendorWindow { policy, ..WINDOW }, before + u32::from(policy) - 1));
        }
        assert_not_told(&channel);
    });
}

#[test]
fn a_refused_write_changes_nothing_and_ends_nothing() {
    let disk = with_vendor_window();
    serve(&disk, |guest| {
        let before = read(guest);
        let refused = |guest: &mut Guest| {
            for id in [0, POLICIES + 1, ANOTHER_DISKS, 256, 257, u16::MAX] {
                assert!(!set(guest, 198, &id.to_le_bytes()), "{id}");
            }
            for (offset, bytes) in
                [(198, &[1][..]), (198, &[1, 0, 0]), (196, &[1, 0]), (199, &[1, 0]), (197, &[1, 0]), (192, &[0; 64])]
            {
                assert!(!set(guest, offset, bytes), "{offset}: {bytes:?}");
            }
        };
        refused(guest);
        assert_eq!(read(guest), before);
        // Without a request for an answer there is no error, and the connection goes on.
        guest.frontend.set_hdr_flags(VhostUserHeaderFlag::empty());
        assert!(set(guest, 198, &0_u16.to_le_bytes()) && set(guest, 198, &[1]));
        assert_eq!(read(guest), before);
        assert!(set(guest, 198, &2_u16.to_le_bytes()));
        assert_eq!(read(guest).unwrap().0.policy, 2);
    });
}

#[test]
fn a_disk_without_a_window_reads_zeros_and_refuses_writes() {
    let disk = Arc::new(VirtioDisk::new(geometry()).unwrap());
    serve(&disk, |guest| {
        let channel = listen(guest);
        disk.set_vendor_window(WINDOW);
        assert_eq!(get(guest, 60, 196), [0; 196]);
        disk.set_vendor_window(live(0));
        assert!(!set(guest, 198, &1_u16.to_le_bytes()));
        assert_eq!((read(guest), get(guest, 60, 196)), (None, vec![0; 196]));
        assert_not_told(&channel);
    });
}
