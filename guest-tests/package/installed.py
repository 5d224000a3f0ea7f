"""Helpers for tests of the package in a Debian: the service as systemd and the API see it, a target, and checks."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from container import ROOT, ContainerError
from guest import GuestError
from rig import end_on_signals

UNIT = "vhost-blk-mpath.service"
USER = "vhost-blk-mpath"
RUN = "/run/vhost-blk-mpath"
NQN = "nqn.2026-11.io.vhost-blk-mpath:package"
NAMESPACES = ["uuid=1e0f7c1e-3a56-4a53-8bb1-7b6d3b1d8f01", "uuid=1e0f7c1e-3a56-4a53-8bb1-7b6d3b1d8f02"]
PATIENCE = 60  # seconds


class Failed(Exception):
    """A check has failed."""


def say(text):
    print(text, flush=True)


def expect(holds, what, found=""):
    """Fails unless `holds`. Otherwise prints a line for the check."""
    if not holds:
        raise Failed(f"{what}{f': found {found}' if found != '' else ''}")
    say(f"  ok  {what}")


def eventually(what, condition, patience=PATIENCE):
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {patience} s")
        time.sleep(0.1)
    say(f"  ok  {what}")


class Service:
    """A unit, as systemd and the API see it."""

    def __init__(self, debian, unit=UNIT, api=f"{RUN}/api.sock"):
        self._debian, self.unit, self._api = debian, unit, api

    def show(self, name):
        return self._debian.run("systemctl", "show", "--value", f"--property={name}", self.unit).stdout.strip()

    def is_active(self):
        return self.show("ActiveState") == "active"

    def pid(self):
        return int(self.show("MainPID"))

    def ctl(self, *words, user=None, check=True):
        done = self._debian.run("mpathctl", "--api", self._api, "-o", "json", *words, user=user, check=check)
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else None

    def ios(self):
        """I/Os completed by the present daemon. 0 if it does not answer, because it starts or ends."""
        paths = self.ctl("path", "list", check=False)
        return sum(path[kind]["ios"] for path in paths or () for kind in ("read", "write", "other"))


def configuration(name, api, namespace):
    """The sample configuration, changed as its comments say, with the addresses of the target."""
    paths = ["tcp://127.0.0.1:4420", "tcp://127.0.0.1:4421?host-iface=lo", "mptcp://127.0.0.1:4422"]
    return json.dumps(
        {
            "api": f"{api}/api.sock",
            "disks": [
                {
                    "name": name, "socket-path": f"{api}/{name}.sock", "subsystem": NQN, "namespace": namespace, "paths": paths,
                    "keep-alive-tmo": 1, "shared-write-cache": True,
                }
            ],
        }
    )  # fmt: skip


def build(programs, version, directory):
    """Makes the package, in a directory of its own."""
    packages = directory / "packages"
    packages.mkdir()
    say(f"package {version} of the programs in {programs}")
    built = subprocess.run([ROOT / "scripts/package", programs, version], stdout=subprocess.PIPE, text=True, check=True)
    return Path(shutil.copy(built.stdout.strip(), packages))


def install(debian, version):
    """Installs a package that the container has in /packages."""
    package = f"/packages/vhost-blk-mpath_{version}_amd64.deb"
    return debian.run("apt-get", "install", "-y", "--no-install-recommends", package, timeout=300).stdout


def start_target(debian):
    """Starts a target with the addresses and namespaces of `configuration`."""
    words = [f"--namespace=file:/var/tmp/disk{number}:128MiB,{uuid}" for number, uuid in enumerate(NAMESPACES)]
    listen = [f"--listen=127.0.0.1:{port}" for port in ("4420", "4421", "4422,transport=mptcp")]
    debian.run("systemd-run", "--unit=target", "/programs/mpath-target", "--nqn", NQN, *words, *listen)


class Watched:
    """A guest whose I/O must go on, without an error."""

    def __init__(self, service, load):
        self._service, self._load = service, load

    def goes_on(self, after, patience=PATIENCE):
        before = self._service.ios()
        eventually(f"the guest's I/O goes on after {after}", lambda: self._service.ios() > before + 50 or self._load.problems, patience)
        expect(not self._load.problems, "no error, no wrong data", self._load.problems)


def main(target, description, test):
    """Runs `test(programs, directory)` as `make TARGET`; returns the exit code."""
    argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if os.geteuid() != 0:
        print(f"{target}: needs root, for debootstrap and systemd-nspawn: sudo -E make {target}", file=sys.stderr)
        return 2
    end_on_signals()
    programs = Path(os.environ.get("MPATH_BIN") or ROOT / (os.environ.get("CARGO_TARGET_DIR") or "target") / "release")
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="mpath-package.") as directory:
            test(programs, Path(directory))
    except KeyboardInterrupt:
        return 130
    except (Failed, ContainerError, GuestError, subprocess.SubprocessError) as error:
        print(f"{target}: FAILED: {error}", file=sys.stderr)
        return 1
    say(f"{target}: passed in {time.monotonic() - started:.0f} s")
    return 0
