"""A QEMU guest of one of the images, with its console and the control port on which its init listens.

QEMU ends when the `with` block is left, at an exception (Ctrl-C included), and when this process ends.
"""

import collections
import os
import queue
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

BOOT_TIMEOUT = 300  # seconds; a boot takes 1 s with KVM and 4 s without on an idle host
INIT_TIMEOUT = 120  # seconds; most of a boot
SHUTDOWN_TIMEOUT = 60  # seconds
# -arch-capabilities: nested hosts refuse the MSR that -cpu host alone would set. TCG's max has RDRAND (no wait for
# entropy) and SSE 4.2 (fio's crc32c).
CPU = {"kvm": "host,-arch-capabilities", "tcg": "max"}
# A panic ends QEMU at once (panic=-1 with -no-reboot). tsc=reliable keeps the cheap clock under TCG, where the kernel
# would otherwise read an emulated timer for each of fio's time stamps.
KERNEL_ARGS = "console=ttyS0 loglevel=5 panic=-1 oops=panic tsc=reliable mitigations=off apparmor=0"
# Lines of init, and lines of the kernel about a disk that misbehaves. They are shown even if fio succeeds.
NOTABLE = re.compile(r"^guest: |I/O error|Kernel panic|blocked for more than|BUG:|Oops|virtio_blk.*(fail|error)")
PROGRESS = re.compile(r"Jobs: \d+ \(f=\d+\)")


class GuestError(Exception):
    """The guest could not be started, died, or did not answer in time."""


