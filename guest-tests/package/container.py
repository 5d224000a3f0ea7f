"""Debian under its own systemd, in namespaces of this host (systemd-nspawn), without a network but loopback.

    with Container({"/programs": Path("target/release")}) as debian:
        debian.run("systemctl", "start", "x.service")

The root is debootstrap's, made once below target/. A container changes nothing of it: its changes are in memory and end with it.
"""

import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SUITE = os.environ.get("SUITE") or "bookworm"
MIRROR = "http://deb.debian.org/debian"
# What a small server has, and what the test looks with.
PACKAGES = ["systemd", "systemd-sysv", "dbus", "iproute2", "procps"]
BOOT_TIMEOUT, STOP_TIMEOUT = 60, 30  # seconds
ENVIRONMENT = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
# Debian's cgroups, whatever the host has.
UNIFIED = ["UNIFIED_CGROUP_HIERARCHY=1", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1"]
# The host's systemd allows these to services, and containers not by default.
SYSTEM_CALLS = "pidfd_open pidfd_getfd"


class ContainerError(Exception):
    """The container does not start, or a command in it has failed."""


def debian_root(say):
    """The directory of the root, which is made if it does not exist."""
    root = ROOT / "target/package-root" / "-".join([SUITE, *PACKAGES])
    if not root.exists():
        say(f"debootstrap of Debian {SUITE} to {root.relative_to(ROOT)}: {' '.join(PACKAGES)}")
        new = root.with_suffix(".new")
        subprocess.run(["rm", "-rf", "--one-file-system", new], check=True)
        new.parent.mkdir(parents=True, exist_ok=True)
        words = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, new, MIRROR]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise ContainerError(f"debootstrap: {done.stdout[-1000:]}")
        new.rename(root)
    return root


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
            # The kernel ends it if this process dies without a chance to do it.
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

    def run(self, *words, user=None, check=True, timeout=120):
        """Runs a command to its end. With `check` its failure is a ContainerError."""
        words = [str(word) for word in words]
        enter = ["nsenter", f"--target={self._leader}", "--all", "--"]
        as_user = ["runuser", f"--user={user}", "--"] if user else []
        done = subprocess.run(
            [*enter, *ENVIRONMENT, *as_user, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=timeout,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise ContainerError(f"{' '.join(words)}: exit code {done.returncode}: {done.stdout.strip()[-3000:]}")
        return done

    def stop(self):
        """Ends everything in it."""
        self._nspawn.terminate()
        try:
            self._nspawn.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._nspawn.kill()
            self._nspawn.wait()
