//! Decides: faulted memory is replaced.
//!
//! Faults in memory that a front-end shares: its file was truncated, its file system is full, or a page is poisoned.
//!
//! The kernel answers an access to such memory with SIGBUS. That would end the process and the disks of all guests. The
//! handler here replaces the page by private zeroes, records the fault in the mapping's slot, and lets the access
//! continue. Users of the mapping check for faults before they trust what they read or report what they wrote.
//!
//! Sealing the file against shrinking is not enough: some front-ends cannot seal theirs, and seals prevent only the
//! first of the three causes. `signal-hook` does not fit either: it calls the earlier handler before its own, and that
//! of the standard library treats SIGBUS as fatal and removes every handler. Hence the `unsafe` of this module.

use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Most guarded mappings of the process. By default a process cannot have more mappings (`vm.max_map_count`).
const SLOTS: usize = 1 << 16;

/// Faults of a mapping that replace single pages. The next fault replaces all pages.
const FAULTS_BY_PAGE: usize = 64;

/// What the handler knows of one mapping. A free slot is all zero, so the table takes no memory before it is used.
struct Slot {
    /// Odd while the fields below change.
    version: AtomicUsize,
    start: AtomicUsize,
    /// 0 in a free slot.
    bytes: AtomicUsize,
    page_bytes: AtomicUsize,
    /// Replacements of pages, the address of the first fault, and whether a poisoned page caused it.
    faults: AtomicUsize,
    first: AtomicUsize,
    poisoned: AtomicBool,
    /// The range of addresses that contains all replaced pages.
    low: AtomicUsize,
    high: AtomicUsize,
}

impl Slot {
    const fn free() -> Self {
        Self {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            page_bytes: AtomicUsize::new(0),
            faults: AtomicUsize::new(0),
            first: AtomicUsize::new(0),
            poisoned: AtomicBool::new(false),
            low: AtomicUsize::new(0),
            high: AtomicUsize::new(0),
        }
    }

