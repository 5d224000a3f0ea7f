//! The window in the configuration space (docs/qemu.md), as a front-end that knows of it uses it, and as others do not.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag};
use vhost_user_blk::{Disk, PolicyRefused, Queue, QueueSink, Window, serve_connection};

use crate::geometry;
use crate::guest::{FLUSH, Guest, PROTOCOL_FEATURES, assert_told};
use crate::resize::assert_not_told;

const WINDOW: Window = Window { policy: 9, paths_total: 4, paths_live: 3, paths_optimized: 2 };
const POLICIES: u16 = 9;
/// What the sink refuses for a reason of its own.
const ANOTHER_DISKS: u16 = 100;

/// Has policies, and no queues.
struct Steered(Arc<Disk>);

impl QueueSink for Steered {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        Err(queue)
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        indices.iter().map(|_| None).collect()
    }

    fn set_policy(&self, id: u16) -> Result<(), PolicyRefused> {
        match id {
            1..=POLICIES => {
                self.0.set_window(Window { policy: id, ..WINDOW });
                Ok(())
            }
            ANOTHER_DISKS => Err(PolicyRefused::NotItsOwn),
            _ => Err(PolicyRefused::Unknown(id)),
        }
    }
}

fn with_window() -> Arc<Disk> {
    let disk = Disk::new(geometry()).unwrap().with_window();
    disk.set_window(WINDOW);
    Arc::new(disk)
}

/// Serves one front-end, which is the one that ends the connection.
fn serve(disk: &Arc<Disk>, front_end: impl FnOnce(&mut Guest)) {
    let sink = Steered(Arc::clone(disk));
    let (ours, theirs) = UnixStream::pair().unwrap();
    let outcome = thread::scope(|scope| {
        let served = scope.spawn(|| serve_connection(ours, disk, &sink));
        front_end(&mut Guest::over(theirs, PROTOCOL_FEATURES | FLUSH));
        served.join().unwrap()
    });
    outcome.unwrap();
}

fn get(guest: &mut Guest, offset: u32, size: u32) -> Vec<u8> {
    guest.frontend.get_config(offset, size, VhostUserConfigFlags::empty(), &vec![0; size as usize]).unwrap().1
}

/// The front-end's end of a new channel. What is told by that is told.
fn listen(guest: &mut Guest) -> UnixStream {
    let channel = guest.listen();
    get(guest, 60, 1);
    channel
}

/// As QEMU reads it: from offset 0 on.
fn read(guest: &mut Guest) -> Option<(Window, u32)> {
    Window::find(&get(guest, 0, 256))
}

/// Whether it was accepted.
fn set(guest: &mut Guest, offset: u32, bytes: &[u8]) -> bool {
    guest.frontend.set_config(offset, VhostUserConfigFlags::empty(), bytes).is_ok()
}

fn live(paths_live: u16) -> Window {
    Window { paths_live, ..WINDOW }
}

#[test]
fn it_is_read_behind_all_that_virtio_has() {
    let disk = with_window();
    serve(&disk, |guest| {
        let before = get(guest, 0, 192);
        let (window, generation) = read(guest).unwrap();
        assert_eq!(window, WINDOW);
        let whole = get(guest, 0, 256);
        assert_eq!((whole[..192] == before, &whole[192..196]), (true, &b"MPTH"[..]));
        // In any piece; there is nothing behind it.
        assert_eq!(get(guest, 198, 2), 9_u16.to_le_bytes());
        assert_eq!(get(guest, 200, 4), generation.to_le_bytes());
        let endless: Vec<u8> = whole.iter().copied().chain([0; 100]).collect();
        for (offset, size) in
            [(192, 64), (255, 1), (190, 4), (60, 133), (180, 176), (250, 20), (256, 9), (300, 4), (0, 300)]
        {
            let range = offset as usize..(offset + size) as usize;
            assert_eq!(get(guest, offset, size), endless[range], "{offset}+{size}");
        }
        // Which changes nothing.
        disk.set_window(WINDOW);
        assert_eq!(read(guest), Some((WINDOW, generation)));
        disk.set_window(live(0));
        assert_eq!(read(guest), Some((live(0), generation + 1)));
    });
}

#[test]
fn who_has_used_it_is_told_of_changes_once_until_it_reads_again() {
    let disk = with_window();
    serve(&disk, |guest| {
        let mut channel = listen(guest);
        // As any QEMU reads the configuration, which then passes every such message on to the guest.
        get(guest, 0, 60);
        get(guest, 0, 192);
        disk.set_window(live(0));
        assert_not_told(&channel);
        read(guest);
        disk.set_window(live(0));
        assert_not_told(&channel);
        for round in 0..3 {
            for paths in [1, 2, 1] {
                disk.set_window(live(paths + round));
            }
            assert_told(&mut channel);
            assert_not_told(&channel);
            // Less than the window is no answer.
            get(guest, 0, 60);
            disk.set_window(live(100 + round));
            assert_not_told(&channel);
            assert_eq!(read(guest).unwrap().0, live(100 + round));
            assert_not_told(&channel);
        }
    });
}

