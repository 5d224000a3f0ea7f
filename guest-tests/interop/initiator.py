"""Linux's initiator (nvme-tcp, native multipath) in a guest, against mpath-target on the host with two listeners."""

import json
import re
import subprocess
import time

from case import PATIENCE, check, wait_for
from rig import NQN, Rig
from tap import Tap

SIZE = 64 << 20  # bytes
NAMESPACE = f"mem:{SIZE >> 20}MiB,uuid=5b0a2b6e-7d0f-4d0c-9a51-2f2b4c3b8f10"
HOST = "10.0.2.2"  # the host's loopback, as QEMU's user network shows it
HOSTNQN = "nqn.2014-08.org.nvmexpress:uuid:2c8a3f0e-92c4-4e4b-b6a8-5a5f6f1e7d42"
HOSTID = "2c8a3f0e-92c4-4e4b-b6a8-5a5f6f1e7d42"
REROUTED = 1.0  # seconds, the limit for an ANA change
FIO = """
[global]
filename=/dev/nvme0n1
ioengine=io_uring
direct=1
iodepth=16
blockalign=4k
rw=randwrite
verify=crc32c
"""
MIXED = "bssplit=4k/60:16k/20:32k/10:256k/10\nsize=16m\n"
# The job takes at least 10 s by its rate. With a time limit, fio would skip the rest of the verification.
STEADY = "[steady]\nbs=4k\nsize=40m\nrate_iops=1000\nverify_backlog=64\n"
ABOUT_US = re.compile(r"nvme|BUG|WARNING|Oops|I/O error|blocked for more")
USUAL = re.compile(
    r"nvme nvme\d+: (creating \d+ I/O queues|mapped |new ctrl|Removing ctrl|rescanning|failed to connect.*|Property Set)|nvme_fabrics"
)


