use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};
use vm_memory::{Bytes, VolatileMemory};

use super::*;
use crate::memory::{FaultReason, Mapping, MemoryFault, SharedMemory, map_file};

const PAGE: usize = 4096;
const PAGES: usize = 8;

fn file() -> File {
    let file = File::from(memfd_create("shared", MemfdFlags::CLOEXEC).unwrap());
    file.write_all_at(&vec![7; PAGES * PAGE], 0).unwrap();
    file
}

fn map(file: &File) -> Mapping {
    map_file(file.try_clone().unwrap(), (PAGES * PAGE) as u64).unwrap()
}

fn read(mapping: &Mapping, at: usize) -> u8 {
    mapping.region().as_volatile_slice().read_obj(at).unwrap()
}

fn write(mapping: &Mapping, at: usize, byte: u8) {
    mapping.region().as_volatile_slice().write_obj(byte, at).unwrap();
}

fn fault(mapping: &Mapping) -> Option<MemoryFault> {
    mapping.fault(SharedMemory::Guest, 0, 0)
}

#[test]
fn a_truncated_page_reads_zeroes_takes_writes_and_is_noted() {
    let shared = file();
    let (mapping, neighbour) = (map(&shared), map(&file()));
    shared.set_len(3 * PAGE as u64).unwrap();
    assert_eq!((read(&mapping, 3 * PAGE - 1), fault(&mapping)), (7, None), "what is left of it");
    assert_eq!(read(&mapping, 5 * PAGE + 9), 0);
    let reason = FaultReason::Truncated { file_bytes: 3 * PAGE as u64, mapped_bytes: (PAGES * PAGE) as u64 };
    let first = MemoryFault { memory: SharedMemory::Guest, address: 5 * PAGE as u64 + 9, reason };
    assert_eq!(fault(&mapping), Some(first.clone()));
    write(&mapping, 4 * PAGE, 9);
    assert_eq!((read(&mapping, 4 * PAGE), read(&mapping, 0)), (9, 7));
    assert_eq!(fault(&mapping), Some(first), "the first of them");
    let lost = |page: usize| mapping.guard().has_lost(page * PAGE, PAGE);
    assert_eq!([3, 4, 5, 6].map(lost), [false, true, true, false]);
    // The file may grow again: the replaced pages do not belong to it any more.
    shared.set_len((PAGES * PAGE) as u64).unwrap();
    assert_eq!((read(&mapping, 4 * PAGE), fault(&neighbour)), (9, None));
    assert!((0..PAGES).all(|page| read(&neighbour, page * PAGE) == 7));
}

#[test]
fn a_place_in_the_table_is_used_again_without_its_faults() {
    let shared = file();
    for _ in 0..3 {
        let mapping = map(&shared);
        assert_eq!((fault(&mapping), mapping.guard().has_lost(0, PAGES * PAGE)), (None, false));
        shared.set_len(0).unwrap();
        assert_eq!(read(&mapping, 0), 0);
        assert!(fault(&mapping).is_some());
        shared.write_all_at(&vec![7; PAGES * PAGE], 0).unwrap();
    }
}

#[test]
fn threads_that_fault_at_the_same_time_go_on() {
    let shared = file();
    let mapping = map(&shared);
    shared.set_len(0).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!((0..PAGES).all(|page| read(&mapping, page * PAGE) == 0)));
        }
    });
}

#[test]
fn pages_that_the_kernel_could_not_access_are_replaced() {
    let shared = file();
    let mapping = map(&shared);
    shared.set_len(6 * PAGE as u64).unwrap();
    assert!(mapping.guard().touch(4 * PAGE, 3 * PAGE));
    let lost = |page: usize| mapping.guard().has_lost(page * PAGE, PAGE);
    assert_eq!([4, 5, 6, 7].map(lost), [false, false, true, false]);
    assert_eq!((read(&mapping, 5 * PAGE), read(&mapping, 6 * PAGE)), (7, 0));
    assert!(!mapping.guard().touch(0, 7 * PAGE));
    assert!(mapping.guard().discard(PAGE + 1, PAGE));
    assert_eq!([0, 1, 2, 3].map(|page| read(&mapping, page * PAGE)), [7, 0, 0, 7]);
    assert!(mapping.guard().discard(0, PAGES * PAGE));
    assert!((0..PAGES).all(|page| read(&mapping, page * PAGE) == 0));
    let mut left = [0; 1];
    shared.read_exact_at(&mut left, 0).unwrap();
    assert_eq!(left, [7], "the file is nobody's business any more");
}