class Machine:
    """QEMU with the image that `images/build NAME` makes, NAME being the class's `IMAGE`.

    `on_line` gets each line that a person should see: fio's progress, lines of the guest's init, and alarming kernel messages.
    The whole console is in `console_log`, if given. Enter the `with` block in a thread that outlives it, because QEMU dies with
    that thread.
    """

    IMAGE = ""

    def __init__(
        self, cpus, memory_mib, on_line=None, console_log=None, accel=None, image=None, qemu="qemu-system-x86_64"
    ):
        self.info = {}
        self.accel = accel
        self._cpus = cpus
        self._memory_mib = memory_mib
        self._on_line = on_line or (lambda line: print(f"  {line}", file=sys.stderr, flush=True))
        self._log = open(console_log, "wb") if console_log else None
        self._image = image
        self._program = str(qemu)
        self._tail = collections.deque(maxlen=40)  # lines, console and QEMU's stderr
        self._panicked = False
        self._messages, self._has_init = None, None
        self._qemu = None
        self._control = None
        self._reader = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, exc_type, exc, traceback):
        self.stop(orderly=exc_type is None)

    def start(self):
        """Boots the guest. Returns when the guest takes requests. `info` then has what it has reported about itself."""
        started = self.launch()
        # Without KVM on a busy host, a kernel may measure its timers so wrongly that it never reaches init, which loads the disk's
        # driver.
        if not self._has_init.wait(INIT_TIMEOUT) and any(line.startswith("[ ") for line in list(self._tail)):
            print("guest: init did not start; the machine is started once more", file=sys.stderr, flush=True)
            self._end()
            started = self.launch()
        _, payload = self.expect("ready", started + BOOT_TIMEOUT, "boot")
        self.info = dict(line.split("=", 1) for line in payload.decode().splitlines())
        self.info["boot_seconds"] = round(time.monotonic() - started, 1)
        self.info["accel"] = self.accel

    def launch(self):
        """Starts QEMU and the thread that reads the guest's lines. Returns the time of the start."""
        image = self._image or _output_of(ROOT / "images" / "build", self.IMAGE)
        self.accel = self.accel or _output_of(ROOT / "images" / "accel", image)
        started = time.monotonic()
        self._messages, self._has_init = queue.Queue(), threading.Event()
        self._qemu, self._control = self.spawn(image)
        self._reader = threading.Thread(target=self._read, name="guest-reader", daemon=True)
        self._reader.start()
        return started

    def spawn(self, image):
        """Starts the machine. Returns a process that prints the console and ends with QEMU, and the control port's socket."""
        ours, theirs = socket.socketpair()
        with theirs:
            qemu = subprocess.Popen(
                # If this process is killed, the kernel ends QEMU.
                ["setpriv", "--pdeathsig=KILL", "--", *self._command(image, theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # so that Ctrl-C in the terminal reaches this process alone
            )
        return qemu, ours

    def is_silent(self):
        """Whether no control message of the guest is waiting."""
        return self._messages.empty()

    def request(self, verb, name, text):
        """Sends a request with a body. `expect` takes the guest's answers."""
        if not re.fullmatch(r"[\w.-]+", name):
            raise ValueError(f"not a name: {name!r}")
        data = text.encode()
        try:
            self._control.settimeout(5)
            self._control.sendall(f"{verb} {name} {len(data)}\n".encode() + data)
        except OSError as error:
            raise GuestError(self._with_tail(f"the guest does not take {name}: {error}")) from error

    def stop(self, orderly=False):
        """Ends QEMU. If `orderly`, asks the guest to end first. Does nothing if QEMU has ended already."""
        self._end(orderly)
        if self._log is not None:
            self._log.close()
            self._log = None

    def _end(self, orderly=False):
        if self._qemu is not None:
            if orderly and self._qemu.poll() is None:
                try:
                    self._control.sendall(b"off\n")
                    self._qemu.wait(SHUTDOWN_TIMEOUT)
                except (OSError, subprocess.TimeoutExpired):
                    pass
            try:
                os.killpg(self._qemu.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._qemu.wait()
            self._reader.join(5)
            self._qemu.stdout.close()
            self._qemu = None
        if self._control is not None:
            self._control.close()
            self._control = None

    def devices(self):
        """QEMU's options for the other devices of this machine, in addition to console and control port."""
        return []

    def _command(self, image, control_fd):
        return [
            self._program,
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-machine", f"q35,accel={self.accel}", "-cpu", CPU[self.accel], "-smp", str(self._cpus)),
            *("-m", str(self._memory_mib)),
            *("-kernel", f"{image}/vmlinuz", "-initrd", f"{image}/initramfs", "-append", KERNEL_ARGS),
            *("-serial", "stdio"),
            *("-device", "virtio-serial-pci", "-chardev", f"socket,id=control,fd={control_fd}"),
            *("-device", "virtserialport,chardev=control,name=control"),
            *self.devices(),
        ]

    def _read(self):
        """The reader thread. Passes the console to the log and `on_line`, and control messages to `_messages`. The last one is
        ("end",)."""
        try:
            self._read_until_closed()
        finally:
            self._has_init.set()  # nobody need wait any longer
            self._messages.put(("end", {"at": time.monotonic()}, b""))

    def _read_until_closed(self):
        console, control = b"", b""
        with selectors.DefaultSelector() as selector:
            for source in (self._qemu.stdout, self._control):
                selector.register(source, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    try:
                        data = os.read(key.fd, 65536)
                    except OSError:
                        data = b""
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is self._qemu.stdout:
                        console = self._take_console(console + data, data)
                    else:
                        control = self._take_control(control + data)
        self._take_console(console + b"\n", b"")

    def _take_console(self, pending, new):
        if self._log is not None:
            self._log.write(new)
            self._log.flush()
        *lines, pending = re.split(rb"[\r\n]", pending)
        for raw in lines:
            line = raw.decode(errors="replace").strip()
            self._panicked |= "Kernel panic" in line
            if "guest: Linux" in line:
                self._has_init.set()
            if line and not PROGRESS.match(line):
                self._tail.append(line)
            # fio's line has figures once it has measured something.
            if NOTABLE.search(line) or (PROGRESS.match(line) and "[" in line):
                self._on_line(line)
        return pending

    def _take_control(self, pending):
        while b"\n" in pending:
            header, rest = pending.split(b"\n", 1)
            kind, *words = header.decode(errors="replace").split()
            length = int(words[-1]) if kind in ("ready", "result", "file") else 0
            if len(rest) < length:
                break
            self._messages.put((kind, {"words": words, "at": time.monotonic()}, rest[:length]))
            pending = rest[length:]
        return pending

    def expect(self, wanted, deadline, what):
        """Waits for the next control message, which must be `wanted`. Returns (header, payload)."""
        try:
            kind, header, payload = self._messages.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            raise GuestError(self._with_tail(f"{what}: no answer from the guest in time")) from None
        if kind == "end":
            self._messages.put((kind, header, payload))  # later calls get the end too
            end = "the guest panicked" if self._panicked else f"QEMU ended (exit code {self._qemu.wait(5)})"
            raise GuestError(self._with_tail(f"{what}: {end}"))
        if kind != wanted:
            raise GuestError(f"{what}: expected {wanted} from the guest, got {kind} {' '.join(header['words'])}")
        return header, payload

    def _with_tail(self, message):
        return "\n".join([message, "last lines of QEMU and the guest's console:", *(f"  | {t}" for t in self._tail)])


def _output_of(*command):
    """Runs a script. Returns the last line of its stdout. Its stderr stays visible."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        raise GuestError(f"{command[0]} failed (exit code {done.returncode})")
    return done.stdout.strip().splitlines()[-1]
