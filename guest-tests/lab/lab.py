"""A host and a target with N network cards each, joined card by card, on this machine and without leaving it.

    with Lab(links=[Link("200mbit"), Link("50mbit", loss=0.5)]) as lab:
        server = lab.target.popen("mpath-target", "--listen", f"{lab.link(0).target_address}:4420", …)
        lab.link(1).silence()

Host and target are network namespaces; card i is `nic{i}` on both sides, 10.77.i.1 on the host and 10.77.i.2 on the
target. Each link is a subnet without a way into the others, so an address is always reached through its own card. Nothing is
left behind, however the process ends, even by SIGKILL.
"""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from namespace import LabError, Missing, Namespace

MTU = 1500
WINDOW = 16 << 20  # bytes
# The congestion controls that a namespace may set.
ALLOWED_CONGESTION = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
CONGESTION = "cubic" if "cubic" in ALLOWED_CONGESTION else "reno"
# The queue in front of the wire. It keeps the wire busy while the sender is not scheduled.
QUEUE_SECONDS = 0.015
# The burst that may leave at once after a late timer. With a much larger burst, small requests would pass as if there were no
# rate.
BURST_SECONDS = 0.0005
UP_TIMEOUT = 5  # seconds
UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
ADDRESSES = 8  # the limit of MPTCP addresses, the highest that the kernel allows
MAX_LINKS = ADDRESSES
DELAY_LINE = Path(__file__).with_name("delay_line.py")


@dataclass(frozen=True)
class Link:
    """The properties of a link in each direction: `rate` as tc writes it, `delay` in ms, `loss` in %."""

    rate: str = "200mbit"
    delay: float | None = None
    loss: float | None = None


@dataclass(frozen=True)
class Counters:
    """The bytes on a link's wire so far, as the host counts them. Ethernet headers are included."""

    sent: int
    received: int


class Lab:
    """A host and a target that are joined by `links`. `host` and `target` are their namespaces, in which commands run.

    `rmem` and `wmem` are the maxima of windows in bytes, for TCP and MPTCP. `mtu` is that of every card, and `congestion` the
    congestion control.
    """

    def __init__(self, links, rmem=WINDOW, wmem=WINDOW, mtu=MTU, congestion=CONGESTION):
        if not 1 <= len(links) <= MAX_LINKS:
            raise ValueError(f"a lab has 1 to {MAX_LINKS} links, not {len(links)}")
        for link in links:
            bits_per_second(link.rate)  # raises ValueError before anything is built
        # /sbin is not in every user's PATH, but ip, tc and nft live there.
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        self.mtu, self.congestion = mtu, congestion
        self.host = self.target = None
        self._wanted = links
        self.links = []
        self._sysctls = {
            "mptcp__enabled": 1,
            "ipv4__tcp_rmem": f"4096 131072 {rmem}",
            "ipv4__tcp_wmem": f"4096 16384 {wmem}",
            # A route's congestion control does not do: an MPTCP socket drops it as soon as any option of the socket is set.
            "ipv4__tcp_congestion_control": congestion,
            # Otherwise connections start with the metrics of earlier ones, and results depend on the order of runs.
            "ipv4__tcp_no_metrics_save": 1,
        }

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def link(self, index):
        """The `LiveLink` between the two cards `nic{index}`."""
        return self.links[index]

    def counters(self):
        """The `Counters` of each link."""
        devices = {device["ifname"]: device for device in json.loads(self.host.run("ip", "-s", "-j", "link"))}
        stats = [devices[link.device]["stats64"] for link in self.links]
        return [Counters(sent=each["tx"]["bytes"], received=each["rx"]["bytes"]) for each in stats]

    def close(self):
        """Ends the lab and every program in it."""
        for namespace in (self.target, self.host):
            if namespace:
                namespace.close()

    def _build(self):
        if not Path("/proc/sys/net/mptcp/enabled").exists():
            raise Missing("this kernel has no MPTCP (CONFIG_MPTCP)")
        if self.congestion not in ALLOWED_CONGESTION:
            allowed = ", ".join(ALLOWED_CONGESTION)
            raise Missing(
                f"{self.congestion} may not be used here (net.ipv4.tcp_allowed_congestion_control has {allowed})"
            )
        self.host = Namespace()
        self.target = Namespace(beside=self.host)
        for side in (self.host, self.target):
            side.sysctl(**self._sysctls)
            _nft(side, "table inet lab {\n chain arriving { type filter hook prerouting priority raw; }\n}")
            # Checks that the kernel has numgen, which set_loss() needs. The rule is not kept.
            _nft(side, "add rule inet lab arriving numgen random mod 100 < 0 drop", check=True)
            side.ip(f"mptcp limits set subflow {ADDRESSES} add_addr_accepted {ADDRESSES}")
        for index, wanted in enumerate(self._wanted):
            self.links.append(LiveLink(self, index, wanted))


