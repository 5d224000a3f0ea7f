"""DH-HMAC-CHAP in the tests: the combinations of hash, group and direction, the secrets and their files, and what Linux says."""

import re
import socket
import struct
import threading
from collections import namedtuple

from keys import key_file
from tap import Relay, end, forward
from tls import dhchap_secret

HASHES = {"sha256": "SHA-256", "sha384": "SHA-384", "sha512": "SHA-512"}  # names of Linux, and of this project
GROUPS = ("null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192")
# Each length of a key with each hash of its transformation. 0 is none.
KINDS = [(length, hash_number) for hash_number in range(4) for length in (32, 48, 64)]


def secret(kind, first):
    """The secret of a kind, with its number in KINDS. Secrets with different `first` bytes differ."""
    length, hash_number = KINDS[kind % len(KINDS)]
    return dhchap_secret(bytes((first + index) % 256 for index in range(length)), hash_number)


HOST_SECRET, CTRL_SECRET, WRONG_SECRET = (secret(3, 1), secret(7, 2), secret(3, 3))

# `both` says that the controller proves itself too.
Pair = namedtuple("Pair", "hash_name group both host_secret ctrl_secret")
BOTH = Pair("sha256", "null", True, HOST_SECRET, CTRL_SECRET)


def name_of(pair):
    return f"{pair.hash_name}-{pair.group}-{'both' if pair.both else 'host'}"


def pairs(everything):
    """All combinations of hash, group and direction, or some that have each hash, each group and each direction. Their secrets
    are of different kinds."""
    if everything:
        wanted = [(name, group, both) for group in GROUPS for name in HASHES for both in (False, True)]
    else:
        wanted = [(list(HASHES)[index % len(HASHES)], group, bool(index % 2)) for index, group in enumerate(GROUPS)]
    return [Pair(*one, secret(5 * index, 1), secret(5 * index + 1, 2)) for index, one in enumerate(wanted)]


def secret_options(directory, host, ctrl=None, mode=0o600, ctrl_mode=0o600):
    """Writes the secrets to files. Returns options of the daemon, or of mpath-target. `None` is no secret."""
    options = []
    for name, text, bits in (("secret", host, mode), ("ctrl-secret", ctrl, ctrl_mode)):
        if text is not None:
            options += [f"--dhchap-{name}-file", key_file(directory, text, bits, f"{name}.key")]
    return options


def keys_in(text, *secrets):
    """Whether the text has bytes of one of the secrets."""
    return any(one.split(":")[2][:16] in text for one in secrets if one)


class Proofs:
    """The queues that the Linux of a guest has authenticated since construction, or since `forget`.

    Linux says so only in messages for debugging. They are on from the construction on.
    """

    # As a target: the host of a queue has proven itself, or the controller has. As a host: the same.
    MESSAGES = ("host authenticated", "ctrl authenticated", "receive success1", "send success2")

    def __init__(self, world):
        self._sh, self.said = world.sh, ""
        lines = "".join(f"echo 'format \"{text}\" +p' >/proc/dynamic_debug/control\n" for text in self.MESSAGES)
        self._sh(f"set -e\n{lines}dmesg -c >/dev/null")

    def forget(self):
        self.look()
        self.said = ""

    def look(self):
        """Takes what the kernel has said. Returns everything since the last `forget`."""
        self.said += self._sh("dmesg -c")
        return self.said

    def of_target(self):
        """A set of (CNTLID, QID, "host" or "ctrl") from nvmet."""
        found = re.findall(r"ctrl (\d+) qid (\d+) (host|ctrl) authenticated", self.look())
        return {(int(cntlid), int(qid), side) for cntlid, qid, side in found}

    def of_host(self):
        """A list of (controller, QID, "host" or "ctrl") from Linux's host. Before `send success2`, the controller was proven."""
        found = re.findall(r"nvme (nvme\d+): .*qid (\d+) (receive success1|send success2)", self.look())
        return [(name, int(qid), "ctrl" if "2" in message else "host") for name, qid, message in found]


class Offer(Relay):
    """Forwards connections, and cuts the lists of hashes and groups that the host offers down to one of each."""

    NEGOTIATE = b"\0\0"
    CAPSULE_CMD, FABRICS, AUTHENTICATION_SEND = 4, 0x7F, 5
    LISTS = 8 + 4  # offset of the hashes in the message. The groups are 30 bytes later.

    def __init__(self, to, hash_id, group_id):
        self._hash_id, self._group_id = hash_id, group_id
        self.changed = 0
        super().__init__(to)

    def _begin(self, host, target):
        threading.Thread(target=self._from_host, args=(host, target), daemon=True).start()
        threading.Thread(target=forward, args=(target, host, self._look(False)), daemon=True).start()

    def _from_host(self, host, target):
        """Copies PDUs."""
        try:
            while len(header := host.recv(8, socket.MSG_WAITALL)) == 8:
                offset, length = header[3], struct.unpack_from("<I", header, 4)[0]
                pdu = bytearray(header + host.recv(length - 8, socket.MSG_WAITALL))
                is_send = header[0] == self.CAPSULE_CMD and (pdu[8], pdu[12]) == (self.FABRICS, self.AUTHENTICATION_SEND)
                if is_send and pdu[offset : offset + 2] == self.NEGOTIATE:
                    lists = offset + self.LISTS
                    pdu[lists - 2 : lists] = 1, 1
                    pdu[lists], pdu[lists + 30] = self._hash_id, self._group_id
                    self.changed += 1
                target.sendall(pdu)
        except OSError:
            pass  # the other side learns it below
        for one in (host, target):
            end(one)
