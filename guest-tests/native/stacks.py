"""The guest with two paths to one namespace, and the disks that are measured in it.

    with Stage(directory) as stage:
        stage.delay_at_target(0)                       # the first path is slow from now on
        native = Native(stage)
        native.select("round-robin")
        native.run("randread", depth=32, seconds=1, warmup=0.3)
"""

import json
import subprocess
import time

from case import check, wait_for
from linux import LinuxGuest
from rig import NQN, Rig

DELAY_MS = 30
SIZE_MIB = 64
PATHS = 2
# The host's loopback as the guest sees it, through one network device for each path.
HOSTS = ("10.0.2.2", "10.0.3.2")
HOSTNQN = "nqn.2014-08.org.nvmexpress:uuid:9d6f6b1c-3c5e-4f0e-8b53-0d6a5e9b7c11"
HOSTID = "9d6f6b1c-3c5e-4f0e-8b53-0d6a5e9b7c11"
SUBSYSTEM = "/sys/class/nvme-subsystem/nvme-subsys0"
# Linux's policies. Those that the kernel does not have are left out: queue-depth came with 6.11.
LINUX_POLICIES = ("numa", "round-robin", "queue-depth")
FIO = (
    "fio --name=cell --filename={disk} --ioengine=io_uring --direct=1 --rw={rw} --bs=4k --iodepth={depth} --norandommap "
    "--randrepeat=0 --thread --time_based --runtime={seconds} --ramp_time={warmup} --percentile_list=50:99:99.9 "
    "--output-format=json"
)


class BenchGuest(LinuxGuest):
    """A guest with two network devices, the disk of the daemon on the host, and a read-only disk that contains our programs."""

    def __init__(self, socket, programs, **options):
        super().__init__(forwards=[()] * PATHS, **options)
        self._socket, self._programs = socket, programs

    def devices(self):
        return [
            *("-object", f"memory-backend-memfd,id=ram,size={self._memory_mib}M,share=on", "-machine", "memory-backend=ram"),
            *("-chardev", f"socket,id=disk,path={self._socket}", "-device", "vhost-user-blk-pci,chardev=disk,num-queues=1"),
            *("-drive", f"file={self._programs},format=raw,if=none,id=programs,readonly=on"),
            *("-device", "virtio-blk-pci,drive=programs"),
            *super().devices(),
        ]


class Stage:
    """The target with a listener for each path, the daemon on the host, and the guest, whose Linux is connected to both
    listeners."""

    def __init__(self, directory):
        self._target_api = directory / "target.sock"
        self.rig = Rig(directory, namespace=f"mem:{SIZE_MIB}MiB", policy="numa", target_options=("--api", self._target_api))
        self._programs = directory / "programs.cpio"
        self._directory = directory

    def __enter__(self):
        self.rig.start()
        try:
            self.ports = [path.rsplit(":", 1)[1] for path in self.rig.paths]
            pack(self._programs, self._directory, [self.rig.binaries / name for name in InGuest.PROGRAMS])
            log = self._directory / "console.log"
            self.guest = BenchGuest(self.rig.socket, self._programs, console_log=log)
            self.guest.__enter__()
        except BaseException:
            self.rig.stop()
            raise
        try:
            self.guest.sh("cd / && cpio -id </dev/vdb 2>/dev/null", timeout=60)
            for host, port in zip(HOSTS, self.ports):
                self.guest.sh(f"echo '{connect_words(host, port)}' >/dev/nvme-fabrics")
            wait_for(lambda: self.guest.sh("ls -d /sys/block/nvme0c*n1 | wc -l").strip() == str(PATHS), 5, "both paths of nvme0n1")
            # Every block is written once, so that the target has all of its memory before a measurement.
            self.guest.sh(f"dd if=/dev/zero of=/dev/vda bs=1M count={SIZE_MIB} oflag=direct 2>&1", timeout=60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.guest.stop()
        self.rig.stop()

    def uptime(self):
        """The guest's clock, in seconds."""
        return float(self.guest.sh("cut -d ' ' -f 1 /proc/uptime"))

    def delay_at_target(self, slow):
        """Makes a path slow at its listener, which delays answers. With None, no path is slow."""
        for index in range(PATHS):
            delay = f"delay={DELAY_MS if index == slow else 0}ms"
            command = [self.rig.binaries / "mpath-target", "ctl", "--api", self._target_api, "set", str(index + 1), delay]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=30)
            check(done.returncode == 0, f"mpath-target ctl set {index + 1} {delay}: {done.stderr.strip()}")

    def delay_by_netem(self, slow):
        """Makes a path slow at its network device in the guest, which delays sent packets. With None, no path is slow."""
        for index in range(PATHS):
            words = f"/bin/tc qdisc replace dev eth{index} root netem delay {DELAY_MS}ms limit 10000"
            self.guest.sh(words if index == slow else f"/bin/tc qdisc del dev eth{index} root 2>/dev/null || true")


