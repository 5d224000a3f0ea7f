"""The host's side of a test: `mpath-target` with two ports, or one a path, the daemon with a path to each, and `mpathctl`.

    with Rig(directory) as rig:
        rig.ctl("policy", "set", "latency-rr")

All of it runs in a directory of its own on ports the kernel chose. Leaving the `with` block, an exception (Ctrl-C included) and
the death of this process all end both programs.
"""

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NQN = "nqn.2026-11.io.vhost-blk-mpath:test"
START_TIMEOUT = 20  # seconds
STOP_TIMEOUT = 5  # seconds


class RigError(Exception):
    """A program did not start, died, or refused what it was asked."""


class Rig:
    """Two paths from a daemon to a target, both on loopback. `socket` is the vhost-user socket, `paths` the two addresses.

    With `listeners` each of these addresses has a target process of its own, so that one can be stopped or killed; the
    namespace must then be a file with a UUID, which they share. `paths` are addresses of somebody else's target; there is none
    of ours then. `options` are further words for the daemon, `target_options` for the target; `daemon` is another build of it.
    """

    def __init__(
        self, directory, namespace="mem:1GiB", policy="latency-rr", io_threads=1, listeners=(), options=(), paths=(),
        target_options=(), daemon=None,
    ):  # fmt: skip
        self.directory = Path(directory)
        release = ROOT / (os.environ.get("CARGO_TARGET_DIR") or "target") / "release"
        # `make test` runs the guests on the programs of the tests.
        self.binaries = Path(os.environ.get("MPATH_BIN") or release)
        self.socket = self.directory / "disk.sock"
        self.api = self.directory / "api.sock"
        self.paths = list(paths)
        self.targets = []  # processes
        self.daemon = None  # process
        self._daemon_binary = daemon
        self._namespace, self._policy, self._io_threads = namespace, policy, io_threads
        self._listeners, self._options, self._target_options = listeners, options, target_options
        self._programs = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Starts target and daemon; returns when front-ends can connect."""
        if not self.paths:
            self.start_targets()
        self.start_daemon()

    def start_targets(self):
        """Starts the target, or one a listener; `paths` is then where they listen."""
        for listeners in [(one,) for one in self._listeners] or [("127.0.0.1:0", "127.0.0.1:0")]:
            target, addresses = self._start_target(*listeners)
            self.targets.append(target)
            self.paths += [f"tcp://{address}" for address in addresses]

    def kill_target(self, index):
        """Ends one of the targets at once: its path is lost."""
        target = self.targets[index]
        target.kill()
        target.wait()
        target.stdout.close()
        self._programs.remove(("mpath-target", target))

    def restart_target(self, index):
        """Starts a target that was killed, where it was."""
        self.targets[index], _ = self._start_target(self.paths[index].removeprefix("tcp://"))

    def start_daemon(self):
        """Starts the daemon; returns when front-ends can connect."""
        self.spawn_daemon()
        deadline = time.monotonic() + START_TIMEOUT
        while not self._is_served():
            if self.daemon.poll() is not None:
                raise RigError(f"vhost-blk-mpath ended: {self.log('vhost-blk-mpath').read_text().strip()}")
            if time.monotonic() > deadline:
                raise RigError("vhost-blk-mpath did not become ready in time")
            time.sleep(0.05)

    def _is_served(self):
        """Whether front-ends are answered, and every path was tried."""
        status = self.ctl("status", check=False)
        if status is None or any(disk["state"] == "starting" for disk in status["disks"]):
            return False
        return all(path["state"] != "connecting" or path["last-error"] for path in self.ctl("path", "list"))

    def kill_daemon(self):
        """Ends the daemon at once and without its knowledge. Its sockets and its fence record stay."""
        self.daemon.kill()
        self.daemon.wait()
        self._programs.remove(("vhost-blk-mpath", self.daemon))

    def adopt(self, daemon):
        """The daemon has ended, and this process that it has started serves in its place."""
        self._programs[self._programs.index(("vhost-blk-mpath", self.daemon))] = ("vhost-blk-mpath", daemon)
        self.daemon = daemon

    def spawn_daemon(self):
        """Starts the daemon; does not wait for it."""
        self.daemon = self._spawn("vhost-blk-mpath", *self.daemon_words(), binary=self._daemon_binary)

    def daemon_words(self):
        """The daemon's command line."""
        return [
            *("--socket-path", self.socket, "--subsystem", NQN, "--policy", self._policy, "--api", self.api),
            *("--io-threads", self._io_threads, *(word for path in self.paths for word in ("--path", path))),
            *self._options,
        ]

    def _start_target(self, *listeners):
        words = ("--nqn", NQN, "--namespace", self._namespace, *(w for at in listeners for w in ("--listen", at)))
        target = self._spawn("mpath-target", *words, *self._target_options, stdout=True)
        addresses = []
        for _ in listeners:
            line = self._line("mpath-target", target)
            if not line.startswith("listening on "):
                raise RigError(f"mpath-target said {line!r}; see {self.log('mpath-target')}")
            addresses.append(line.split()[2])
        return target, addresses

    def stop(self):
        """Ends all programs, the daemon first; returns the exit codes of those that did not end as they should."""
        failed = {}
        for name, program in reversed(self._programs):
            if program.poll() is None:
                program.terminate()
            try:
                code = program.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                program.kill()
                code = program.wait()
            if program.stdout:
                program.stdout.close()
            if code != 0:
                failed[name] = code
        self._programs = []
        return failed

    def ctl(self, *words, check=True):
        """Runs mpathctl; returns its answer, parsed, or None if it failed and `check` is off."""
        command = [self.binaries / "mpathctl", "--api", self.api, "-o", "json", *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            if check:
                raise RigError(f"mpathctl {' '.join(words)}: {done.stderr.strip()}")
            return None
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def path_ios(self):
        """I/Os completed so far, by path."""
        return [sum(path[kind]["ios"] for kind in ("read", "write", "other")) for path in self.ctl("path", "list")]

    def log(self, name):
        """What a program wrote to stderr."""
        return self.directory / f"{name}.log"

    def _spawn(self, name, *words, stdout=False, binary=None):
        binary = binary or self.binaries / name
        if not binary.exists():
            raise RigError(f"{binary} is missing: run make build")
        with open(self.log(name), "ab") as log:
            program = subprocess.Popen(
                # The kernel ends it if this process dies without a chance to do it.
                [*self._enter(name), "setpriv", "--pdeathsig=TERM", "--", str(binary), *(str(word) for word in words)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if stdout else log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is ours to handle
            )
        self._programs.append((name, program))
        return program

    def _enter(self, name):
        """Words in front of a program's command line, such as those that start it in another network."""
        return []

    def _line(self, name, program):
        """The next line of a program's stdout, in time."""
        data, deadline = b"", time.monotonic() + START_TIMEOUT
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([program.stdout], [], [], left)[0]:
                raise RigError(f"{name} did not become ready in time")
            byte = os.read(program.stdout.fileno(), 1)
            if not byte:
                raise RigError(f"{name} ended: {self.log(name).read_text().strip()}")
            data += byte
        return data.decode().strip()


def end_on_signals():
    """Turns SIGTERM and SIGHUP into an exit, so that `with` blocks end what they started."""

    def end(number, _):
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
