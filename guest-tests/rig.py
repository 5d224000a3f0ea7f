"""The host's side of a test: `mpath-target` with two ports, or a target for each path; the daemon with a path to each; and
`mpathctl`.

    with Rig(directory) as rig:
        rig.ctl("policy", "set", "latency-rr")

Everything runs in a directory of its own, on ports that the kernel chooses. The programs end when the `with` block is left, at an
exception (Ctrl-C included), and when this process ends.
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
# A busy machine needs no more. Only a test that fails waits so long.
START_TIMEOUT = 180  # seconds
STOP_TIMEOUT = 60  # seconds


class RigError(Exception):
    """A program did not start, died, or refused a command."""


class Rig:
    """Two paths from a daemon to a target, both on loopback. `socket` is the vhost-user socket, `paths` the two addresses.

    With `listeners`, each of these addresses has a target process of its own, which can be stopped or killed. The namespace must
    then be a file with a UUID, which the targets share. With `paths`, the rig starts no target and uses these addresses.
    `options` are further options of the daemon, and `target_options` of the target. `daemon` is another build of the daemon.
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
        """Starts the target and the daemon. Returns when front-ends can connect."""
        if not self.paths:
            self.start_targets()
        self.start_daemon()

    def start_targets(self):
        """Starts the target, or a target for each listener. Sets `paths` to their addresses."""
        for listeners in [(one,) for one in self._listeners] or [("127.0.0.1:0", "127.0.0.1:0")]:
            target, addresses = self._start_target(*listeners)
            self.targets.append(target)
            self.paths += [f"tcp://{address}" for address in addresses]

    def kill_target(self, index):
        """Kills one of the targets. Its path is lost then."""
        target = self.targets[index]
        target.kill()
        target.wait()
        target.stdout.close()
        self._programs.remove(("mpath-target", target))

    def restart_target(self, index):
        """Starts a killed target again, at the same address."""
        self.targets[index], _ = self._start_target(self.paths[index].removeprefix("tcp://"))

    def start_daemon(self):
        """Starts the daemon. Returns when front-ends can connect."""
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
        """Kills the daemon. Its sockets and its fence record stay."""
        self.daemon.kill()
        self.daemon.wait()
        self._programs.remove(("vhost-blk-mpath", self.daemon))

    def stop_daemon(self):
        """Ends the daemon in order. Another one can be started then."""
        self.daemon.terminate()
        try:
            code = self.daemon.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise RigError(f"vhost-blk-mpath did not end within {STOP_TIMEOUT} s") from None
        self._programs.remove(("vhost-blk-mpath", self.daemon))
        if code != 0:
            raise RigError(f"vhost-blk-mpath ended with code {code}; see {self.log('vhost-blk-mpath')}")

    def adopt(self, daemon):
        """Takes over the process that the daemon has started and that serves in its place. The old daemon has ended."""
        self._programs[self._programs.index(("vhost-blk-mpath", self.daemon))] = ("vhost-blk-mpath", daemon)
        self.daemon = daemon

    def spawn_daemon(self):
        """Starts the daemon. Does not wait until it is ready."""
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
        """Ends all programs, the daemon first. Returns the exit codes of programs that did not end as they should."""
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
        """Runs mpathctl. Returns its parsed answer, or None if it failed and `check` is off."""
        command = [self.binaries / "mpathctl", "--api", self.api, "-o", "json", *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=START_TIMEOUT)
        if done.returncode != 0:
            if check:
                raise RigError(f"mpathctl {' '.join(words)}: {done.stderr.strip()}")
            return None
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def path_ios(self):
        """I/Os completed so far, by path."""
        return [sum(path[kind]["ios"] for kind in ("read", "write", "other")) for path in self.ctl("path", "list")]

    def log(self, name):
        """The file with the stderr of a program."""
        return self.directory / f"{name}.log"

    def _spawn(self, name, *words, stdout=False, binary=None):
        binary = binary or self.binaries / name
        if not binary.exists():
            raise RigError(f"{binary} is missing: run make build")
        with open(self.log(name), "ab") as log:
            program = subprocess.Popen(
                # If this process is killed, the kernel ends the program.
                [*self._enter(name), "setpriv", "--pdeathsig=TERM", "--", str(binary), *(str(word) for word in words)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if stdout else log,
                stderr=log,
                start_new_session=True,  # so that Ctrl-C in the terminal reaches this process alone
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