class LiveLink:
    """A link of a running `Lab`. It breaks at once. It heals when both ends notice."""

    def __init__(self, lab, index, wanted):
        self._sides = host, target = (lab.host, lab.target)
        self._mtu = lab.mtu
        self.index = index
        self.device = f"nic{index}"
        self.host_address, self.target_address = self._addresses = (f"10.77.{index}.1", f"10.77.{index}.2")
        self.rate_bit_s = bits_per_second(wanted.rate)
        self._delayed = bool(wanted.delay)
        self._loss, self._silent = 0, False
        self._create(wanted)
        # The endpoint has no device: with one, its subflows would keep trying addresses of other links that it cannot reach.
        host.ip(f"mptcp endpoint add {self.host_address} subflow")
        target.ip(f"mptcp endpoint add {self.target_address} signal")
        if wanted.loss:
            self.set_loss(wanted.loss)
        self._wait_for_carrier()

    def down(self):
        """Pulls the cable: the host's card loses its carrier, and the target's card is switched off."""
        if self._delayed:
            raise LabError(f"{self.device} is a delay line, whose host's card would keep its carrier: silence() it")
        self._sides[1].ip(f"link set {self.device} down")

    def up(self):
        """Plugs the cable in again."""
        self._sides[1].ip(f"link set {self.device} up", *self._routes())  # the routes were lost with the link
        self._wait_for_carrier()

    def silence(self):
        """Drops all packets in both directions. The carrier stays, so neither side is told."""
        self._silent = True
        self._filter()

    def restore(self):
        """Ends `silence`. A loss that was set applies again."""
        self._silent = False
        self._filter()

    def set_rate(self, rate):
        """Changes the rate in both directions, also for queued packets."""
        self.rate_bit_s = bits_per_second(rate)
        for side in self._sides:
            _tc(side, f"qdisc change dev {self.device} {self._tbf()}")

    def set_loss(self, percent):
        """Has each packet be lost with this probability, in both directions. 0 ends the loss."""
        self._loss = percent
        self._filter()

    def counters(self):
        """Bytes on this link's wire so far."""
        stats = json.loads(self._sides[0].run("ip", "-s", "-j", "link", "show", "dev", self.device))[0]["stats64"]
        return Counters(sent=stats["tx"]["bytes"], received=stats["rx"]["bytes"])

    def _create(self, wanted):
        host, target = self._sides
        if wanted.delay:
            self._start_delay_line(wanted.delay)
        else:
            host.ip(f"link add {self.device} type veth peer name {self.device} netns {target.pid}")
        for side, address in zip(self._sides, self._addresses):
            side.ip(
                # Packets have the size of those on a wire, and not 64 KiB, because bursts, queues and losses count packets.
                f"link set {self.device} mtu {self._mtu} gso_max_segs 1",
                f"address add {address}/24 dev {self.device} noprefixroute",
                f"rule add from {address} table {self._table}",
                f"route add unreachable default table {self._table}",
            )
            _tc(side, f"qdisc add dev {self.device} {self._tbf()}")
            _nft(
                side,
                f"add chain inet lab {self.device}\n"
                f'add rule inet lab arriving iifname "{self.device}" jump {self.device}',
            )
        for side in self._sides:
            side.ip(f"link set {self.device} up", *self._routes())

    def _start_delay_line(self, delay):
        """Starts a delay line in place of a veth pair. The kernel's own netem would do, but few kernels of cloud machines have
        it."""
        host, target = self._sides
        line = host.popen(
            sys.executable, DELAY_LINE, self.device, delay, target.pid, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        if not line.stdout.readline():
            raise Missing(f"no delay line can be made: {line.stderr.read().decode().strip()}")

    @property
    def _table(self):
        return 100 + self.index

    def _routes(self):
        """The commands for two routes: one for sockets with a source address, and one for sockets that get it from the route."""
        where = f"10.77.{self.index}.0/24 dev {self.device}"
        return [f"route add {where} table {table}" for table in (self._table, "main")]

    def _tbf(self):
        """The qdisc of a link. tbf is one rate and one queue counted in bytes. A link does not need the classes of htb."""
        bytes_per_second = self.rate_bit_s / 8
        burst = max(int(bytes_per_second * BURST_SECONDS), 2 * self._mtu)
        limit = max(int(bytes_per_second * QUEUE_SECONDS), 10 * self._mtu)
        return f"root handle 10: tbf rate {self.rate_bit_s}bit burst {burst} limit {limit}"

    def _filter(self):
        """Sets loss and silence where packets arrive, because a sender would notice a drop on its own side."""
        rules = [f"flush chain inet lab {self.device}"]
        if self._silent:
            rules.append(f"add rule inet lab {self.device} drop")
        elif self._loss:
            of_a_million = int(self._loss * 10_000)
            rules.append(f"add rule inet lab {self.device} numgen random mod 1000000 < {of_a_million} drop")
        for side in self._sides:
            _nft(side, "\n".join(rules))

    def _wait_for_carrier(self):
        deadline = time.monotonic() + UP_TIMEOUT
        # The cards of a delay line are only `UNKNOWN` when they are up.
        while not all(state in ("UP", "UNKNOWN") for state in map(self._state, self._sides)):
            if time.monotonic() > deadline:
                raise LabError(f"{self.device} does not come up")
            time.sleep(0.01)

    def _state(self, side):
        return json.loads(side.run("ip", "-j", "link", "show", "dev", self.device))[0]["operstate"]


def bits_per_second(rate):
    """A rate as tc writes it, "200mbit", in bit/s."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)", rate)
    if not match or float(match[1]) <= 0:
        raise ValueError(f"not a rate: {rate!r} (like 200mbit)")
    return int(float(match[1]) * UNITS[match[2]])


def _tc(side, words):
    try:
        side.run("tc", *words.split())
    except LabError as error:
        if "qdisc kind is unknown" in str(error):
            raise Missing("this kernel has no tbf (CONFIG_NET_SCH_TBF)") from error
        raise


def _nft(side, rules, check=False):
    try:
        side.run("nft", *(["-c"] if check else []), "-f", "-", input=rules + "\n")
    except Missing:
        raise Missing("nft is missing (scripts/deps.sh lab)") from None
    except LabError as error:
        if check:
            raise Missing(f"this kernel has no numgen for nft (CONFIG_NFT_NUMGEN): {error}") from error
        raise
