"""Secure channel concatenation in the tests: what the combinations are, the generated keys in Linux's keyring, and what passes in
clear text. An authentication in clear text generates a key, and then all connections use TLS with this key."""

import re
import struct
from collections import Counter

from chap import GROUPS, Pair, Proofs, secret
from initiator import HOSTNQN
from nvmet import PORTS
from rig import NQN
from tap import Records, Relay

HASH_NUMBERS = {"sha256": 1, "sha384": 2}  # in identities. SHA-512 has no cipher suite.
# Debian 13's Linux 6.12 has no concatenation, neither as target nor as host.
SUITES = ("forky",)


def pairs(everything):
    """All combinations of hash and group, or some that have each hash and each group. Their secrets are of different kinds."""
    groups = [group for group in GROUPS if group != "null"]
    if everything:
        wanted = [(name, group) for group in groups for name in HASH_NUMBERS]
    else:
        wanted = [(list(HASH_NUMBERS)[index % 2], group) for index, group in enumerate(groups)]
    return [Pair(*one, False, secret(5 * index, 1), secret(5 * index + 1, 2)) for index, one in enumerate(wanted)]


def name_of(pair):
    return f"{pair.hash_name}-{pair.group}"


def set_ports(tls, with_tls=True, required=False):
    """Has both ports of nvmet take TLS, and clear text too unless TLS is `required`. Removes all keys.

    Concatenation needs both: a port without TLS takes no records, and one that requires TLS takes no authentication in clear
    text.
    """
    for port in PORTS:
        tls.set_port(port, with_tls, required)
    tls.clear_keys()


def generated(world):
    """The generated keys in the guest's keyring that are not revoked: {number: hash of the identity}."""
    line = re.compile(rf"(\w+) I.(.)\S* .* psk +NVMe1G(\d\d) {re.escape(HOSTNQN)} {re.escape(NQN)} [\w+/]+=*: \d+")
    found = [line.fullmatch(text) for text in world.sh("grep ' psk ' /proc/keys", check=False).splitlines()]
    return {int(one[1], 16): int(one[3]) for one in found if one and one[2] != "R"}


class KeyedProofs(Proofs):
    """Also the keys that the queues of nvmet have used."""

    MESSAGES = (*Proofs.MESSAGES, "using TLS PSK")

    def keys_of_target(self):
        """The number of the key of each connection with TLS, in their order."""
        return [int(word, 16) for word in re.findall(r"using TLS PSK (\w+)", self.look())]


class Phases(Relay):
    """Forwards connections, and tells those in clear text from those of TLS.

    `commands` counts what passes in clear text, by name. `streams` has the state of each direction of each connection of TLS.
    """

    ALLOWED = {"ICReq", "ICResp", "Connect", "Authentication Send", "Authentication Receive", "response", "data"}
    PDUS = {0: "ICReq", 1: "ICResp", 5: "response", 7: "data"}
    CAPSULE_CMD, FABRICS = 4, 0x7F
    LENGTH_MAX = 8192  # bytes of a PDU. Linux's host asks for 4096 bytes at a time.
    FABRICS_NAMES = {1: "Connect", 5: "Authentication Send", 6: "Authentication Receive"}

    def __init__(self, to):
        self.commands, self.streams = Counter(), []
        super().__init__(to)

    def wrong(self):
        """Says what has passed in clear text and is no part of an authentication, or that nothing was in TLS, or ""."""
        if commands := {name: count for name, count in self.commands.items() if name not in self.ALLOWED}:
            return f"in clear text: {commands}"
        if not all(stream.is_tls for stream in self.streams):
            return "bytes between the records of TLS"
        if not any(stream.types[Records.APPLICATION_DATA] for stream in self.streams):
            return "nothing has passed in records of TLS"
        return ""

    def said(self):
        """What has passed, in words."""
        sent = sum(stream.bytes for stream in self.streams) >> 10
        return f"{self.commands['ICReq']} authentications in clear text, then {sent} KiB in records of TLS"

    def _look(self, from_host):
        look = None

        def first(data):
            nonlocal look
            if not look and data[0] in Records.KINDS:
                self.streams.append(Records(from_host))
                look = self.streams[-1].feed
            look = look or self._clear_text()
            look(data)

        return first

    def _clear_text(self):
        """A function that counts the PDUs in the bytes of one direction."""
        held = b""

        def look(data):
            nonlocal held
            held += data
            while len(held) >= 8:
                length = max(struct.unpack_from("<I", held, 4)[0], 8)
                if len(held) < length <= self.LENGTH_MAX:
                    break
                self.commands[self._name(held[:length])] += 1
                held = held[length:]

        return look

    def _name(self, pdu):
        length = struct.unpack_from("<I", pdu, 4)[0]
        if length > self.LENGTH_MAX:
            return f"PDU of {length} bytes"
        if pdu[0] != self.CAPSULE_CMD or len(pdu) < 72:
            return self.PDUS.get(pdu[0], f"PDU of type {pdu[0]}")
        if pdu[8] != self.FABRICS:
            return f"command {pdu[8]:#04x}"
        name = self.FABRICS_NAMES.get(pdu[12], f"fabrics command {pdu[12]}")
        queue = struct.unpack_from("<H", pdu, 8 + 42)[0]
        return f"Connect of queue {queue}" if pdu[12] == 1 and queue else name
