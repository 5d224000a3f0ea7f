"""The stale write, against Linux's nvmet: a write whose path is lost is executed late, over newer data.

The daemon's fence prevents that. A `vhost-blk-mpath` built without the fence (`--cfg without_fence`, for this test only) must
lose the newer data. Otherwise the test proves nothing.
"""

import os
import socket
import subprocess
import threading
import time

from case import PATIENCE, check, wait_for
from rig import ROOT, Rig

KEEP_ALIVE = 5  # seconds
QUIESCE = 5  # seconds that the daemon assumes for a controller that reports no CQT
OLD, NEW = 1, 2
WITHOUT_FENCE = ROOT / "target" / "without-fence" / "release" / "vhost-blk-mpath"


class Hold:
    """A proxy to a port of 127.0.0.1. It can hold the bytes of the host, end the host's connections, and still deliver the bytes
    later."""

    def __init__(self, to):
        self._to, self._open = to, threading.Event()
        self._open.set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._hosts, self._targets, self.held_bytes = [], [], 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._open.set()
        for one in (self._server, *self._hosts, *self._targets):
            one.close()

    def hold(self):
        self._open.clear()

    def cut(self):
        """Ends the host's connections, and accepts no new ones. The target notices nothing."""
        self._server.close()
        for host in self._hosts:
            try:
                host.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the connection has ended by itself

    def deliver(self):
        self._open.set()

    def _accept(self):
        while True:
            try:
                host, _ = self._server.accept()
            except OSError:
                return  # closed
            target = socket.create_connection(("127.0.0.1", self._to))
            for one in (host, target):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._hosts.append(host)
            self._targets.append(target)
            threading.Thread(target=self._to_target, args=(host, target), daemon=True).start()
            threading.Thread(target=self._to_host, args=(target, host), daemon=True).start()

    def _to_target(self, host, target):
        try:
            while data := host.recv(1 << 18):
                if not self._open.is_set():
                    self.held_bytes += len(data)
                    self._open.wait()
                target.sendall(data)
        except OSError:
            pass  # the test or the host's side has ended, and the target is not told

    def _to_host(self, target, host):
        try:
            while data := target.recv(1 << 18):
                host.sendall(data)
        except OSError:
            pass  # as above


class Steps:
    """The program `step`: a front-end that does one request at a time."""

    def __init__(self, rig):
        command = [str(rig.binaries / "step"), str(rig.socket)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def ask(self, *words):
        """Sends a command. Returns the words of the answer, without the first one."""
        self._process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        check(answer, f"step ended at {words}")
        return answer[1:]

    def write(self, byte):
        self.ask("begin", byte)
        status, ms = self.ask("end")
        check(status == "Ok", f"write: {status}")
        return int(ms)


def scenario(nvmet, directory, daemon):
    """Runs the stale write. Returns what a read finds at the end, and how long the write on the lost path took in ms."""
    with Hold(int(nvmet.paths[0].rsplit(":", 1)[1])) as way:
        paths = [f"tcp://127.0.0.1:{way.port}", nvmet.paths[1]]
        # With `numa`, all requests go to the first path.
        options = ("--keep-alive-tmo", KEEP_ALIVE, "--shared-write-cache")
        with Rig(directory, policy="numa", paths=paths, options=options, daemon=daemon) as rig, Steps(rig) as steps:
            steps.write(0)
            way.hold()
            steps.ask("begin", OLD)
            wait_for(lambda: way.held_bytes > 4096, PATIENCE, "the write is on its way")
            way.cut()
            if daemon:
                # Without the fence, the write is repeated at once and answered. The guest's next write is the one that has to
                # stay.
                status, ms = steps.ask("end")
                check(status == "Ok", f"the write ended with {status}")
                steps.write(NEW)
                way.deliver()
                time.sleep(1)
            else:
                time.sleep(0.5)
                way.deliver()
                status, ms = steps.ask("end")
                check(status == "Ok", f"the write ended with {status}")
                steps.write(NEW)
            found = int(steps.ask("read")[0])
    nvmet.complaints()
    return found, int(ms)


def with_fence(nvmet, directory):
    found, ms = scenario(nvmet, directory, None)
    fence = (2 * KEEP_ALIVE + QUIESCE) * 1000
    check(ms >= fence, f"the write was answered after {ms} ms, before its fence of {fence} ms")
    check(found == NEW, f"the newer data are gone: read {found}, not {NEW}")
    return f"the write waited {ms} ms; the newer data stayed"


def without_fence(nvmet, directory):
    check(os.access(WITHOUT_FENCE, os.X_OK), f"{WITHOUT_FENCE} is missing: run make interop")
    found, ms = scenario(nvmet, directory, WITHOUT_FENCE)
    check(found == OLD, f"no stale write happened, so the other test proves nothing: read {found}")
    return f"the write was answered after {ms} ms; executed late, it overwrote newer data, as it must without a fence"


TESTS = [("stale-write-with-fence", with_fence), ("stale-write-without-fence", without_fence)]
