"""The example of docs/qemu.md, taken from the document: its commands, and what is said to QEMU's monitor and by it.

A part is the code block behind a line `<!-- example: NAME -->`. Commands are run by a shell as they stand, the document's variables in
their environment. In a conversation `->` is sent and `<-` has to come, in that order and nothing else of its kind between; `…` stands for
whatever comes in its place.
"""

import json
import re
import shutil
import textwrap
from pathlib import Path

from guest import Guest, GuestError
from rig import NQN, Rig

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "qemu.md"
EVENT = "VHOST_USER_BLK_PATHS_CHANGED"
ELLIPSIS = "…"
# Both targets write to one file, and their cache is this machine's: a flush on either covers both.
NAMESPACE = "file:{}/namespace:1GiB,uuid=5f0f7c2e-9f2a-4dc5-a7a5-0e4b0a2a54e6"


class Example:
    """The parts by name. What the document calls `qemu-system-x86_64` is `qemu`, and `directory` its `$RUN`."""

    def __init__(self, directory, qemu):
        found = re.findall(r"^<!-- example: (.+) -->\n\n((?:    .*\n)+)", DOCUMENT.read_text(), re.MULTILINE)
        self._parts = {name: textwrap.dedent(block) for name, block in found}
        self._directory, self._qemu = directory, Path(qemu).resolve()
        self.paths, self.binaries = (), None

    def command(self, name, *words):
        """The words that start a program of the document, `words` being its `"$@"`."""
        path_a, path_b = self.paths
        programs = self._directory / "bin"
        if not programs.exists():
            programs.mkdir()
            (programs / "qemu-system-x86_64").symlink_to(self._qemu)
            (programs / "vhost-blk-mpath").symlink_to(self.binaries.resolve() / "vhost-blk-mpath")
        variables = {"PATH_A": path_a, "PATH_B": path_b, "NQN": NQN, "RUN": self._directory}
        # No PATH but this: what the document starts is what is tested.
        shell = [shutil.which("bash"), "-euc", f"exec {self._part(name)}", name, *(str(word) for word in words)]
        return [shutil.which("env"), f"PATH={programs}", *(f"{key}={value}" for key, value in variables.items()), *shell]

    def talk(self, name, qmp):
        """Holds a conversation of the document with QEMU's monitor."""
        for arrow, text in re.findall(r"^(->|<-) ((?:.*\n)(?:(?!->|<-).*\n)*)", self._part(name), re.MULTILINE):
            message = json.loads(text.replace(ELLIPSIS, json.dumps(ELLIPSIS)))
            if arrow == "->":
                qmp.send(message)
                continue
            while (seen := qmp.receive()).get("event", EVENT) != EVENT:
                pass  # QEMU tells of other things too
            if not matches(message, seen):
                raise GuestError(f"docs/qemu.md, {name}: QEMU says {json.dumps(seen)}, not {json.dumps(message)}")

    def _part(self, name):
        if name not in self._parts:
            raise GuestError(f"docs/qemu.md has no code block after <!-- example: {name} -->")
        return self._parts[name]


def matches(wanted, seen):
    """Whether a message is the one in the document."""
    if wanted == ELLIPSIS:
        return True
    if isinstance(wanted, dict) and isinstance(seen, dict):
        return wanted.keys() == seen.keys() and all(matches(value, seen[key]) for key, value in wanted.items())
    return wanted == seen


class ExampleRig(Rig):
    """Two targets, and the daemon as the document starts it."""

    def __init__(self, example, directory, options):
        listeners = ("127.0.0.1:0", "127.0.0.1:0")
        super().__init__(directory, NAMESPACE.format(directory), listeners=listeners, options=options)
        self._example = example
        example.binaries = self.binaries

    def spawn_daemon(self):
        self._example.paths = self.paths
        program, *words = self._example.command("daemon", "--api", self.api, *self._options)
        self.daemon = self._spawn("vhost-blk-mpath", *words, binary=Path(program))


class ExampleGuest(Guest):
    """A guest of the document's; its monitor is at `qmp`."""

    def __init__(self, example, rig):
        directory = rig.directory
        super().__init__(rig.socket, 2, console_log=directory / "console.log", on_line=lambda _: None)
        self.qmp = directory / "qmp.sock"
        self._example = example

    def devices(self):
        return []

    def _command(self, image, control_fd):
        _, *machine = super()._command(image, control_fd)
        return self._example.command("guest", *machine)