/// If the host lets a process poison its pages (root, and a kernel with `CONFIG_MEMORY_FAILURE`), the page is lost
/// until the next boot.
#[test]
fn a_poisoned_page_ends_the_same_way() {
    let shared = file();
    let mapping = map(&shared);
    let page = mapping.region().as_ptr().wrapping_add(2 * PAGE);
    // SAFETY: a page of the mapping, which nobody refers to.
    if unsafe { libc::madvise(page.cast(), PAGE, libc::MADV_HWPOISON) } != 0 {
        println!("no page can be poisoned here, so only the signal is simulated: {}", io::Error::last_os_error());
        make_up(libc::BUS_MCEERR_AR, page.addr());
    }
    assert_eq!((read(&mapping, 2 * PAGE + 5), read(&mapping, 3 * PAGE)), (0, 7));
    let fault = fault(&mapping).unwrap();
    assert_eq!((fault.address, fault.reason), (2 * PAGE as u64, FaultReason::Poisoned));
    write(&mapping, 2 * PAGE, 9);
    assert_eq!(read(&mapping, 2 * PAGE), 9);
}

/// The layout of the handler's argument.
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    address: usize,
    rest: [usize; 13],
}

fn make_up(code: i32, address: usize) {
    let mut info = Info { signal: libc::SIGBUS, errno: 0, code, padding: 0, address, rest: [0; 13] };
    assert_eq!(size_of::<Info>(), size_of::<libc::siginfo_t>());
    on_sigbus(libc::SIGBUS, (&raw mut info).cast(), ptr::null_mut());
}

const DIES: &str = "VHOST_USER_BLK_TEST_DIES";

/// Runs this test alone in a process of its own, and calls `dies` there. Returns the signal that ended the process.
fn signal_of(test: &str, dies: impl FnOnce()) -> Option<i32> {
    if std::env::var_os(DIES).is_some_and(|name| name == test) {
        dies();
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("memory_faults::tests::{test}"), "--nocapture"]).env(DIES, test);
    command.output().unwrap().status.signal()
}

#[test]
fn a_fault_anywhere_else_ends_the_process() {
    let dies = || {
        let (guarded, other) = (map(&file()), file());
        let mapping = unsafe_map(&other);
        other.set_len(0).unwrap();
        println!("{} {}", read(&guarded, 0), mapping[0]);
    };
    let signal = signal_of("a_fault_anywhere_else_ends_the_process", dies);
    assert!(std::env::var_os(DIES).is_some() || signal == Some(libc::SIGBUS), "{signal:?}");
}

/// A signal from an operator is not a fault.
#[test]
fn a_sent_signal_ends_the_process() {
    let dies = || {
        let _guarded = map(&file());
        // SAFETY: raises a signal.
        unsafe { libc::raise(libc::SIGBUS) };
    };
    let signal = signal_of("a_sent_signal_ends_the_process", dies);
    assert!(std::env::var_os(DIES).is_some() || signal == Some(libc::SIGBUS), "{signal:?}");
}

/// A mapping without a guard.
fn unsafe_map(file: &File) -> &'static [u8] {
    use std::os::fd::AsRawFd;
    // SAFETY: a new mapping at a place of the kernel's choice, which stays. The process ends by looking at it.
    unsafe {
        let fd = file.as_raw_fd();
        let at = libc::mmap(ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        assert_ne!(at, libc::MAP_FAILED);
        std::slice::from_raw_parts(at.cast(), PAGE)
    }
}

/// Otherwise a front-end could use up the mappings of the process, and the next fault would end it.
#[test]
fn many_faults_apart_make_few_mappings() {
    const MANY: usize = 4096;
    let shared = file();
    shared.set_len((MANY * PAGE) as u64).unwrap();
    let mapping = map_file(shared.try_clone().unwrap(), (MANY * PAGE) as u64).unwrap();
    shared.set_len(0).unwrap();
    let start = mapping.region().as_ptr() as usize;
    for page in (0..MANY).step_by(2) {
        assert_eq!(read(&mapping, page * PAGE), 0);
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let within = maps.lines().filter(|line| {
        let first = usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        (start..start + MANY * PAGE).contains(&first)
    });
    assert!(within.count() <= 2 * FAULTS_BY_PAGE);
    assert!(mapping.guard().has_lost((MANY - 1) * PAGE, PAGE), "all pages were replaced");
}
