"""This daemon, with two paths, against Linux's nvmet. vublk-bench is the front-end and checks every byte."""

import json
import re
import signal
import subprocess
import threading
import time

from case import PATIENCE, Failed, check, wait_for
from nvmet import BLOCK, SIZE
from rig import Rig
from tap import Tap

QUEUES = 2
FUA = 0x4000  # bit 14 of a command's control word, as the trace shows it
REROUTED = 1.0  # seconds, the limit for an ANA change
BACK_TIMEOUT = 20  # seconds
# Both controllers write to one null_blk, so there is only one cache.
OPTIONS = ("--shared-write-cache", "--reconnect-delay", 1)


def rig_of(directory, nvmet, *options, paths=None, io_threads=1):
    return Rig(directory, policy="round-robin", io_threads=io_threads, paths=paths or nvmet.paths, options=(*OPTIONS, *options))


class Bench:
    """A vublk-bench that runs, by default with `--rw verify`."""

    def __init__(self, rig, *words, rw="verify", seconds=3, bs="64k", size="8MiB", queues=QUEUES, iodepth=8):
        self._process = subprocess.Popen(
            [
                *(str(rig.binaries / "vublk-bench"), "--socket-path", str(rig.socket), "--rw", rw, "--bs", bs, "--size", size),
                *("--time", f"{seconds}s", "--queues", str(queues), "--iodepth", str(iodepth), "-o", "json", *words),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def report(self):
        """Waits for the end. Returns the report, which must have no failures."""
        out, err = self._process.communicate(timeout=120)
        check(out.strip(), f"vublk-bench ended with code {self._process.returncode}: {err.strip()}")
        report = json.loads(out)
        wrong = {name: value for name, value in report["failures"].items() if value}
        wrong |= {"miscompares": report["verify"]["miscompares"]} if report.get("verify") else {}
        check(self._process.returncode == 0 and report["ok"], f"vublk-bench, seed {report['seed']}: {str(wrong)[:400]}")
        return report


def bench(rig, *words, **options):
    with Bench(rig, *words, **options) as running:
        return running.report()


class Benches(threading.Thread):
    """Runs vublk-bench repeatedly until `end`. Each run reads all that it has written back."""

    def __init__(self, rig):
        super().__init__(name="benches", daemon=True)
        self._rig, self._end = rig, threading.Event()
        self._runs, self._blocks, self._failed = 0, 0, None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self.join()

    def run(self):
        try:
            while not self._end.is_set():
                counts = bench(self._rig, seconds=2)["verify"]
                self._runs += 1
                self._blocks += counts["blocks_verified"] + counts["blocks_read_back"]
        except (Failed, OSError, ValueError, subprocess.TimeoutExpired) as failed:
            self._failed = failed

    def end(self):
        """Ends the load. Returns how much was verified, in words. Fails the test if a run has failed."""
        self._end.set()
        self.join()
        check(self._failed is None, str(self._failed))
        return f"{self._blocks} blocks verified in {self._runs} runs"


def verified(report):
    return f"{report['completed']} requests, {report['verify']['blocks_verified'] + report['verify']['blocks_read_back']} blocks verified"


def both_carried(rig):
    check(0 not in rig.path_ios(), f"a path carried nothing: {rig.path_ios()}")


def quiet(nvmet, expected=None):
    """Fails if the target's kernel has logged anything unusual that does not match `expected`."""
    complaints = [line for line in nvmet.complaints() if not expected or not re.search(expected, line)]
    check(not complaints, f"the target's kernel complains: {'; '.join(complaints[:5])}")


def live(rig, *indices):
    paths = rig.ctl("path", "list")
    return all(paths[index]["state"] == "live" for index in indices)


def identify(nvmet, directory):
    with rig_of(directory, nvmet) as rig:
        wait_for(lambda: live(rig, 0, 1), PATIENCE, "both paths live")
        disks, paths = rig.ctl("status")["disks"], rig.ctl("path", "list")
        check(len(disks) == 1, f"{len(disks)} disks")
        shape = (disks[0]["capacity-bytes"], disks[0]["block-size-bytes"], disks[0]["namespace"])
        check(shape == (SIZE, BLOCK, 1), f"the disk is {shape}, not {(SIZE, BLOCK, 1)}")
        check([path["ana-state"] for path in paths] == ["optimized"] * 2, "ANA states are not both optimized")
        check(paths[0]["cntlid"] != paths[1]["cntlid"], "both paths have one controller")
        report = bench(rig, seconds=1)
        device = report["device"]
        check(device["capacity_bytes"] == SIZE, f"the front-end sees {device['capacity_bytes']} bytes")
        check(device["flush"] and device["discard"] and device["write_zeroes"], f"the front-end is not offered all: {device}")
    quiet(nvmet)
    return f"one disk of {SIZE >> 20} MiB, controllers {paths[0]['cntlid']} and {paths[1]['cntlid']}"


def digests(header, data):
    def test(nvmet, directory):
        options = ["--hdr-digest"] * header + ["--data-digest"] * data
        with Tap(int(nvmet.paths[0].rsplit(":", 1)[1])) as tap:
            paths = [f"tcp://127.0.0.1:{tap.port}", nvmet.paths[1]]
            with rig_of(directory, nvmet, *options, paths=paths) as rig:
                report = bench(rig)
                both_carried(rig)
        expected = header | data << 1
        check(tap.digests and set(tap.digests) == {(expected, expected)}, f"asked for and granted: {tap.digests}")
        quiet(nvmet)
        return verified(report)

    return test


def commands(nvmet, directory):
    with rig_of(directory, nvmet) as rig:
        nvmet.trace(True)
        report = bench(rig)
        seen = nvmet.trace(False)
        both_carried(rig)
    counts = {name: len(seen.get(f"nvme_cmd_{name}", ())) for name in ("read", "write", "write_zeroes", "dsm", "flush")}
    check(all(counts.values()), f"not all commands arrived: {counts}")
    check(all("attributes=4" in one for one in seen["nvme_cmd_dsm"]), "a DSM that does not deallocate")
    check(report["verify"]["blocks_zeroed"] and report["verify"]["blocks_discarded"], "nothing zeroed or discarded")
    quiet(nvmet)
    return "arrived: " + ", ".join(f"{count} {name}" for name, count in counts.items())


def fua(nvmet, directory):
    with rig_of(directory, nvmet) as rig:
        arrived = {}
        for through in (True, False):
            nvmet.trace(True)
            bench(rig, *(["--write-through"] * through), rw="randwrite", bs="4k", seconds=1)
            seen = nvmet.trace(False)
            marked = [bool(int(re.search(r"ctrl=(\w+)", one)[1], 16) & FUA) for one in seen["nvme_cmd_write"]]
            arrived[through] = (sum(marked), len(marked), len(seen.get("nvme_cmd_flush", ())))
    marked, writes, flushes = arrived[True]
    check(marked == writes > 0 and flushes == 0, f"write-through: {marked} of {writes} writes had FUA, {flushes} flushes")
    check(arrived[False][0] == 0, f"write-back: {arrived[False][0]} writes had FUA")
    quiet(nvmet)
    return f"write-through: all {writes} writes had FUA; write-back: none of {arrived[False][1]}"


def large(nvmet, directory):
    with rig_of(directory, nvmet) as rig:
        nvmet.trace(True)
        report = bench(rig, bs="1MiB", size="32MiB", iodepth=4, seconds=4)
        seen = nvmet.trace(False)
        both_carried(rig)
    longest = max(int(re.search(r"len=(\d+)", one)[1]) + 1 for one in seen["nvme_cmd_write"]) * BLOCK
    check(longest >= 1 << 18, f"the longest write command had {longest} bytes")
    quiet(nvmet)
    return f"{verified(report)}, commands of up to {longest >> 10} KiB"


def io_queues(nvmet, directory):
    with rig_of(directory, nvmet, io_threads=3) as rig:
        report = bench(rig, queues=4)
        both_carried(rig)
        connections = [nvmet.connections(index) for index in (0, 1)]
    # Each path has an admin queue, and an I/O queue for each thread.
    check(connections == [4, 4], f"3 I/O threads have {connections} connections, not 4 a path")
    quiet(nvmet)
    return f"{verified(report)}, {connections[0]} connections a path"


def keep_alive(nvmet, directory):
    with rig_of(directory, nvmet, "--keep-alive-tmo", 2) as rig:
        wait_for(lambda: live(rig, 0, 1), PATIENCE, "both paths live")
        before = [path["cntlid"] for path in rig.ctl("path", "list")]
        nvmet.trace(True)
        time.sleep(15)
        count = len(nvmet.trace(False).get("nvme_admin_keep_alive", ()))
        after = [path["cntlid"] for path in rig.ctl("path", "list")]
        check(live(rig, 0, 1) and before == after, f"idle for 15 s: controllers {before} became {after}")
        check(count >= 14, f"only {count} keep-alives in 15 s on two paths")
        quiet(nvmet)
        # The target must really need them: without keep-alives it ends both associations.
        rig.daemon.send_signal(signal.SIGSTOP)
        try:
            time.sleep(6)
        finally:
            rig.daemon.send_signal(signal.SIGCONT)
        expired = [line for line in nvmet.complaints() if "keep-alive timer" in line]
        check(len(expired) == 2, f"stopped for 6 s, but the target gave up {len(expired)} of 2 controllers")
        seconds = wait_for(lambda: live(rig, 0, 1) and bool(bench(rig, seconds=1)), BACK_TIMEOUT, "both paths live again")
        both_carried(rig)
    nvmet.complaints()
    return f"{count} keep-alives in 15 s; stopped for 6 s, both controllers were given up, and back {seconds:.1f} s later"


class Watch:
    """Watches one path by `mpathctl path list`."""

    def __init__(self, rig, index):
        self._rig, self._index = rig, index
        self.last_busy = time.monotonic()
        self._ios = None
        self.look()

    def look(self):
        """Asks once. Records when the path last completed requests, and when it last owed answers."""
        path = self._rig.ctl("path", "list")[self._index]
        classes = [path[kind] for kind in ("read", "write", "other")]
        ios = sum(one["ios"] for one in classes)
        if ios != self._ios or any(one["in-flight"] for one in classes):
            self.last_busy = time.monotonic()
        self._ios = ios
        return path

    def watch(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(0.02)


def carries(rig, index):
    """Returns a condition: the path has completed 20 requests more than at this call."""
    before = rig.path_ios()[index]
    return lambda: rig.path_ios()[index] >= before + 20


def ana_change(nvmet, directory):
    said = []
    with rig_of(directory, nvmet, io_threads=2) as rig, Bench(rig, seconds=12) as load:
        for state, index in (("inaccessible", 1), ("non-optimized", 0)):
            other = 1 - index
            wait_for(carries(rig, index), PATIENCE, f"I/O on path {index}")
            watch = Watch(rig, index)
            start = time.monotonic()
            nvmet.set_ana(index, state)
            watch.watch(2)
            rerouted = watch.last_busy - start
            check(watch.look()["ana-state"] == state, f"path {index} is {watch.look()['ana-state']}, not {state}")
            check(rerouted < REROUTED, f"{state}: the path still carried I/O {rerouted * 1000:.0f} ms later")
            wait_for(carries(rig, other), PATIENCE, f"I/O on path {other}")
            nvmet.set_ana(index, "optimized")
            back = wait_for(carries(rig, index), PATIENCE, f"I/O on path {index}, optimized again")
            said.append(f"{state}: off in {max(rerouted, 0) * 1000:.0f} ms, back in {back * 1000:.0f} ms")
        report = load.report()
        retries = [sum(path[kind]["retries"] for kind in ("read", "write", "other")) for path in rig.ctl("path", "list")]
    # nvmet logs each write that it refuses on an inaccessible path.
    quiet(nvmet, "nvmet_tcp: failed cmd")
    return f"{'; '.join(said)}; {verified(report)}, retries {retries}"


def port_lost(nvmet, directory):
    with rig_of(directory, nvmet, "--keep-alive-tmo", 1, io_threads=2) as rig, Bench(rig, seconds=14) as load:
        wait_for(carries(rig, 1), PATIENCE, "I/O on path 1")
        nvmet.remove(1)
        try:
            gone = wait_for(lambda: not live(rig, 1), PATIENCE, "path 1 down")
            wait_for(carries(rig, 0), PATIENCE, "I/O on path 0")
            time.sleep(2)
            check(not live(rig, 1), "path 1 is live on a port that is gone")
        finally:
            nvmet.restore(1)
        back = wait_for(lambda: live(rig, 1), BACK_TIMEOUT, "path 1 live again")
        wait_for(carries(rig, 1), PATIENCE, "I/O on path 1 again")
        report = load.report()
        disk = rig.ctl("status")["disks"][0]
    nvmet.complaints()
    moved = ", ".join(
        f"{disk[kind]['ios']} {kind[6:]} moved" + (f" (max {disk[kind]['time']['max-us'] // 1000} ms)" if disk[kind]["time"] else "")
        for kind in ("moved-reads", "moved-writes")
    )
    return f"down in {gone * 1000:.0f} ms, back {back:.1f} s after the port; {moved}; {verified(report)}"


def lose_paths(rig, nvmet, tap, timeout):
    """Ends the connections of path 0, which lead through `tap`, then removes the port of path 1. Each path must come back within
    `timeout` seconds. Returns the times, in words. A load must run. It may wait for the fence of its writes in doubt."""
    for path in (0, 1):
        wait_for(carries(rig, path), timeout, f"I/O on path {path}")
    tap.cut()
    wait_for(lambda: rig.ctl("path", "list")[0]["losses"], PATIENCE, "path 0 lost")
    cut = wait_for(lambda: live(rig, 0), timeout, "path 0 live again")
    wait_for(carries(rig, 0), timeout, "I/O on path 0 again")
    nvmet.remove(1)
    try:
        gone = wait_for(lambda: not live(rig, 1), PATIENCE, "path 1 down")
        wait_for(carries(rig, 0), timeout, "I/O on path 0")
    finally:
        nvmet.restore(1)
    back = wait_for(lambda: live(rig, 1), timeout, "path 1 live again")
    wait_for(carries(rig, 1), timeout, "I/O on path 1 again")
    return f"connections cut: back after {cut:.1f} s; port removed: down in {gone * 1000:.0f} ms, back {back:.1f} s after the port"


def silence(nvmet, directory):
    """The target's answers vanish for 3 s, longer than the association lives."""
    with rig_of(directory, nvmet, "--keep-alive-tmo", 1, io_threads=2) as rig, Bench(rig, seconds=14) as load:
        wait_for(carries(rig, 1), PATIENCE, "I/O on path 1")
        nvmet.set_netem(1, "loss 100%")
        try:
            wait_for(carries(rig, 0), PATIENCE, "I/O on path 0")
            wait_for(lambda: not live(rig, 1), PATIENCE, "path 1 down")
        finally:
            nvmet.set_netem(1, "")
        back = wait_for(lambda: live(rig, 1), BACK_TIMEOUT, "path 1 live again")
        wait_for(carries(rig, 1), PATIENCE, "I/O on path 1 again")
        report = load.report()
    nvmet.complaints()
    return f"back after {back:.1f} s; {verified(report)}"


def drain(nvmet, directory):
    """A path is reset while a slow disk still works on its requests. Its connections must end after these requests, and not
    before."""
    # A fence by time would take more than ten seconds.
    longest = 5.5
    with nvmet.slow_namespace(milliseconds=200) as nsid:
        options = ("--namespace", nsid, "--drain-fence", "--keep-alive-tmo", 5)
        with rig_of(directory, nvmet, *options, io_threads=2) as rig, Bench(rig, bs="32k", iodepth=32, seconds=8) as load:
            for path in (0, 1, 0, 1):
                wait_for(lambda: live(rig, 0, 1), BACK_TIMEOUT, "both paths live")
                wait_for(carries(rig, path), PATIENCE, f"I/O on path {path}")
                rig.ctl("path", "reset", path)
            report = load.report()
            wait_for(lambda: live(rig, 0, 1), BACK_TIMEOUT, "both paths live")
            events = rig.ctl("events")
    lifted = [event["message"] for event in events if event["kind"] == "fence-lifted"]
    check(len(lifted) == 4, f"4 resets, but {lifted}")
    took = []
    for message in lifted:
        found = re.fullmatch(r"fence lifted by drain after ([\d.]+)(ms|s)", message)
        check(found, f"not by drain: {message}")
        took.append(float(found[1]) / (1000 if found[2] == "ms" else 1))
    # Each request under way takes up to 200 ms more. With many requests, the last one takes nearly that.
    check(0.1 < max(took) < longest, f"drained after {took} s")
    nvmet.complaints()
    return f"drained after {', '.join(f'{one:.1f}' for one in took)} s; {verified(report)}"


TESTS = [
    ("nvmet-identify", identify),
    ("nvmet-digests-none", digests(False, False)),
    ("nvmet-digests-header", digests(True, False)),
    ("nvmet-digests-data", digests(False, True)),
    ("nvmet-digests-both", digests(True, True)),
    ("nvmet-commands", commands),
    ("nvmet-fua", fua),
    ("nvmet-large", large),
    ("nvmet-io-queues", io_queues),
    ("nvmet-keep-alive", keep_alive),
    ("nvmet-ana-change", ana_change),
    ("nvmet-port-lost", port_lost),
    ("nvmet-silence", silence),
    ("nvmet-drain", drain),
]
