"""A target and a daemon at the two sides of a lab, connected by one method, and a front-end that drives the disk.

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
PORTS = {"tcp": 4430, "mptcp": 4431}  # other ports than that of raw loads
IO_THREADS = 1  # so each path has one connection for I/O
# All controllers are in one target process, so a flush need not wait for a silent path.
OPTIONS = ("--shared-write-cache",)
SUBFLOWS_TIMEOUT = 5  # seconds
TICKS = os.sysconf("SC_CLK_TCK")

# The options of the front-end for each workload.
WORKLOADS = {
    "read": ("--rw", "read", "--bs", "128k", "--iodepth", 32),
    "write": ("--rw", "write", "--bs", "128k", "--iodepth", 32),
    "randread": ("--rw", "randread", "--bs", "4k", "--iodepth", 1),
}
VERIFY = ("--rw", "verify", "--bs", "128k", "--iodepth", 64, "--size", "64MiB")


class Stack(Rig):
    """`method` decides the paths: one to the address of the first link, or one to the address of every link."""

    def __init__(self, directory, lab, method):
        super().__init__(directory, namespace=NAMESPACE, policy=method.policy, io_threads=IO_THREADS, options=OPTIONS)
        self._lab, self._method = lab, method

    def start_targets(self):
        # The target listens on every address, because joining subflows arrive there.
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
        """Waits until all paths have their connections and subflows. It is an error if they do not get them."""
        deadline = time.monotonic() + SUBFLOWS_TIMEOUT
        while wrong := self._wrong():
            if time.monotonic() > deadline:
                raise RigError(f"{self._method.name}: {wrong}")
            time.sleep(0.05)

    def _wrong(self):
        """What is wrong with the paths, as a text. None if nothing is wrong."""
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
        """Drives the disk. Returns the report of the front-end, and the CPU seconds that the daemon took meanwhile."""
        before = self.cpu_seconds()
        report = self.report(self.start_front_end(*words, seconds=seconds, warm_up=warm_up))
        if not report["ok"]:
            raise RigError(f"{self._method.name}: the front-end failed: {report['failures']}")
        return report, self.cpu_seconds() - before

    def start_front_end(self, *words, seconds, warm_up):
        """Starts the front-end. `report` waits for its end."""
        times = ("--time", f"{round(seconds * 1000)}ms", "--warmup", f"{round(warm_up * 1000)}ms")
        command = (self.binaries / "vublk-bench", "--socket-path", self.socket, *words, *times, "-o", "json")
        return self._lab.host.popen(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def report(front_end):
        """Waits for the end of the front-end. Returns its report."""
        out, error = front_end.communicate()
        try:
            return json.loads(out)
        except json.JSONDecodeError:
            raise RigError(f"vublk-bench: {error.strip()}") from None

    def cpu_seconds(self):
        """The user and system time of the daemon so far."""
        with open(f"/proc/{self.daemon.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def bytes(self):
        """The bytes of all requests completed so far. Uses the API's socket, which takes less time than starting mpathctl."""
        connection = http.client.HTTPConnection("localhost", timeout=5)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.api))
        connection.request("GET", "/v1/paths")
        paths = json.load(connection.getresponse())
        connection.close()
        return sum(path[kind]["bytes"] for path in paths for kind in ("read", "write"))

    def commands(self):
        """The commands that run here, for the published section."""
        listen = f"--listen 0.0.0.0:{PORTS['tcp']} --listen 0.0.0.0:{PORTS['mptcp']},transport=mptcp"
        daemon = " ".join(str(word).replace(f"{self.directory}/", "$DIR/") for word in self.daemon_words())
        return [f"mpath-target --nqn {NQN} --namespace {NAMESPACE} {listen}", f"vhost-blk-mpath {daemon}"]
