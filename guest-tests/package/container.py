"""Debian under its own systemd, in namespaces of this host (systemd-nspawn), without a network but loopback.

    with Container({"/programs": Path("target/release")}) as debian:
        debian.run("systemctl", "start", "x.service")

debootstrap makes the root once, below target/. A container does not change the root. Its changes are in memory, and end with it.
"""

import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SUITE = os.environ.get("SUITE") or "bookworm"
MIRROR = "http://deb.debian.org/debian"
# The packages of a small server, and the tools of the test.
PACKAGES = ["systemd", "systemd-sysv", "dbus", "iproute2", "procps"]
BOOT_TIMEOUT, STOP_TIMEOUT = 60, 30  # seconds
ENVIRONMENT = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
# The container has unified cgroups as in Debian, whatever the host has.
UNIFIED = ["UNIFIED_CGROUP_HIERARCHY=1", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1"]
# The host's systemd allows these to services, and containers not by default.
SYSTEM_CALLS = "pidfd_open pidfd_getfd"


class ContainerError(Exception):
    """The container does not start, or a command in it has failed."""


def debian_root(say, more=()):
    """The directory of a root with PACKAGES and `more`, which is made if it does not exist."""
    root = ROOT / "target/package-root" / "-".join([SUITE, *PACKAGES, *more])
    if not root.exists():
        new = root.with_suffix(".new")
        subprocess.run(["rm", "-rf", "--one-file-system", new], check=True)
        new.parent.mkdir(parents=True, exist_ok=True)
        if more:
            _add_packages(new, debian_root(say), more, say)
        else:
            say(f"debootstrap of Debian {SUITE} to {root.relative_to(ROOT)}: {' '.join(PACKAGES)}")
            _make("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, new, MIRROR)
        new.rename(root)
    return root


def _add_packages(new, root, packages, say):
    """Copies a root and installs packages in the copy, whose services do not start."""
    say(f"installation in a copy of {root.relative_to(ROOT)}: {' '.join(packages)}")
    _make("cp", "--archive", "--reflink=auto", root, new)
    inside = ["systemd-nspawn", f"--directory={new}", "--quiet", "--register=no", "--keep-unit", "--console=pipe", "--", *ENVIRONMENT]
    _make(*inside, "apt-get", "update")
    _make(*inside, "apt-get", "install", "-y", "--no-install-recommends", *packages)
    _make(*inside, "apt-get", "clean")


def _make(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise ContainerError(f"{words[0]}: {done.stdout[-1000:]}")


class Container:
    """`binds` are directories of the host by their place in the container, read-only."""

    def __init__(self, root, binds, log):
        self._words = [
            "systemd-nspawn", f"--directory={root}", "--volatile=overlay", "--boot", "--quiet", "--register=no", "--keep-unit",
            "--machine=mpath-package-test", "--private-network", "--link-journal=no", "--console=pipe", f"--system-call-filter={SYSTEM_CALLS}",
            *(f"--bind-ro={outside.resolve()}:{inside}" for inside, outside in binds.items()),
        ]  # fmt: skip
        self._log = log
        self._leader = None
        self._nspawn = None

    def __enter__(self):
        with open(self._log, "wb") as log:
            # If this process is killed, the kernel ends the container.
            words = ["setpriv", "--pdeathsig=TERM", "--", "env", *UNIFIED, *self._words]
            self._nspawn = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            self._wait_for_boot()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def _wait_for_boot(self):
        deadline = time.monotonic() + BOOT_TIMEOUT
        state = ""
        while state not in ("running", "degraded"):
            if self._nspawn.poll() is not None or time.monotonic() > deadline:
                raise ContainerError(f"Debian does not boot ({state}): {self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
            children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
            for child in children:
                if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                    self._leader = int(child)
            if self._leader:
                state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        if state != "running":
            raise ContainerError(f"Debian is {state}: {self.run('systemctl', '--failed', '--plain', '--no-legend').stdout}")

    def path(self, inside):
        """A path of the container as the host sees it."""
        return Path(f"/proc/{self._leader}/root{inside}")

    def entering(self, *words, user=None):
        """The command line with which the host runs a command in the container."""
        enter = ["nsenter", f"--target={self._leader}", "--all", "--"]
        as_user = ["runuser", f"--user={user}", "--"] if user else []
        return [*enter, *ENVIRONMENT, *as_user, *(str(word) for word in words)]

    def run(self, *words, user=None, check=True, timeout=120):
        """Runs a command to its end. With `check` its failure is a ContainerError."""
        done = subprocess.run(
            self.entering(*words, user=user), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=timeout,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise ContainerError(f"{' '.join(str(word) for word in words)}: exit code {done.returncode}: {done.stdout.strip()[-3000:]}")
        return done

    def stop(self):
        """Ends the container with everything in it."""
        self._nspawn.terminate()
        try:
            self._nspawn.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._nspawn.kill()
            self._nspawn.wait()
