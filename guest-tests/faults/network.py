"""A network of this process's own, in which the connections of one address can be broken.

    enter()                      # at the very start: continues as the only host in a new network namespace
    network = Network()
    with network.silence("127.0.0.2"): ...
"""

import os
import subprocess
import sys
from contextlib import contextmanager

INSIDE = "MPATH_FAULTS_NAMESPACE"  # the id of the process that is in the namespace
CHAIN = ("inet", "faults", "out")


def is_inside():
    """Whether `enter` has started this script again."""
    return os.environ.get(INSIDE) == str(os.getpid())


def enter():
    """Starts this script again in a network namespace that ends with it. Needs no root where user namespaces are allowed."""
    # /sbin is not in every user's PATH, but ip and nft live there.
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if is_inside():
        return
    os.environ[INSIDE] = str(os.getpid())  # exec keeps the process id
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    os.execvp("unshare", ["unshare", *own, "--net", "--", sys.executable, *sys.argv])


class Network:
    """Rules for the packets that this host sends. All connections are on loopback, so these are the packets of both directions.

    The address distinguishes servers. The `port` distinguishes a server from its clients, which may have the same address.
    """

    def __init__(self, port):
        self._port = port
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        nft("add table inet faults", f"add chain {' '.join(CHAIN)} {{ type filter hook output priority 0; }}")

    @contextmanager
    def silence(self, address):
        """Drops all packets from and to an address, without an error to either side."""
        with self._rules(
            f"ip saddr {address} tcp sport {self._port} drop", f"ip daddr {address} tcp dport {self._port} drop"
        ):
            yield

    @contextmanager
    def reset(self, address):
        """Resets the connections of an address, and answers new attempts to connect with RST."""
        # Not the answers, whose destination is the client's port.
        with self._rules(f"ip daddr {address} tcp dport {self._port} tcp flags & syn != 0 reject with tcp reset"):
            here = ("state", "established", "src", f"{address}:{self._port}")
            subprocess.run(["ss", "--kill", "--tcp", *here], check=True, stdout=subprocess.DEVNULL)
            left = subprocess.run(["ss", "--no-header", "--tcp", *here], check=True, capture_output=True, text=True).stdout
            if left:
                raise OSError(f"this kernel cannot reset connections (CONFIG_INET_DIAG_DESTROY): {left}")
            yield

    @contextmanager
    def _rules(self, *rules):
        nft(*(f"add rule {' '.join(CHAIN)} {rule}" for rule in rules))
        try:
            yield
        finally:
            nft(f"flush chain {' '.join(CHAIN)}")


def nft(*commands):
    subprocess.run(["nft", "-f", "-"], input="\n".join(commands) + "\n", text=True, check=True)
