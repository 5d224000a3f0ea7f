//! Faults of memory that a front-end shares: its file was truncated, its file system is full, or a page is poisoned.
//!
//! The kernel answers an access to such memory with SIGBUS, which would end the process and with it the disks of other guests. The
//! handler here replaces the page by a private one of zeroes, notes the fault with the mapping, and lets the access go on. Whoever
//! uses the mapping asks whether it has faulted before it believes what was read, or promises what was written.
//!
//! A file that is sealed against shrinking would not do: not all front-ends can seal theirs, and seals help against the first of
//! three reasons only. `signal-hook` calls the handler that was there before its own; that of the standard library takes SIGBUS for
//! a fatal fault and removes every handler. Hence the `unsafe` of this module.

use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Mappings that can be guarded at a time. A process has no more of them, by default (`vm.max_map_count`).
const SLOTS: usize = 1 << 16;

/// So many faults of a mapping replace a page each. The next one replaces all pages.
const FAULTS_BY_PAGE: usize = 64;

/// What the handler knows of one mapping. All zero, so that the table takes no memory before it is used.
struct Slot {
    /// Odd while the fields below change.
    version: AtomicUsize,
    start: AtomicUsize,
    /// 0 in a free slot.
    bytes: AtomicUsize,
    page_bytes: AtomicUsize,
    /// How often pages were replaced, where the first of these faults was, and whether by a poisoned page.
    faults: AtomicUsize,
    first: AtomicUsize,
    poisoned: AtomicBool,
    /// The addresses between which all replaced pages lie.
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

    /// Whether the address lies in the mapping. A slot that changes meanwhile is none of a mapping that somebody uses.
    ///
    /// While the answer is of use the mapping has to be there: the thread that asks accesses it.
    fn contains(&self, address: usize) -> bool {
        let version = self.version.load(Ordering::SeqCst);
        let start = self.start.load(Ordering::SeqCst);
        let bytes = self.bytes.load(Ordering::SeqCst);
        let same = version.is_multiple_of(2) && version == self.version.load(Ordering::SeqCst);
        same && address.checked_sub(start).is_some_and(|offset| offset < bytes)
    }

    /// Replaces the pages that have any of these bytes by private ones of zeroes; all pages, if the process can have no more mappings.
    /// `false` if that fails too.
    ///
    /// Called by the signal handler: atomics and one system call.
    ///
    /// # Safety
    /// The mapping is there, and the bytes lie in it.
    unsafe fn replace(&self, address: usize, bytes: usize, poisoned: bool) -> bool {
        let (start, all) = (self.start.load(Ordering::SeqCst), self.bytes.load(Ordering::SeqCst));
        let page_bytes = self.page_bytes.load(Ordering::SeqCst);
        let first = (address - start) / page_bytes * page_bytes;
        let end = (address - start + bytes).next_multiple_of(page_bytes).min(all);
        // A page by itself makes two mappings more. A process at its limit could not even replace all pages by one.
        let by_page = self.faults.load(Ordering::SeqCst) < FAULTS_BY_PAGE;
        [(first, end), (0, all)].into_iter().skip(usize::from(!by_page)).any(|(first, end)| {
            // Before the page is there: whoever finds zeroes in it finds this, too.
            self.note(address, start + first, start + end, poisoned);
            // SAFETY: whole pages of a mapping that is there, as the caller says, and that holds only bytes which another process
            // may change at any time.
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
            at != libc::MAP_FAILED
        })
    }

    fn note(&self, address: usize, low: usize, high: usize, poisoned: bool) {
        if self.first.compare_exchange(0, address, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.poisoned.store(poisoned, Ordering::SeqCst);
        }
        self.low.fetch_min(low, Ordering::SeqCst);
        self.high.fetch_max(high, Ordering::SeqCst);
        self.faults.fetch_add(1, Ordering::SeqCst);
        ANY.store(true, Ordering::SeqCst);
    }
}

static TABLE: [Slot; SLOTS] = [const { Slot::free() }; SLOTS];
/// The slots from this one on have never been used.
static USED_SLOTS: AtomicUsize = AtomicUsize::new(0);
/// Those before it that are free.
static FREE_SLOTS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// A guarded mapping has faulted since the process started.
static ANY: AtomicBool = AtomicBool::new(false);
/// What SIGBUS did before.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Whether any guarded mapping has faulted since the process started: one load while none has, which is all that a turn pays.
pub(crate) fn any() -> bool {
    // What was read from, or written to, a mapping before this was asked is covered by the answer.
    compiler_fence(Ordering::SeqCst);
    fence(Ordering::Acquire);
    ANY.load(Ordering::Relaxed)
}

