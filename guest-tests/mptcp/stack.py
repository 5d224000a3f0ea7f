"""Target and daemon at either side of a lab, connected by one method, and a front-end to drive the disk.

    with Stack(directory, lab, MPTCP_1) as stack:
        stack.check()
        stack.run(*WORKLOADS["read"], seconds=2, warm_up=1)
"""

import http.client
import json
import os
import socket
import subprocess
import time

from rig import NQN, Rig, RigError

NAMESPACE = "mem:256MiB"
PORTS = {"tcp": 4430, "mptcp": 4431}  # not that of raw loads
IO_THREADS = 1  # so one connection a path for I/O
# All of the target's controllers are one process: a flush need not wait for a path that is silent.
OPTIONS = ("--shared-write-cache",)
SUBFLOWS_TIMEOUT = 5  # seconds
TICKS = os.sysconf("SC_CLK_TCK")

# Words for the front-end.
WORKLOADS = {
    "read": ("--rw", "read", "--bs", "128k", "--iodepth", 32),
    "write": ("--rw", "write", "--bs", "128k", "--iodepth", 32),
    "randread": ("--rw", "randread", "--bs", "4k", "--iodepth", 1),
}
VERIFY = ("--rw", "verify", "--bs", "128k", "--iodepth", 64, "--size", "64MiB")


class Stack(Rig):
    """`method` says which paths there are: to the first link's address, or to that of every link."""

    def __init__(self, directory, lab, method):
        super().__init__(directory, namespace=NAMESPACE, policy=method.policy, io_threads=IO_THREADS, options=OPTIONS)
        self._lab, self._method = lab, method

    def start_targets(self):
        # On every address: it is where subflows arrive that join.
        self._start_target(f"0.0.0.0:{PORTS['tcp']}", f"0.0.0.0:{PORTS['mptcp']},transport=mptcp")
        transport = self._method.transport
        links = self._lab.links[: self._method.connections(len(self._lab.links))]
        self.paths = [f"{transport}://{link.target_address}:{PORTS[transport]}" for link in links]

    def start(self):
        if self._method.followed:
            for side in ("host", "target"):
                self._spawn(f"follow-{side}", "mptcp", "follow", binary=self.binaries / "mpathctl")
        super().start()

    def _enter(self, name):
        return (self._lab.target if name in ("mpath-target", "follow-target") else self._lab.host).enter

    def check(self):
        """Waits for all subflows. A cell that is not what it claims to be is an error."""
        deadline = time.monotonic() + SUBFLOWS_TIMEOUT
        while wrong := self._wrong():
            if time.monotonic() > deadline:
                raise RigError(f"{self._method.name}: {wrong}")
            time.sleep(0.05)

    def _wrong(self):
        """What the paths are not that they have to be, or None."""
        wanted = self._method.subflows(len(self._lab.links))
        for path in self.ctl("path", "list"):
            where = f"{path['address']} is {path['state']}"
            if path["state"] != "live" or path["transport"] != self._method.transport:
                return f"{where} over {path['transport']}"
            if self._method.transport == "tcp":
                continue
            connections = path.get("connections")
            if not connections:
                return f"{where}, and of its connections nothing is known"
            if any(connection["fallback"] for connection in connections):
                return f"{where}, and TCP, not MPTCP"
            # Queue 0 is the admin queue, and carries no I/O.
            counts = [
                sum(subflow["state"] == "established" for subflow in connection["subflows"])
                for connection in connections
                if connection["queue"] > 0
            ]
            if counts != [wanted] * IO_THREADS:
                return f"{where}, its I/O connections have {counts} subflows, not {wanted} each"
        return None

    def run(self, *words, seconds, warm_up):
        """Drives the disk; the front-end's report and the CPU seconds that the daemon took for it."""
        before = self.cpu_seconds()
        report = self.report(self.start_front_end(*words, seconds=seconds, warm_up=warm_up))
        if not report["ok"]:
            raise RigError(f"{self._method.name}: the front-end failed: {report['failures']}")
        return report, self.cpu_seconds() - before

    def start_front_end(self, *words, seconds, warm_up):
        """Starts the front-end: `report` waits for it."""
        times = ("--time", f"{round(seconds * 1000)}ms", "--warmup", f"{round(warm_up * 1000)}ms")
        command = (self.binaries / "vublk-bench", "--socket-path", self.socket, *words, *times, "-o", "json")
        return self._lab.host.popen(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def report(front_end):
        """What it has found, once it has ended."""
        out, error = front_end.communicate()
        try:
            return json.loads(out)
        except json.JSONDecodeError:
            raise RigError(f"vublk-bench: {error.strip()}") from None

    def cpu_seconds(self):
        """The daemon's, user and system."""
        with open(f"/proc/{self.daemon.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def bytes(self):
        """Bytes of all requests completed so far. Over the API's socket, which takes less than starting mpathctl."""
        connection = http.client.HTTPConnection("localhost", timeout=5)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.api))
        connection.request("GET", "/v1/paths")
        paths = json.load(connection.getresponse())
        connection.close()
        return sum(path[kind]["bytes"] for path in paths for kind in ("read", "write"))

    def commands(self):
        """What runs, for people."""
        listen = f"--listen 0.0.0.0:{PORTS['tcp']} --listen 0.0.0.0:{PORTS['mptcp']},transport=mptcp"
        daemon = " ".join(str(word).replace(f"{self.directory}/", "$DIR/") for word in self.daemon_words())
        return [f"mpath-target --nqn {NQN} --namespace {NAMESPACE} {listen}", f"vhost-blk-mpath {daemon}"]
