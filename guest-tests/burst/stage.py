"""Two guests whose disks share the slots of one service. The bulk guest keeps the slots busy, and the interactive guest sends
bursts.

    with Stage(directory, Service(slots=13, delay_ms=10), flows=8, depth=32) as stage:
        stage.start_busy()
        stage.switch("burst-credit", bulk_weight=100)
        stage.bursts(count=32, pause_ms=50, settle=2, seconds=4)
        stage.end_busy()
"""

import json
import time
from collections import namedtuple
from contextlib import ExitStack

import fioresult
from guest import Guest, GuestError
from rig import NQN, Rig

Service = namedtuple("Service", "slots delay_ms")

NAMESPACE = "mem:512MiB"
DISKS = ("interactive", "bulk")
# How much the requests that the daemon sends for a disk and those that fio counts may differ, because some are under way.
COUNT_TOLERANCE = 0.02

READS = """\
[global]
filename=${{DISK}}
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
# The file that `write_lat_log` makes.
LOG = "bursts_lat.1.log"
BUSY = READS + """
[busy]
iodepth={depth}
numjobs=${{QUEUES}}
cpus_allowed=0-${{LAST_CPU}}
cpus_allowed_policy=split
group_reporting=1
runtime={runtime}s
"""
# The longest time of a busy job, in seconds. The job is stopped long before.
LIMIT = 600


class SharedPath(Rig):
    """A target with a namespace for each disk, which delays each answer, and a daemon with both disks over one path."""

    def __init__(self, directory, service, queues):
        self._listener = f"127.0.0.1:0,delay={service.delay_ms}ms"
        super().__init__(
            directory,
            namespace=NAMESPACE,
            listeners=(self._listener,),
            target_options=("--namespace", NAMESPACE),
        )
        self.sockets = {disk: self.directory / f"{disk}.sock" for disk in DISKS}
        self._service, self._queues = service, queues

    def daemon_words(self):
        config = self.directory / "disks.yaml"
        config.write_text(json.dumps(self.config()))  # which is YAML too
        return ["--config", config]

    def config(self):
        own, other = (
            {"name": disk, "socket-path": str(self.sockets[disk]), "namespace": index + 1, "queues": self._queues}
            for index, disk in enumerate(DISKS)
        )
        # The window is the number of slots. It holds for each I/O thread, so there is only one.
        shared = {
            **{"subsystem": NQN, "paths": self.paths, "policy": "numa", "scheduler": "fifo", "window": {"ios": self._service.slots}},
            "share-paths-with": [other],
        }
        return {"api": str(self.api), "io-threads": 1, "disks": [own | shared]}

    def commands(self):
        """The commands that run here, for the published section."""
        config = json.dumps(self.config()).replace(f"{self.directory}/", "$DIR/")
        return [
            f"mpath-target --nqn {NQN} --namespace {NAMESPACE} --namespace {NAMESPACE} --listen {self._listener}",
            f"echo '{config}' >disks.yaml",
            "vhost-blk-mpath --config disks.yaml",
        ]

    def served(self, disk):
        """The number of requests that the daemon has sent for a disk since its start."""
        (detail,) = self.ctl("scheduler", "show", "--disk", disk)
        return sum(queue["served"] for queue in detail["queues"])


class Stage:
    """Target, daemon and guests. `flows` is the number of the bulk guest's virtqueues, which need as many virtual processors."""

    def __init__(self, directory, service, flows, depth):
        self._directory, self._service, self._flows, self._depth = directory, service, flows, depth
        self._stack = ExitStack()
        self._busy = None

    def __enter__(self):
        with ExitStack() as stack:
            self.rig = stack.enter_context(SharedPath(self._directory, self._service, self._flows))
            self.guests = {disk: stack.enter_context(self._guest(disk, cpus)) for disk, cpus in zip(DISKS, (1, self._flows))}
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)

    def _guest(self, disk, cpus):
        return Guest(
            self.rig.sockets[disk],
            queues=cpus,
            cpus=cpus,
            on_line=lambda _: None,
            console_log=self._directory / f"{disk}.console",
        )

    def switch(self, scheduler, bulk_weight):
        """Puts a scheduler into force that has learned nothing. Another one comes first, because a scheduler in force keeps its
        state."""
        self.rig.ctl("weight", "set", bulk_weight, "--disk", "bulk")
        self.rig.ctl("scheduler", "set", "fifo")
        self.rig.ctl("scheduler", "set", scheduler)

    def start_busy(self):
        """Has the bulk guest keep all of its virtqueues filled, until `end_busy`."""
        before = self.rig.served("bulk")
        job = self.guests["bulk"].start_job("busy", BUSY.format(depth=self._depth, runtime=LIMIT), LIMIT)
        job.wait_for_start()
        self._busy = job, before

    def end_busy(self):
        """Ends the load of the bulk guest. The daemon and fio must have counted the same number of requests."""
        job, before = self._busy
        job.stop()
        ios = self._row(job.wait())["ios"]
        sent = self.rig.served("bulk") - before
        if abs(sent - ios) > COUNT_TOLERANCE * ios:
            raise GuestError(f"the daemon counts {sent} requests of the bulk guest, and its fio {ios}")

    def bulk_iops(self, settle, seconds):
        """The IOPS of the bulk guest during `seconds`, measured after `settle` seconds."""
        time.sleep(settle)
        since, before = time.monotonic(), self.rig.served("bulk")
        time.sleep(seconds)
        return (self.rig.served("bulk") - before) / (time.monotonic() - since)

    def bursts(self, count, pause_ms, settle, seconds):
        """Has the interactive guest send bursts of `count` reads. Returns the reads in the order of their ends, each as [ms from
        the start to its end, ns that it took], and the IOPS of the bulk guest meanwhile."""
        text = BURSTS.format(count=count, pause_us=pause_ms * 1000, runtime_ms=round((settle + seconds) * 1000))
        guest = self.guests["interactive"]
        job = guest.start_job("bursts", text, settle + seconds + 60)
        job.wait_for_start()
        bulk_iops = self.bulk_iops(settle, seconds)
        self._row(job.wait())
        reads = [[int(word) for word in line.split(",")[:2]] for line in guest.fetch(LOG).decode().splitlines()]
        return {"reads": reads, "bulk_iops": bulk_iops}

    @staticmethod
    def _row(result):
        """The row of a job. A job with a problem is a GuestError."""
        found = fioresult.problems(result)
        if found:
            raise GuestError(f"{result.name}: {'; '.join(found)}")
        (row,) = fioresult.rows(result)
        return row