/// Of what an earlier front-end was told, or not yet, a later one knows nothing.
#[test]
fn who_comes_anew_has_to_read_it_first() {
    for told_before in [false, true] {
        let disk = with_window();
        let mut generation = 0;
        serve(&disk, |guest| {
            let mut channel = listen(guest);
            generation = read(guest).unwrap().1;
            if told_before {
                disk.set_window(live(10));
                assert_told(&mut channel);
            }
        });
        disk.set_window(live(11));
        disk.set_window(live(12));
        serve(&disk, |guest| {
            let mut channel = listen(guest);
            assert_not_told(&channel);
            disk.set_window(live(13));
            assert_not_told(&channel);
            get(guest, 255, 1);
            assert_not_told(&channel);
            disk.set_window(live(14));
            assert_told(&mut channel);
            // Changes count, told or not.
            assert_eq!(read(guest), Some((live(14), generation + 4 + u32::from(told_before))));
        });
    }
}

#[test]
fn one_disk_does_not_keep_another_ones_news_back() {
    let (busy, quiet) = (with_window(), with_window());
    serve(&busy, |busy_guest| {
        serve(&quiet, |guest| {
            let (mut busy_channel, mut channel) = (listen(busy_guest), listen(guest));
            read(busy_guest);
            read(guest);
            for round in 0..100 {
                for change in 0..10 {
                    busy.set_window(live(100 * round + change));
                }
                assert_told(&mut busy_channel);
                assert_not_told(&busy_channel);
                assert_not_told(&channel);
                quiet.set_window(live(round));
                assert_told(&mut channel);
                assert_eq!(read(guest).unwrap().0, live(round));
                read(busy_guest);
            }
        });
    });
}

#[test]
fn a_change_before_there_is_a_channel_is_told_when_it_comes() {
    let disk = with_window();
    serve(&disk, |guest| {
        read(guest);
        disk.set_window(live(0));
        disk.set_window(live(1));
        let mut channel = listen(guest);
        assert_told(&mut channel);
        assert_not_told(&channel);
        read(guest);
        let mut other = listen(guest);
        assert_not_told(&other);
        disk.set_window(live(0));
        assert_told(&mut other);
    });
}

#[test]
fn a_size_that_grows_is_told_to_who_does_not_use_it_too() {
    let disk = with_window();
    serve(&disk, |guest| {
        let mut channel = listen(guest);
        disk.set_window(live(0));
        disk.grow(16384).unwrap();
        assert_told(&mut channel);
        assert_not_told(&channel);
        read(guest);
        disk.set_window(live(1));
        assert_told(&mut channel);
        disk.grow(32768).unwrap();
        assert_told(&mut channel);
        let space = get(guest, 0, 256);
        assert_eq!((&space[..8], Window::find(&space).unwrap().0), (&32768_u64.to_le_bytes()[..], live(1)));
        assert_not_told(&channel);
    });
}

#[test]
fn a_policy_is_written_and_read_back() {
    let disk = with_window();
    serve(&disk, |guest| {
        let mut channel = listen(guest);
        // Also by who has not read it.
        assert!(set(guest, 198, &1_u16.to_le_bytes()));
        assert_not_told(&channel);
        let (window, before) = read(guest).unwrap();
        assert_eq!(window.policy, 1);
        for policy in 2..=POLICIES {
            assert!(set(guest, 198, &policy.to_le_bytes()));
            assert_told(&mut channel);
            assert_eq!(read(guest).unwrap(), (Window { policy, ..WINDOW }, before + u32::from(policy) - 1));
        }
        assert_not_told(&channel);
    });
}

#[test]
fn what_is_refused_changes_nothing_and_ends_nothing() {
    let disk = with_window();
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
        // Without a wish for an answer nothing says so, and all goes on.
        guest.frontend.set_hdr_flags(VhostUserHeaderFlag::empty());
        assert!(set(guest, 198, &0_u16.to_le_bytes()) && set(guest, 198, &[1]));
        assert_eq!(read(guest), before);
        assert!(set(guest, 198, &2_u16.to_le_bytes()));
        assert_eq!(read(guest).unwrap().0.policy, 2);
    });
}

#[test]
fn a_disk_without_it_has_zeros_there_and_takes_nothing() {
    let disk = Arc::new(Disk::new(geometry()).unwrap());
    serve(&disk, |guest| {
        let channel = listen(guest);
        disk.set_window(WINDOW);
        assert_eq!(get(guest, 60, 196), [0; 196]);
        disk.set_window(live(0));
        assert!(!set(guest, 198, &1_u16.to_le_bytes()));
        assert_eq!((read(guest), get(guest, 60, 196)), (None, vec![0; 196]));
        assert_not_told(&channel);
    });
}
