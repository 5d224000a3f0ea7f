"""A QEMU guest on a vhost-user-blk socket that runs fio jobs.

    with Guest("/run/disk.sock", queues=2) as guest:
        result = guest.run_job("randread", Path("fio/randread-qd32.fio").read_text())

One boot serves any number of jobs, one at a time. `start_job` returns at once, so that the caller can act while fio runs. A
thread of this module reads everything that the guest says. QEMU ends when the `with` block is left, at an exception (Ctrl-C
included), and when this process ends.
"""

import json
import time
from pathlib import Path

from machine import GuestError, Machine

JOB_TIMEOUT = 600  # seconds; a busy machine without KVM needs no more


class JobResult:
    """The result of one fio run."""

    def __init__(self, name, exit_code, output, host_seconds, guest_seconds, stopped=False):
        self.name = name
        self.exit_code = exit_code
        self.host_seconds = host_seconds
        self.guest_seconds = guest_seconds
        self.stopped = stopped
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

        self._started, self._stopped = None, False

    def wait_for_start(self):
        """Blocks until fio starts. Raises GuestError if it does not, as `wait` does."""
        if self._started is None:
            self._started, _ = self._guest.expect("started", self._deadline, self.name)

    def move(self, guest):
        """Has the job continue in another QEMU, to which the guest has migrated. The result comes from there."""
        if not self._guest.is_silent():
            raise GuestError(f"{self.name}: ended before the guest was moved")
        self._guest = guest

    def stop(self):
        """Has fio end before its time. Call `wait` afterwards."""
        self._stopped = True
        self._guest.request("stop", self.name, "")

    def wait(self):
        """Blocks until fio ends; returns a JobResult. Raises GuestError on a dead guest or at the job's time limit."""
        self.wait_for_start()
        host_start, guest_start = self._started["at"], float(self._started["words"][0])
        header, payload = self._guest.expect("result", self._deadline, self.name)
        _, exit_code, guest_end = header["words"][:3]
        return JobResult(
            self.name,
            int(exit_code),
            payload.decode(errors="replace"),
            header["at"] - host_start,
            float(guest_end) - guest_start,
            self._stopped,
        )


class Guest(Machine):
    """A machine with the fio guest. Its disk is that of the vhost-user-blk backend behind `socket_path`.

    A guest uses all of its `queues` virtqueues only with as many virtual CPUs. It has that number, and at least two, unless
    `cpus` is given. The virtqueues are split, or `packed`. With `reconnect`, QEMU goes on without the backend, and tries every
    `reconnect` seconds to connect again. Further options are those of the machine.
    """

    IMAGE = "fio"

    def __init__(self, socket_path, queues=2, memory_mib=512, cpus=None, reconnect=None, packed=False, **options):
        super().__init__(cpus or max(2, queues), memory_mib, **options)
        self._packed = "on" if packed else "off"
        self._socket_path = str(socket_path)
        self._reconnect = f",reconnect={reconnect}" if reconnect else ""
        self._queues = queues

    def start(self):
        """Boots; returns when the guest takes jobs. What it says about itself and its disk is then in `info`."""
        if not Path(self._socket_path).is_socket():
            raise GuestError(f"{self._socket_path} is not a socket: is the vhost-user-blk backend running?")
        super().start()
        if "disk" not in self.info:
            raise GuestError(self._with_tail("the guest has no virtio disk"))

    def start_job(self, name, job_file, timeout=JOB_TIMEOUT):
        """Starts fio with the text of a job file. Returns a Job, for which the caller has to wait. Only one job runs at a
        time."""
        job = Job(self, name, time.monotonic() + timeout)
        self.request("run", name, job_file)
        return job

    def run_job(self, name, job_file, timeout=JOB_TIMEOUT):
        """Runs fio with the text of a job file; returns a JobResult."""
        return self.start_job(name, job_file, timeout).wait()

    def fetch(self, name, timeout=180):
        """The content of a file that a job has left. No job may be running."""
        self.request("get", name, "")
        _, payload = self.expect("file", time.monotonic() + timeout, name)
        return payload

    def devices(self):
        return [
            # vhost-user hands the guest's memory to the backend as a file descriptor.
            *("-object", f"memory-backend-memfd,id=ram,size={self._memory_mib}M,share=on"),
            *("-machine", "memory-backend=ram"),
            *("-chardev", f"socket,id=disk,path={self._socket_path}{self._reconnect}"),
            *("-device", f"vhost-user-blk-pci,chardev=disk,num-queues={self._queues},packed={self._packed}"),
        ]