/// The first fault of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Where in the mapping, in bytes.
    pub(crate) offset: usize,
    /// By a memory error of the host.
    pub(crate) poisoned: bool,
}

/// Guards a mapping until it is dropped.
pub(crate) struct Guard(usize);

impl Guard {
    /// Guards `bytes` mapped at `start`, in pages of `page_bytes`.
    ///
    /// # Errors
    /// If so many mappings are guarded that the table is full, or the handler cannot be installed.
    ///
    /// # Safety
    /// Start and length of the mapping are multiples of `page_bytes`. The mapping holds only bytes that another process may change
    /// at any time. It stays until the guard is dropped.
    pub(crate) unsafe fn new(start: *mut u8, bytes: usize, page_bytes: usize) -> io::Result<Self> {
        install()?;
        let mut free = FREE_SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = free.pop().unwrap_or_else(|| USED_SLOTS.load(Ordering::SeqCst));
        let entry = TABLE.get(slot).ok_or_else(|| io::Error::other("too many mappings of shared memory"))?;
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

    /// Whether any of the bytes `[offset, offset + bytes)` may have been in a page that was replaced; one between two such pages may too.
    pub(crate) fn has_lost(&self, offset: usize, bytes: usize) -> bool {
        let slot = self.slot();
        let start = slot.start.load(Ordering::SeqCst) + offset;
        start < slot.high.load(Ordering::SeqCst) && start + bytes > slot.low.load(Ordering::SeqCst)
    }

    /// Reads from each page of `[offset, offset + bytes)`. Whether one could not be read; it is replaced.
    pub(crate) fn touch(&self, offset: usize, bytes: usize) -> bool {
        let slot = self.slot();
        let before = slot.faults.load(Ordering::SeqCst);
        let (start, all) = (slot.start.load(Ordering::SeqCst), slot.bytes.load(Ordering::SeqCst));
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= all), "{offset}+{bytes} of a mapping of {all}");
        let first = start + offset;
        let end = first + bytes;
        for address in (first..end).step_by(SMALLEST_PAGE).chain(end.checked_sub(1).filter(|last| *last >= first)) {
            // SAFETY: in the mapping, as asserted, which is there while it is guarded.
            unsafe { ptr::with_exposed_provenance::<u8>(address).read_volatile() };
        }
        slot.faults.load(Ordering::SeqCst) != before
    }

    /// Replaces all pages of `[offset, offset + bytes)`: what is written there reaches nobody, and zeroes are read. `false` if the
    /// kernel has no memory for that.
    #[must_use]
    pub(crate) fn discard(&self, offset: usize, bytes: usize) -> bool {
        let slot = self.slot();
        let (start, all) = (slot.start.load(Ordering::SeqCst), slot.bytes.load(Ordering::SeqCst));
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= all), "{offset}+{bytes} of a mapping of {all}");
        // SAFETY: in the mapping, as asserted, which is there while it is guarded.
        unsafe { slot.replace(start + offset, bytes, false) }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.slot().set(0, 0, 1);
        FREE_SLOTS.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

/// No page is smaller.
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
    // SAFETY: asks only, into a value that outlives the call.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Before the handler is there, which reads it.
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
    // SAFETY: the kernel passes a valid `siginfo_t`, whose address is set for the codes of SIGBUS, the only ones above 0; and each thread
    // has its `errno`.
    let (code, address, errno) = unsafe { ((*info).si_code, (*info).si_addr() as usize, *libc::__errno_location()) };
    let used = USED_SLOTS.load(Ordering::SeqCst).min(SLOTS);
    // News of a page that nobody has accessed yet may come to any thread, which need not keep the mapping: the access follows.
    if code == libc::BUS_MCEERR_AO {
        return;
    }
    let guarded = TABLE[..used].iter().find(|slot| code > 0 && slot.contains(address));
    let poisoned = code == libc::BUS_MCEERR_AR;
    // SAFETY: the signal is this thread's own access, which keeps the mapping, and the address lies in it.
    let replaced = guarded.is_some_and(|slot| unsafe { slot.replace(address, 1, poisoned) });
    if !replaced {
        // SAFETY: what the kernel passed is passed on.
        unsafe { pass_on(signal, info, context) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Does what would have been done without the handler here.
///
/// # Safety
/// To be called by the signal handler, with what that was called with.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the caller has it from the kernel.
    let code = unsafe { (*info).si_code };
    // An access that is repeated when this returns.
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
