"""A QEMU guest on a vhost-user-blk socket that runs fio jobs.

    with Guest("/run/disk.sock", queues=2) as guest:
        result = guest.run_job("randread", Path("fio/randread-qd32.fio").read_text())

One boot serves any number of jobs, one at a time. `start_job` returns at once, so that the caller can change the world
while fio runs; a thread of this module reads everything the guest says. Leaving the `with` block, an exception (Ctrl-C
included) and the death of this process all end QEMU.
"""

import collections
import json
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

BOOT_TIMEOUT = {"kvm": 30, "tcg": 90}  # seconds; a boot takes 1 s and 4 s on an idle host
JOB_TIMEOUT = 120  # seconds
SHUTDOWN_TIMEOUT = 10  # seconds
# -arch-capabilities: nested hosts refuse the MSR that -cpu host alone would set. TCG's max has RDRAND (no wait for
# entropy) and SSE 4.2 (fio's crc32c).
CPU = {"kvm": "host,-arch-capabilities", "tcg": "max"}
# A panic ends QEMU at once (panic=-1 with -no-reboot). tsc=reliable keeps the cheap clock under TCG, where the kernel
# would otherwise read an emulated timer for each of fio's time stamps.
KERNEL_ARGS = "console=ttyS0 loglevel=5 panic=-1 oops=panic tsc=reliable mitigations=off apparmor=0"
# What init says, and what the kernel says about a disk that misbehaves; worth showing even when fio survives it.
NOTABLE = re.compile(r"^guest: |I/O error|Kernel panic|blocked for more than|BUG:|Oops|virtio_blk.*(fail|error)")
PROGRESS = re.compile(r"Jobs: \d+ \(f=\d+\)")


class GuestError(Exception):
    """The guest could not be started, died, or did not answer in time."""


class JobResult:
    """What one fio run gave."""

    def __init__(self, name, exit_code, output, host_seconds, guest_seconds):
        self.name = name
        self.exit_code = exit_code
        self.host_seconds = host_seconds
        self.guest_seconds = guest_seconds
        # fio writes its error messages into the same file, before and after the JSON.
        before, brace, after = output.partition("{\n")
        try:
            self.json, end = json.JSONDecoder().raw_decode(brace + after)
            text = before + (brace + after)[end:]
        except ValueError:
            self.json, text = {}, output
        self.messages = [line for line in text.splitlines() if line.strip()]


class Job:
    """A fio run under way."""

    def __init__(self, guest, name, deadline):
        self._guest = guest
        self._deadline = deadline
        self.name = name

    def wait(self):
        """Blocks until fio ends; returns a JobResult. Raises GuestError on a dead guest or at the job's time limit."""
        header, _ = self._guest._expect("started", self._deadline, self.name)
        host_start, guest_start = header["at"], float(header["words"][0])
        header, payload = self._guest._expect("result", self._deadline, self.name)
        _, exit_code, guest_end = header["words"][:3]
        return JobResult(
            self.name,
            int(exit_code),
            payload.decode(errors="replace"),
            header["at"] - host_start,
            float(guest_end) - guest_start,
        )


