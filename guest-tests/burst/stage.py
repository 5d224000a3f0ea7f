"""Two guests whose disks share the slots of one service: the bulk one keeps them busy, the interactive one sends bursts.

    with Stage(directory, flows=8, depth=32) as stage:
        stage.busy(seconds=60)
        stage.switch("burst-credit-drr")
        stage.bursts(count=32, pause_ms=50, warmup=2.5, seconds=8)
"""

import json
import time
from contextlib import ExitStack

import fioresult
from guest import Guest, GuestError
from rig import NQN, Rig

SLOTS = 13
DELAY_MS = 10
NAMESPACE = "mem:512MiB"
DISKS = ("interactive", "bulk")
MEMORY_MIB = 256

READS = """\
[global]
filename=${DISK}
ioengine=io_uring
direct=1
rw=randread
bs=4k
norandommap=1
randrepeat=0
time_based=1
"""
# All reads of a burst are handed to the kernel at once and waited for before the pause.
BURSTS = READS + """
[bursts]
iodepth={count}
iodepth_batch_submit={count}
iodepth_batch_complete_min={count}
thinktime={pause_us}
thinktime_blocks={count}
thinktime_blocks_type=issue
runtime={runtime_ms}ms
write_lat_log=bursts
"""
# The file that fio makes of that.
LOG = "bursts_lat.1.log"
BUSY = READS + """
[busy]
iodepth={depth}
numjobs=${{QUEUES}}
cpus_allowed=0-${{LAST_CPU}}
cpus_allowed_policy=split
group_reporting=1
runtime={runtime_ms}ms
"""


class SharedPath(Rig):
    """A target with a namespace for each disk, each answer held back; the daemon with both disks over the one path."""

    def __init__(self, directory, queues):
        super().__init__(
            directory,
            namespace=NAMESPACE,
            listeners=(f"127.0.0.1:0,delay={DELAY_MS}ms",),
            target_options=("--namespace", NAMESPACE),
        )
        self.sockets = {disk: self.directory / f"{disk}.sock" for disk in DISKS}
        self._queues = queues

    def daemon_words(self):
        config = self.directory / "disks.yaml"
        config.write_text(json.dumps(self.config()))  # which is YAML too
        return ["--config", config]

    def config(self):
        own, other = (
            {"name": disk, "socket-path": str(self.sockets[disk]), "namespace": index + 1, "queues": self._queues}
            for index, disk in enumerate(DISKS)
        )
        # The window is the slots, and counts in each I/O thread: so one of them.
        shared = {
            **{"subsystem": NQN, "paths": self.paths, "policy": "numa", "scheduler": "fifo", "window": {"ios": SLOTS}},
            "share-paths-with": [other],
        }
        return {"api": str(self.api), "io-threads": 1, "disks": [own | shared]}

    def served(self, disk):
        """Requests of a disk that were sent since the daemon started."""
        (detail,) = self.ctl("scheduler", "show", "--disk", disk)
        return sum(queue["served"] for queue in detail["queues"])


class Stage:
    """Everything that runs. `flows` is the number of the bulk guest's virtqueues, which need as many virtual processors."""

    def __init__(self, directory, flows, depth):
        self._directory, self._flows, self._depth = directory, flows, depth
        self._stack = ExitStack()
        self._busy = None

    def __enter__(self):
        with self._stack:
            self.rig = self._stack.enter_context(SharedPath(self._directory, self._flows))
            self.guests = {
                disk: self._stack.enter_context(self._guest(disk, cpus)) for disk, cpus in zip(DISKS, (1, self._flows))
            }
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)

    def _guest(self, disk, cpus):
        return Guest(
            self.rig.sockets[disk], queues=cpus, cpus=cpus, memory_mib=MEMORY_MIB,
            on_line=lambda _: None, console_log=self._directory / f"{disk}.console",
        )  # fmt: skip

    def switch(self, scheduler):
        """Puts a scheduler into force that knows nothing: one that is in force already would keep what it knows."""
        self.rig.ctl("scheduler", "set", "fifo")
        self.rig.ctl("scheduler", "set", scheduler)

    def start_busy(self, seconds):
        """The bulk guest keeps all of its virtqueues filled for so long."""
        text = BUSY.format(depth=self._depth, runtime_ms=round(seconds * 1000))
        self._busy = self.guests["bulk"].start_job("busy", text, seconds + 60), self.rig.served("bulk")
        self._busy[0].wait_for_start()

    def end_busy(self):
        """Waits for that; returns how many requests fio counts and how many the daemon does."""
        job, before = self._busy
        self._busy = None
        row = self._row(job.wait())
        return {"fio": row["ios"], "daemon": self.rig.served("bulk") - before}

    def bursts(self, count, pause_ms, warmup, seconds):
        """Bursts of so many reads; each read as (ms since the start when it ended, ns that it took) in the order of their ends."""
        text = BURSTS.format(count=count, pause_us=pause_ms * 1000, runtime_ms=round((warmup + seconds) * 1000))
        guest = self.guests["interactive"]
        job = guest.start_job("bursts", text, warmup + seconds + 60)
        job.wait_for_start()
        time.sleep(warmup)
        since, before = time.monotonic(), self.rig.served("bulk")
        time.sleep(seconds)
        bulk = (self.rig.served("bulk") - before) / (time.monotonic() - since)
        row = self._row(job.wait())
        reads = [[int(word) for word in line.split(", ")[:2]] for line in guest.fetch(LOG).decode().splitlines()]
        return {"reads": reads, "bulk_iops": bulk, "ios": row["ios"]}

    @staticmethod
    def _row(result):
        found = fioresult.problems(result)
        if found:
            raise GuestError(f"{result.name}: {'; '.join(found)}")
        return fioresult.rows(result)[0]