class Target:
    """mpath-target with two ports and further `options`, changed through its control API."""

    def __init__(self, directory, *options):
        self._api = directory / "target.sock"
        self._rig = Rig(directory, namespace=NAMESPACE, target_options=("--api", self._api, *options))

    def __enter__(self):
        self._rig.start_targets()
        self.ports = [int(path.rsplit(":", 1)[1]) for path in self._rig.paths]
        return self

    def __exit__(self, *_):
        self._rig.stop()

    def log(self):
        """What the target has printed to stderr."""
        return self._rig.log("mpath-target").read_text()

    def set(self, port, *settings):
        """`mpath-target ctl set` for a port id (from 1), or for "all"."""
        self._ctl("set", str(port), *settings)

    def status(self):
        return json.loads(self._ctl("status"))

    def _ctl(self, *words):
        command = [str(self._rig.binaries / "mpath-target"), "ctl", "--api", str(self._api), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        check(done.returncode == 0, f"mpath-target ctl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


class World:
    """The guest, and the target to which it connects. The controllers are nvme0 and nvme1, and nvme0n1 is the disk above them."""

    def __init__(self, guest, target):
        self.guest, self.target = guest, target

    def sh(self, script, **options):
        return self.guest.sh(script, **options)

    def connect(self, *options, ports=None, timeout=30):
        """Connects a controller through each port. Then Linux uses both paths in turn."""
        for port in ports or self.target.ports:
            words = [
                *("transport=tcp", f"traddr={HOST}", f"trsvcid={port}", f"nqn={NQN}", f"hostnqn={HOSTNQN}", f"hostid={HOSTID}"),
                *("nr_io_queues=2", "reconnect_delay=1", "ctrl_loss_tmo=60", "keep_alive_tmo=5", *options),
            ]
            self.sh(f"echo '{','.join(words)}' >/dev/nvme-fabrics", timeout=timeout)
        wait_for(lambda: "nvme0n1" in self.sh("ls /sys/block"), PATIENCE, "a disk nvme0n1")
        self.sh("echo round-robin >/sys/class/nvme-subsystem/nvme-subsys0/iopolicy")

    def states(self):
        return self.sh("cat /sys/class/nvme/nvme*/state").split()

    def disconnect(self):
        self.sh("for one in /sys/class/nvme/nvme*; do echo 1 >$one/delete_controller; done")
        left = self.sh("ls /sys/block /sys/class/nvme").split()
        check(not [name for name in left if name.startswith("nvme")], f"left after disconnecting: {left}")

    def ios(self):
        """Reads and writes completed so far, by path."""
        text = self.sh("cat /sys/block/nvme0c*n1/stat")
        return [int(line.split()[0]) + int(line.split()[4]) for line in text.splitlines()]

    def carries(self, index):
        """Returns a condition: the path has completed 20 requests more than at this call."""
        before = self.ios()[index]
        return lambda: self.ios()[index] >= before + 20

    def path(self, index, what):
        return self.sh(f"cat /sys/block/nvme0c{index}n1/{what}").strip()

    def write_job(self, extra):
        self.sh(f"cat >job.fio <<'.'\n{FIO}{extra}\n.\nrm -f out.json exit")

    def start_fio(self, extra):
        """Starts fio in the background of the guest."""
        self.write_job(extra)
        self.sh(
            "(fio --output-format=json --output=out.json job.fio >/dev/null 2>&1; echo $? >exit) >/dev/null 2>&1 &"
        )

    def end_fio(self, timeout=3 * PATIENCE):
        """Waits for fio. Returns how much it has verified, in words."""
        wait_for(lambda: self.sh("cat exit 2>/dev/null", check=False).strip(), timeout, "the end of fio")
        code, text = self.sh("cat exit").strip(), self.sh("cat out.json", check=False)
        check(code == "0" and "{" in text, f"fio ended with code {code}: {text[:300]}")
        job = json.loads(text[text.index("{"):])["jobs"][0]
        check(job["error"] == 0, f"fio: error {job['error']}")
        reads, writes = job["read"]["total_ios"], job["write"]["total_ios"]
        check(0 < writes <= reads, f"fio verified {reads} of {writes} writes")
        return f"{writes} writes, all verified"

    def complaints(self):
        lines = self.sh("dmesg -c | cut -c 1-200").splitlines()
        return [line for line in lines if ABOUT_US.search(line) and not USUAL.search(line)]

    def quiet(self):
        complaints = self.complaints()
        check(not complaints, f"the initiator's kernel complains: {'; '.join(complaints[:5])}")


def connect(world, _):
    world.complaints()
    world.connect()
    controllers = world.sh("cd /sys/class/nvme-subsystem/nvme-subsys0; ls -d nvme[0-9]").split()
    check(controllers == ["nvme0", "nvme1"], f"one subsystem should have nvme0 and nvme1, has {controllers}")
    sectors = int(world.sh("cat /sys/block/nvme0n1/size"))
    check(sectors * 512 == SIZE, f"the disk has {sectors * 512} bytes, not {SIZE}")
    for index in (0, 1):
        check(world.path(index, "ana_state") == "optimized", f"path {index} is {world.path(index, 'ana_state')}")
    world.quiet()
    return f"one multipath disk of {SIZE >> 20} MiB, controllers {', '.join(controllers)}"


def verify(world, _):
    before = world.ios()
    # fdatasync causes flushes. sync=dsync makes each write FUA, so only a part of the job has it.
    world.start_fio(f"[flush]\n{MIXED}fdatasync=32\n")
    said = world.end_fio()
    check(all(now > then for then, now in zip(before, world.ios())), f"a path carried nothing: {before}, {world.ios()}")
    world.start_fio("[fua]\nbs=4k\nsize=2m\nsync=dsync\n")
    said += f"; with FUA: {world.end_fio()}"
    world.quiet()
    return said


def ana_change(world, _):
    world.start_fio(STEADY)
    wait_for(world.carries(1), PATIENCE, "I/O on path 1")
    start = last = time.monotonic()
    before = world.ios()[1]
    world.target.set(2, "ana=inaccessible")
    while time.monotonic() < start + 2:
        now = world.ios()[1]
        if now != before:
            before, last = now, time.monotonic()
    check(world.path(1, "ana_state") == "inaccessible", f"the kernel says {world.path(1, 'ana_state')}")
    check(last - start < REROUTED, f"the path still carried I/O {(last - start) * 1000:.0f} ms later")
    wait_for(world.carries(0), PATIENCE, "I/O on path 0")
    world.target.set(2, "ana=optimized")
    back = wait_for(world.carries(1), PATIENCE, "I/O on path 1, optimized again")
    said = world.end_fio()
    world.quiet()
    return f"off in {(last - start) * 1000:.0f} ms, back in {back * 1000:.0f} ms; {said}"


def port_lost(world, _):
    world.start_fio(STEADY)
    wait_for(world.carries(1), PATIENCE, "I/O on path 1")
    world.target.set(2, "listen=off", "reset=all")
    try:
        wait_for(lambda: world.sh("cat /sys/class/nvme/nvme1/state").strip() == "connecting", PATIENCE, "nvme1 connecting")
        wait_for(world.carries(0), PATIENCE, "I/O on path 0")
        time.sleep(2)
    finally:
        world.target.set(2, "listen=on")
    back = wait_for(lambda: world.sh("cat /sys/class/nvme/nvme1/state").strip() == "live", PATIENCE, "nvme1 live again")
    wait_for(world.carries(1), PATIENCE, "I/O on path 1 again")
    said = world.end_fio()
    world.complaints()
    return f"live {back:.1f} s after the port was back; {said}"


def digests(world, _):
    with Tap(world.target.ports[0]) as tap:
        world.connect("hdr_digest", "data_digest", ports=[tap.port, world.target.ports[1]])
        world.start_fio(f"[digests]\n{MIXED}")
        said = world.end_fio()
        world.disconnect()
    check(tap.digests and set(tap.digests) == {(3, 3)}, f"asked for and granted: {tap.digests}")
    world.quiet()
    return said


def disconnect(world, _):
    world.disconnect()
    world.quiet()
    return "no controller, no disk, no complaint"


TESTS = [
    ("linux-connect", connect),
    ("linux-verify", verify),
    ("linux-ana-change", ana_change),
    ("linux-port-lost", port_lost),
    ("linux-disconnect", disconnect),
    ("linux-digests", digests),
]
