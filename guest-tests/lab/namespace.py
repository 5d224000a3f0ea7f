"""Network namespaces without names. They end with the process that made them, however it ends.

    host = Namespace()
    target = Namespace(beside=host)     # same owner, so that links can join the two
    host.run("ip", "link", "show")
    host.close()
"""

import os
import subprocess

# Holds a namespace open. It reads a pipe, which ends when the process at the other end ends in any way. Then it kills all
# programs in the namespace, and the namespace ends with the last of them.
HOLDER = """
echo
read -r _
while :; do
    left=
    for each in /proc/[0-9]*; do
        [ "$each/ns/net" -ef "/proc/$$/ns/net" ] && [ "$each" != "/proc/$$" ] && kill -KILL "${each#/proc/}" && left=1
    done 2>/dev/null
    [ "$left" ] || exit
    sleep 0.02
done
"""


NOT_FOUND = 127  # nsenter's exit code if there is no such command


class LabError(Exception):
    """A command that builds or changes the lab failed."""


class Missing(LabError):
    """This machine lacks something that the lab needs. Tests that need it are skipped."""


class Namespace:
    """A network with only loopback. For an ordinary user it is in a user namespace, which it shares with `beside`."""

    def __init__(self, beside=None):
        self._children = []
        own = [] if beside or os.geteuid() == 0 else ["--user", "--map-root-user"]
        command = [*(beside.enter if beside else ()), "unshare", *own, "--net", "--", "bash", "-c", HOLDER]
        try:
            self._holder = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
            )
        except FileNotFoundError as error:
            raise Missing(f"{error.filename} is missing") from error
        if not self._holder.stdout.readline():
            said = self._holder.communicate()[1].strip()
            raise Missing(f"no network namespace can be made: {said}")
        self.pid = self._holder.pid
        self.enter = ["nsenter", "--target", str(self.pid), "--net"]
        if own or (beside and "--user" in beside.enter):
            self.enter += ["--user", "--preserve-credentials"]
        self.enter.append("--")
        self.ip("link set lo up")

    def run(self, *words, input=None):
        """Runs a command to its end. Returns its output."""
        try:
            done = subprocess.run([*self.enter, *map(str, words)], input=input, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise Missing(f"{error.filename} is missing") from error
        if done.returncode != 0:
            what = " ".join(map(str, words))
            if done.returncode == NOT_FOUND:
                raise Missing(f"{words[0]} is missing")
            raise LabError(f"{what}: exit code {done.returncode}: {done.stderr.strip()}\n{input or ''}".strip())
        return done.stdout

    def ip(self, *commands):
        """Runs `ip` with each of these command lines."""
        self.run("ip", "-batch", "-", input="\n".join(commands) + "\n")

    def popen(self, *words, **options):
        """Starts a command. Returns a `Popen` with the pid of the command itself. The command and its children end with the
        namespace."""
        child = subprocess.Popen([*self.enter, *map(str, words)], **{"start_new_session": True, **options})
        self._children.append(child)
        return child

    def sysctl(self, **values):
        """Sets sysctls below net. Two underscores stand for a dot, as in `mptcp__enabled=0`."""
        self.run("sysctl", "-q", *(f"net.{name.replace('__', '.')}={value}" for name, value in values.items()))

    def close(self):
        """Ends every program in the namespace, and the namespace. A second call does nothing."""
        if not self._holder.stdin.closed:
            self._holder.stdin.close()
        self._holder.wait()
        for child in self._children:
            child.kill()  # the child may not have entered the namespace yet
            child.wait()
        self._holder.stdout.close()
        self._holder.stderr.close()