class Guest:
    """QEMU with the fio guest; its disk is what the vhost-user-blk backend behind `socket_path` offers.

    `queues` virtqueues need as many virtual CPUs for the guest to use them all. `on_line` gets each line worth a
    human's attention: fio's progress, what the guest's init says, alarming kernel messages. The whole console is in
    `console_log`, if given. Enter the `with` block in a thread that outlives it: QEMU dies with that thread.
    """

    def __init__(self, socket_path, queues=2, memory_mib=512, on_line=None, console_log=None, accel=None, image=None):
        self.info = {}
        self.accel = accel
        self._socket_path = str(socket_path)
        self._queues = queues
        self._memory_mib = memory_mib
        self._on_line = on_line or (lambda line: print(f"  {line}", file=sys.stderr, flush=True))
        self._log = open(console_log, "wb") if console_log else None
        self._image = image
        self._tail = collections.deque(maxlen=40)  # lines, console and QEMU's stderr
        self._panicked = False
        self._messages = queue.Queue()
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
        """Boots; returns when the guest takes jobs. What it says about itself and its disk is then in `info`."""
        if not Path(self._socket_path).is_socket():
            raise GuestError(f"{self._socket_path} is not a socket: is the vhost-user-blk backend running?")
        image = self._image or _output_of(ROOT / "images" / "build")
        self.accel = self.accel or _output_of(ROOT / "images" / "accel", image)
        started = time.monotonic()
        ours, theirs = socket.socketpair()
        with theirs:
            self._control = ours
            self._qemu = subprocess.Popen(
                # The kernel ends QEMU if this process dies without a chance to do it.
                ["setpriv", "--pdeathsig=KILL", "--", *self._command(image, theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal is ours to handle
            )
        self._reader = threading.Thread(target=self._read, name="guest-reader", daemon=True)
        self._reader.start()
        _, payload = self._expect("ready", started + BOOT_TIMEOUT[self.accel], "boot")
        self.info = dict(line.split("=", 1) for line in payload.decode().splitlines())
        self.info["boot_seconds"] = round(time.monotonic() - started, 1)
        self.info["accel"] = self.accel
        if "disk" not in self.info:
            raise GuestError(self._with_tail("the guest has no virtio disk"))

    def start_job(self, name, job_file, timeout=JOB_TIMEOUT):
        """Starts fio with the text of a job file; the returned Job is waited for. One job at a time."""
        if not re.fullmatch(r"[\w.-]+", name):
            raise ValueError(f"not a job name: {name!r}")
        data = job_file.encode()
        job = Job(self, name, time.monotonic() + timeout)
        try:
            self._control.settimeout(5)
            self._control.sendall(f"run {name} {len(data)}\n".encode() + data)
        except OSError as error:
            raise GuestError(self._with_tail(f"the guest does not take job {name}: {error}")) from error
        return job

    def run_job(self, name, job_file, timeout=JOB_TIMEOUT):
        """Runs fio with the text of a job file; returns a JobResult."""
        return self.start_job(name, job_file, timeout).wait()

    def stop(self, orderly=False):
        """Ends QEMU, by asking the guest first if `orderly`. Harmless if it has ended already."""
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
        if self._log is not None:
            self._log.close()
            self._log = None

    def _command(self, image, control_fd):
        cpus = max(2, self._queues)
        return [
            "qemu-system-x86_64",
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-machine", f"q35,accel={self.accel},memory-backend=ram", "-cpu", CPU[self.accel], "-smp", str(cpus)),
            # vhost-user hands the guest's memory to the backend as a file descriptor.
            *("-m", str(self._memory_mib)),
            *("-object", f"memory-backend-memfd,id=ram,size={self._memory_mib}M,share=on"),
            *("-kernel", f"{image}/vmlinuz", "-initrd", f"{image}/initramfs", "-append", KERNEL_ARGS),
            *("-serial", "stdio"),
            *("-device", "virtio-serial-pci", "-chardev", f"socket,id=control,fd={control_fd}"),
            *("-device", "virtserialport,chardev=control,name=control"),
            *("-chardev", f"socket,id=disk,path={self._socket_path}"),
            *("-device", f"vhost-user-blk-pci,chardev=disk,num-queues={self._queues}"),
        ]

    def _read(self):
        """The reader thread: console to the log and `on_line`, control messages to `_messages`, then ("end",)."""
        try:
            self._read_until_closed()
        finally:
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
            length = int(words[-1]) if kind in ("ready", "result") else 0
            if len(rest) < length:
                break
            self._messages.put((kind, {"words": words, "at": time.monotonic()}, rest[:length]))
            pending = rest[length:]
        return pending

    def _expect(self, wanted, deadline, what):
        """The next control message, which must be `wanted`: (header, payload)."""
        try:
            kind, header, payload = self._messages.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            raise GuestError(self._with_tail(f"{what}: no answer from the guest in time")) from None
        if kind == "end":
            self._messages.put((kind, header, payload))  # for whoever asks next
            end = "the guest panicked" if self._panicked else f"QEMU ended (exit code {self._qemu.wait(5)})"
            raise GuestError(self._with_tail(f"{what}: {end}"))
        if kind != wanted:
            raise GuestError(f"{what}: expected {wanted} from the guest, got {kind} {' '.join(header['words'])}")
        return header, payload

    def _with_tail(self, message):
        return "\n".join([message, "last lines of QEMU and the guest's console:", *(f"  | {t}" for t in self._tail)])


def _output_of(*command):
    """The last line a script prints on stdout; its stderr stays visible."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        raise GuestError(f"{command[0]} failed (exit code {done.returncode})")
    return done.stdout.strip().splitlines()[-1]
