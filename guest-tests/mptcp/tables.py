"""The rows of the tables, and the methods that are measured in each."""

from dataclasses import dataclass

from lab import Link

RATE = "200mbit"
LOSS = 0.5  # percent
DELAY = 5  # ms


@dataclass(frozen=True)
class Method:
    """A way to use all links. With `each` there is a connection for each link, made to that link's address. Otherwise there is
    one.

    With a `policy`, these are the connections of the daemon's paths. Without one, they are plain sockets, as many as the daemon
    has for I/O. With `followed`, `mpathctl mptcp follow` runs on both sides.
    """

    name: str
    transport: str
    each: bool
    policy: str | None = None
    followed: bool = False

    def connections(self, links):
        """How many connections carry I/O."""
        return links if self.each else 1

    def subflows(self, links):
        """How many subflows each connection must have."""
        return links if self.transport == "mptcp" else 1


TCP_1 = Method("tcp-1", "tcp", each=False, policy="bdp")
TCP_N_BDP = Method("tcp-N bdp", "tcp", each=True, policy="bdp")
# With one path there is nothing to choose. `numa` does not adapt the window either.
MPTCP_1 = Method("mptcp-1", "mptcp", each=False, policy="numa")
MPTCP_N = Method("mptcp-N bdp", "mptcp", each=True, policy="bdp")
# `numa` uses the other paths only when the first one is lost.
MPTCP_N_NUMA = Method("mptcp-N numa", "mptcp", each=True, policy="numa")
MPTCP_1_FOLLOWED = Method("mptcp-1 followed", "mptcp", each=False, policy="numa", followed=True)
MPTCP_N_NUMA_FOLLOWED = Method("mptcp-N numa followed", "mptcp", each=True, policy="numa", followed=True)
RAW_TCP = Method("raw tcp-N", "tcp", each=True)
RAW_MPTCP = Method("raw mptcp-1", "mptcp", each=False)

ON_ONE_LINK = (TCP_1, MPTCP_1, RAW_TCP, RAW_MPTCP)
ON_LINKS = (
    TCP_1,
    Method("tcp-N round-robin", "tcp", each=True, policy="round-robin"),
    Method("tcp-N queue-depth", "tcp", each=True, policy="queue-depth"),
    TCP_N_BDP,
    MPTCP_1,
    MPTCP_N,
    MPTCP_N_NUMA,
    RAW_TCP,
    RAW_MPTCP,
    Method("raw mptcp-N", "mptcp", each=True),
)


@dataclass(frozen=True)
class Row:
    """The links of a row. Each method is measured alone on them. The first link is the best, because a single connection uses
    it."""

    table: str
    name: str
    links: tuple[Link, ...]

    @property
    def methods(self):
        return ON_LINKS if len(self.links) > 1 else ON_ONE_LINK


ROWS = (
    Row("a", "1 link of 200 Mbit/s", (Link(RATE),)),
    Row("a", "2 links of 200 Mbit/s", (Link(RATE),) * 2),
    Row("a", "4 links of 200 Mbit/s", (Link(RATE),) * 4),
    Row("b", "links of 200 and 50 Mbit/s", (Link(RATE), Link("50mbit"))),
    Row("c", "2 links of 200 Mbit/s, 0.5 % lost on one of them", (Link(RATE), Link(RATE, loss=LOSS))),
    Row("c", "2 links of 200 Mbit/s, 0.5 % lost on both", (Link(RATE, loss=LOSS),) * 2),
    Row("c", "2 links of 200 Mbit/s, 5 ms long, 0.5 % lost on both", (Link(RATE, delay=DELAY, loss=LOSS),) * 2),
)

# In table d, the first of two links is lost. A single connection is made on that link.
OUTAGES = ("down", "silence")
OUTAGE_LINKS = (Link(RATE),) * 2
OUTAGE_METHODS = (TCP_N_BDP, MPTCP_1, MPTCP_1_FOLLOWED, MPTCP_N, MPTCP_N_NUMA, MPTCP_N_NUMA_FOLLOWED)