    fn set(&self, start: usize, bytes: usize, page_bytes: usize) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.start.store(start, Ordering::SeqCst);
        self.bytes.store(bytes, Ordering::SeqCst);
        self.page_bytes.store(page_bytes, Ordering::SeqCst);
        self.faults.store(0, Ordering::SeqCst);
        self.first.store(0, Ordering::SeqCst);
        self.poisoned.store(false, Ordering::SeqCst);
        self.low.store(usize::MAX, Ordering::SeqCst);
        self.high.store(0, Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the address lies in the mapping. A slot that changes during the call belongs to no mapping in use.
    ///
    /// The answer stays valid while the mapping exists. The asking thread ensures that, because it accesses the
    /// mapping.
    fn contains(&self, address: usize) -> bool {
        let version = self.version.load(Ordering::SeqCst);
        let start = self.start.load(Ordering::SeqCst);
        let bytes = self.bytes.load(Ordering::SeqCst);
        let same = version.is_multiple_of(2) && version == self.version.load(Ordering::SeqCst);
        same && address.checked_sub(start).is_some_and(|offset| offset < bytes)
    }

    /// Replaces the pages that contain these bytes by private zeroes. Replaces all pages if the process cannot have
    /// more mappings. Returns `false` if that fails too.
    ///
    /// The signal handler calls this, so it uses only atomics and two system calls.
    ///
    /// # Safety
    ///
    /// The mapping exists, and the bytes lie in it.
    unsafe fn replace(&self, address: usize, bytes: usize, poisoned: bool) -> bool {
        let (start, all) = (self.start.load(Ordering::SeqCst), self.bytes.load(Ordering::SeqCst));
        let page_bytes = self.page_bytes.load(Ordering::SeqCst);
        let first = (address - start) / page_bytes * page_bytes;
        let end = (address - start + bytes).next_multiple_of(page_bytes).min(all);
        // A single replaced page adds two mappings. At its limit the process could not even replace all pages by one
        // mapping.
        let by_page = self.faults.load(Ordering::SeqCst) < FAULTS_BY_PAGE;
        [(first, end), (0, all)].into_iter().skip(usize::from(!by_page)).any(|(first, end)| {
            // Recorded before the page exists: a thread that reads its zeroes also finds the record.
            self.note(address, start + first, start + end, poisoned);
            // SAFETY: whole pages of a mapping that exists, as the caller promises, and that holds only bytes which
            // another process may change at any time.
            let at = unsafe {
                libc::mmap(
                    ptr::with_exposed_provenance_mut(start + first),
                    end - first,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if at == libc::MAP_FAILED {
                return false;
            }
            // Guest memory is not in core dumps, and these pages may get data of the guest.
            // SAFETY: the pages of the call above, whose content the advice leaves as it is.
            let _ = unsafe { libc::madvise(at, end - first, libc::MADV_DONTDUMP) };
            true
        })
    }

    fn note(&self, address: usize, low: usize, high: usize, poisoned: bool) {
        if self.first.compare_exchange(0, address, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.poisoned.store(poisoned, Ordering::SeqCst);
        }
        self.low.fetch_min(low, Ordering::SeqCst);
        self.high.fetch_max(high, Ordering::SeqCst);
        self.faults.fetch_add(1, Ordering::SeqCst);
        ANY_FAULT.store(true, Ordering::SeqCst);
    }
}

static TABLE: [Slot; SLOTS] = [const { Slot::free() }; SLOTS];
/// Slots from this index on were never used.
static USED_SLOTS: AtomicUsize = AtomicUsize::new(0);
/// Free slots below that index.
static FREE_SLOTS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Whether any guarded mapping has faulted since the process started.
static ANY_FAULT: AtomicBool = AtomicBool::new(false);
/// The handler of SIGBUS before this one.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Whether any guarded mapping has faulted since the process started. Without faults this one load is the whole cost of
/// a turn.
#[must_use]
pub fn any_fault() -> bool {
    // The answer covers all earlier reads and writes of mappings.
    compiler_fence(Ordering::SeqCst);
    fence(Ordering::Acquire);
    ANY_FAULT.load(Ordering::Relaxed)
}

/// The first fault of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Offset in the mapping, in bytes.
    pub(crate) offset: usize,
    /// Whether a memory error of the host caused it.
    pub(crate) poisoned: bool,
}

/// The guard of a mapping, until dropped.
pub(crate) struct Guard(usize);

impl Guard {
    /// Guards `bytes` mapped at `start`, in pages of `page_bytes`.
    ///
    /// # Errors
    ///
    /// The table of guarded mappings is full, or the handler cannot be installed.
    ///
    /// # Safety
    ///
    /// Start and length of the mapping are multiples of `page_bytes`. The mapping holds only bytes that another process
    /// may change at any time. It stays until the guard is dropped.
    pub(crate) unsafe fn new(start: *mut u8, bytes: usize, page_bytes: usize) -> io::Result<Self> {
        install()?;
        let mut free = FREE_SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = free.pop().unwrap_or_else(|| USED_SLOTS.load(Ordering::SeqCst));
        let entry = TABLE.get(slot).ok_or_else(|| io::Error::other("the table of guarded mappings is full"))?;
        entry.set(start.expose_provenance(), bytes, page_bytes);
        USED_SLOTS.fetch_max(slot + 1, Ordering::SeqCst);
        Ok(Self(slot))
    }

    fn slot(&self) -> &'static Slot {
        &TABLE[self.0]
    }

    /// The first fault, if there was one.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let slot = self.slot();
        let first = slot.first.load(Ordering::SeqCst);
        let offset = first.checked_sub(slot.start.load(Ordering::SeqCst)).filter(|_| first > 0)?;
        Some(Fault { offset, poisoned: slot.poisoned.load(Ordering::SeqCst) })
    }

    /// Whether any of the bytes `[offset, offset + bytes)` may lie in a replaced page. Bytes between two replaced pages
    /// count too.
    pub(crate) fn has_lost(&self, offset: usize, bytes: usize) -> bool {
        let slot = self.slot();
        let start = slot.start.load(Ordering::SeqCst) + offset;
        start < slot.high.load(Ordering::SeqCst) && start + bytes > slot.low.load(Ordering::SeqCst)
    }