def connect_words(host, port):
    """The options of a connection. There is one I/O queue, so Linux has as many connections on each path as a daemon with one I/O
    thread."""
    return ",".join([
        *("transport=tcp", f"traddr={host}", f"trsvcid={port}", f"nqn={NQN}", f"hostnqn={HOSTNQN}", f"hostid={HOSTID}"),
        "nr_io_queues=1",
    ])  # fmt: skip


def pack(archive, directory, programs):
    """A cpio of stripped programs and the libraries that they load, as a disk can hold it."""
    root = directory / "programs"
    libraries = set()
    (root / "bin").mkdir(parents=True)
    for program in programs:
        check(program.exists(), f"{program} is missing: run make build")
        done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True)
        libraries |= {word for word in done.stdout.split() if word.startswith("/")}
        subprocess.run(["strip", "-o", str(root / "bin" / program.name), str(program)], check=True)
    for library in libraries:
        (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-L", library, str(root / library[1:])], check=True)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with open(archive, "wb") as file:
        cpio = ["cpio", "--quiet", "--create", "--format=newc"]
        subprocess.run(cpio, cwd=root, input=names.encode(), stdout=file, check=True)
    with open(archive, "ab") as file:
        file.truncate(-(-archive.stat().st_size // 512) * 512)


def fio(guest, disk, rw, depth, seconds, warmup):
    """Measures a disk of the guest with fio. Returns a sample."""
    words = FIO.format(disk=disk, rw=rw, depth=depth, seconds=milliseconds(seconds), warmup=milliseconds(warmup))
    text = guest.sh(words, timeout=seconds + warmup + 60)
    job = json.JSONDecoder().raw_decode(text[text.index("{"):])[0]["jobs"][0]
    check(job["error"] == 0, f"fio on {disk}: error {job['error']}")
    figures = job[rw.removeprefix("rand")]
    check(figures["total_ios"] > 0, f"fio on {disk}: no I/O")
    percentiles = figures["clat_ns"]["percentile"]
    p50, p99, p99_9 = (percentiles[name] / 1000 for name in ("50.000000", "99.000000", "99.900000"))
    return {"iops": figures["iops"], "p50_us": p50, "p99_us": p99, "p99.9_us": p99_9}


def milliseconds(seconds):
    return f"{round(seconds * 1000)}ms"


class Native:
    """Linux's own multipath disk."""

    NAME = "Linux"

    def __init__(self, stage):
        self._stage, self._guest = stage, stage.guest
        self._policy = None
        words = f"for policy in {' '.join(LINUX_POLICIES)}; do echo $policy 2>/dev/null >{SUBSYSTEM}/iopolicy && echo $policy; done"
        self.policies = self._guest.sh(words, check=False).split()
        check({"numa", "round-robin"} <= set(self.policies), f"the guest's kernel has only these policies: {self.policies}")

    def select(self, policy):
        self._policy = policy
        # Before 6.11, Linux with numa stays on the path that it used last. The table wants the first path, so Linux has to use it
        # last.
        if policy == "numa":
            self._use_first_path_last()
        self._guest.sh(f"echo {policy} >{SUBSYSTEM}/iopolicy")

    def _use_first_path_last(self):
        self._guest.sh(
            f"echo round-robin >{SUBSYSTEM}/iopolicy\n"
            "ios() { awk '{print $1}' /sys/block/nvme0c0n1/stat; }\n"
            "for try in 1 2 3; do\n"
            "    before=$(ios)\n"
            "    dd if=/dev/nvme0n1 of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null || exit 1\n"
            '    [ "$(ios)" = "$before" ] || exit 0\n'
            "done\n"
            "exit 1"
        )

    def path_ios(self):
        """Reads and writes completed so far, by path."""
        lines = self._guest.sh("cat /sys/block/nvme0c0n1/stat /sys/block/nvme0c1n1/stat").splitlines()
        return [int(line.split()[0]) + int(line.split()[4]) for line in lines]

    def run(self, rw, depth, seconds, warmup):
        return fio(self._guest, "/dev/nvme0n1", rw, depth, seconds, warmup)

    def commands(self):
        connect = f"echo '{connect_words('HOST', 'PORT')}' >/dev/nvme-fabrics"
        return [connect, FIO.format(disk="/dev/nvme0n1", rw="RW", depth="N", seconds="SECONDS", warmup="WARMUP")]


class OnHost:
    """The daemon on the host. The guest has its disk as /dev/vda."""

    NAME = "vhost-blk-mpath"

    def __init__(self, stage):
        self._stage = stage

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def select(self, policy):
        self._stage.rig.ctl("policy", "set", policy)

    def path_ios(self):
        return self._stage.rig.path_ios()

    def run(self, rw, depth, seconds, warmup):
        return fio(self._stage.guest, "/dev/vda", rw, depth, seconds, warmup)

    def commands(self):
        paths = " ".join(f"--path tcp://127.0.0.1:{port}" for port in self._stage.ports)
        return [f"vhost-blk-mpath --socket-path $DIR/disk.sock --subsystem {NQN} {paths} --api $DIR/api.sock"]


class InGuest:
    """The daemon in the guest, on the same network as Linux's initiator. Its front-end is a vublk-bench in the guest."""

    NAME = "vhost-blk-mpath"
    PROGRAMS = ("vhost-blk-mpath", "mpathctl", "vublk-bench")
    READY_TIMEOUT = 20  # seconds

    def __init__(self, stage):
        self._stage, self._guest = stage, stage.guest
        paths = " ".join(f"--path tcp://{host}:{port}" for host, port in zip(HOSTS, stage.ports))
        self._command = f"vhost-blk-mpath --socket-path /tmp/disk.sock --subsystem {NQN} {paths} --api /tmp/api.sock"

    def __enter__(self):
        self._guest.sh(f"{self._command} >/tmp/daemon.log 2>&1 & echo $! >/tmp/daemon.pid")
        give_up = time.monotonic() + self.READY_TIMEOUT
        while "live" not in self._guest.sh("mpathctl --api /tmp/api.sock path list 2>&1", check=False):
            log = self._guest.sh("cat /tmp/daemon.log")
            check(time.monotonic() < give_up, f"the daemon in the guest is not ready: {log.strip()}")
        return self

    def __exit__(self, exc_type, *_):
        # After an exception the guest may not answer. It ends then, and the daemon with it.
        if exc_type is None:
            self._guest.sh("kill $(cat /tmp/daemon.pid)")

    def _ctl(self, *words):
        return self._guest.sh(f"mpathctl --api /tmp/api.sock -o json {' '.join(words)}")

    def select(self, policy):
        self._ctl("policy", "set", policy)

    def path_ios(self):
        paths = json.loads(self._ctl("path", "list"))
        return [sum(path[kind]["ios"] for kind in ("read", "write", "other")) for path in paths]

    def run(self, rw, depth, seconds, warmup):
        words = self._bench(rw, depth, milliseconds(seconds), milliseconds(warmup))
        report = json.loads(self._guest.sh(words, timeout=seconds + warmup + 60))
        check(report["ok"], f"vublk-bench: {report['failures']}")
        figures = report["total"][rw.removeprefix("rand")]
        check(figures["ios"] > 0, "vublk-bench: no I/O")
        latency = figures["latency_us"]
        return {"iops": figures["iops"], **{f"{name}_us": latency[name] for name in ("p50", "p99", "p99.9")}}

    @staticmethod
    def _bench(rw, depth, seconds, warmup):
        return (
            f"vublk-bench --socket-path /tmp/disk.sock --rw {rw} --bs 4k --iodepth {depth} --time {seconds} --warmup {warmup} -o json"
        )

    def commands(self):
        return [self._command, self._bench("RW", "N", "SECONDS", "WARMUP")]