    /// Reads from each page of `[offset, offset + bytes)`. Returns whether a page could not be read. Such a page is
    /// replaced.
    pub(crate) fn touch(&self, offset: usize, bytes: usize) -> bool {
        let slot = self.slot();
        let before = slot.faults.load(Ordering::SeqCst);
        let (start, all) = (slot.start.load(Ordering::SeqCst), slot.bytes.load(Ordering::SeqCst));
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= all), "{offset}+{bytes} of a mapping of {all}");
        let first = start + offset;
        let end = first + bytes;
        for address in (first..end).step_by(SMALLEST_PAGE).chain(end.checked_sub(1).filter(|last| *last >= first)) {
            // SAFETY: in the mapping, as asserted, which exists while it is guarded.
            unsafe { ptr::with_exposed_provenance::<u8>(address).read_volatile() };
        }
        slot.faults.load(Ordering::SeqCst) != before
    }

    /// Replaces all pages of `[offset, offset + bytes)` by private zeroes: the file sees no further writes. Returns
    /// `false` if the kernel has no memory for that.
    #[must_use]
    pub(crate) fn discard(&self, offset: usize, bytes: usize) -> bool {
        let slot = self.slot();
        let (start, all) = (slot.start.load(Ordering::SeqCst), slot.bytes.load(Ordering::SeqCst));
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= all), "{offset}+{bytes} of a mapping of {all}");
        // SAFETY: in the mapping, as asserted, which exists while it is guarded.
        unsafe { slot.replace(start + offset, bytes, false) }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.slot().set(0, 0, 1);
        FREE_SLOTS.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

/// The smallest page size of any file.
const SMALLEST_PAGE: usize = 4096;

/// Installs the handler, once.
fn install() -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    // SAFETY: all zero is a valid `sigaction`: no flags, an empty mask, the default action.
    let (mut previous, mut action): (libc::sigaction, libc::sigaction) = unsafe { (mem::zeroed(), mem::zeroed()) };
    // SAFETY: only queries, into a value that outlives the call.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Set first, because the handler reads it.
    let _ = PREVIOUS.set(previous);
    action.sa_sigaction = (on_sigbus as *const ()).expose_provenance();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler is a function of the type that SA_SIGINFO asks for, and calls only what a signal handler may.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *installed = true;
    Ok(())
}

#[cfg(test)]
mod tests;

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t`. Its address is set for the codes of SIGBUS, the only ones above 0.
    // Each thread has its `errno`.
    let (code, address, errno) = unsafe { ((*info).si_code, (*info).si_addr() as usize, *libc::__errno_location()) };
    let used = USED_SLOTS.load(Ordering::SeqCst).min(SLOTS);
    // A report of a poisoned page that no thread has accessed yet may come to any thread, which need not hold the
    // mapping. An access raises its own signal.
    if code == libc::BUS_MCEERR_AO {
        return;
    }
    let guarded = TABLE[..used].iter().find(|slot| code > 0 && slot.contains(address));
    let poisoned = code == libc::BUS_MCEERR_AR;
    // SAFETY: the signal is this thread's own access, which keeps the mapping, and the address lies in it.
    let replaced = guarded.is_some_and(|slot| unsafe { slot.replace(address, 1, poisoned) });
    if !replaced {
        // SAFETY: the arguments are those that the kernel passed.
        unsafe { pass_on(signal, info, context) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Does what the process would do without this handler.
///
/// # Safety
///
/// Called by the signal handler, with the handler's own arguments.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passed it to the caller.
    let code = unsafe { (*info).si_code };
    // A fault of this thread's own access, which is repeated on return.
    let faulted = code > 0;
    let previous =
        PREVIOUS.get().filter(|previous| faulted && !matches!(previous.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN));
    let Some(previous) = previous else {
        // SAFETY: both may be called in a signal handler; all zero is the default action.
        unsafe {
            let default: libc::sigaction = mem::zeroed();
            libc::sigaction(signal, &raw const default, ptr::null_mut());
            if !faulted {
                libc::raise(signal);
            }
        }
        return;
    };
    let handler = ptr::with_exposed_provenance::<()>(previous.sa_sigaction);
    if previous.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: it was installed as a handler of this type.
        unsafe { mem::transmute::<*const (), Handler>(handler)(signal, info, context) }
    } else {
        // SAFETY: as above.
        unsafe { mem::transmute::<*const (), extern "C" fn(libc::c_int)>(handler)(signal) }
    }
}
