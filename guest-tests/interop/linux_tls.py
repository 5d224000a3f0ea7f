"""Linux's host against Linux's target in one guest, with TLS and with DH-HMAC-CHAP. The tests show that the guest can do both, so
that a failure of this project's programs against the guest is theirs."""

import re

from case import PATIENCE, check, wait_for
from initiator import HOSTID, HOSTNQN
from keys import CONFIGURED
from nvmet import PORTS
from rig import NQN
from tls import SHA384_SUITES, dhchap_secret, tls_psk

ADDRESS = "10.0.2.15"  # the guest's own, where its first port listens
HOST_SECRET = dhchap_secret(bytes(range(1, 33)), 1)
CTRL_SECRET = dhchap_secret(bytes(range(2, 50)), 2)
WRONG_SECRET = dhchap_secret(bytes(range(3, 35)), 1)
GROUPS = ("null", "ffdhe2048", "ffdhe3072")  # larger ones take seconds in an emulated guest


class World:
    """The guest as target (`nvmet`) and as host (`tls`)."""

    def __init__(self, nvmet, tls):
        self.nvmet, self.tls = nvmet, tls
        self.sh = nvmet.guest.sh

    def connect(self, *options):
        self.tls.connect(ADDRESS, PORTS[0], HOSTNQN, HOSTID, *options)
        wait_for(lambda: "nvme0n1" in self.sh("ls /sys/block"), PATIENCE, "a disk nvme0n1")

    def transfer(self):
        """Writes a MiB of random data, and compares it with what is read."""
        self.sh("""
            set -e
            dd if=/dev/urandom of=data bs=64k count=16 2>/dev/null
            dd if=data of=/dev/nvme0n1 bs=64k oflag=direct 2>/dev/null
            dd if=/dev/nvme0n1 bs=64k count=16 iflag=direct 2>/dev/null | cmp - data
        """)

    def refused(self, *options):
        """Tries to connect, which must fail. Returns what the kernel and tlshd say about that."""
        self.said()
        worked = self.tls.connect(ADDRESS, PORTS[0], HOSTNQN, HOSTID, *options, must=False)
        said = self.said()
        check(not worked, f"a connection that must be refused is not: {options}")
        left = self.sh("ls /sys/class/nvme").split()
        check(not left, f"left after a refused connection: {left}")
        return said

    def said(self):
        return self.sh("dmesg -c") + self.tls.log()

    def keys_of_tls(self):
        """The numbers of the PSKs with which the controllers have connected."""
        return {int(word, 16) for word in self.sh("cat /sys/class/nvme/nvme*/tls_key").split()}


def suite_of(hash_number):
    def test(world, _):
        tls = world.tls
        tls.set_port(PORTS[0], tls=True)
        before = statistics(world)
        for version in (0, 1):
            tls.clear_keys()
            key = tls.insert(CONFIGURED[hash_number], hash_number, HOSTNQN, version)
            identity, psk = tls_psk(CONFIGURED[hash_number], hash_number, HOSTNQN, NQN, version, compat=tls.compat_only)
            check(tls.keys() == {identity: psk}, f"the keyring has {tls.keys()}, not {identity} with {psk.hex()}")
            world.connect("--tls")
            check(world.keys_of_tls() == {key}, f"connected with the keys {world.keys_of_tls()}, not with {key}")
            world.transfer()
            tls.disconnect()
        after = statistics(world)
        check(after["TlsDecryptError"] == before["TlsDecryptError"], "records could not be decrypted")
        sockets = after["TlsRxSw"] - before["TlsRxSw"]
        # Each controller has three connections, and both their ends are here.
        check(sockets == 2 * 2 * 3, f"{sockets} sockets had TLS")
        name = {1: "AES-128-GCM", 2: "AES-256-GCM"}[hash_number]
        check(re.findall(r"Session description: \S+--\((.*)\)", tls.log()) == [name] * sockets, f"not always {name}")
        return f"{sockets} sockets with {name}, identities of version 0 and 1"

    return test


def statistics(world):
    return {name: int(value) for name, value in (line.split() for line in world.sh("cat /proc/net/tls_stat").splitlines())}


def refused(world, _):
    tls = world.tls
    tls.set_port(PORTS[0], tls=True)
    identity, psk = tls_psk(CONFIGURED[1], 1, HOSTNQN, NQN, 1)
    tls.clear_keys()
    said = world.refused("--tls")
    check("no valid PSK found" in said, f"no key: {said}")
    other = tls.other_key(identity, bytes(32))
    said = world.refused("--tls", *other)
    check("failed to search 'psk' key" in said or "TLS handshake complete, error" in said, f"unknown identity: {said}")
    tls.insert_psk(identity, psk)
    said = world.refused("--tls", *other)
    check("TLS handshake complete, error" in said, f"wrong key: {said}")
    said = world.refused()
    check("failed to receive icresp" in said, f"clear text: {said}")
    tls.set_port(PORTS[0], tls=False)
    said = world.refused("--tls")
    check("unexpected pdu type 22" in said, f"TLS to a port without TLS: {said}")
    return "no key, an unknown identity, a wrong key, clear text, TLS to a port without it"


def not_required(world, _):
    tls = world.tls
    tls.set_port(PORTS[0], tls=True, required=False)
    tls.clear_keys()
    tls.insert_psk(*tls_psk(CONFIGURED[1], 1, HOSTNQN, NQN, 1))
    for options in (("--tls",), ()):
        world.connect(*options)
        world.transfer()
        tls.disconnect()
    return "one port took TLS and clear text"


def authentication(world, _):
    tls = world.tls
    tls.set_port(PORTS[0], tls=False)
    combinations = 0
    try:
        for name in ("sha256", "sha384", "sha512"):
            for group in GROUPS:
                both = combinations % 2
                tls.allow(HOSTNQN, HOST_SECRET, CTRL_SECRET if both else None, name, group)
                world.said()
                world.connect(f"--dhchap-secret={HOST_SECRET}", *[f"--dhchap-ctrl-secret={CTRL_SECRET}"] * both)
                world.transfer()
                tls.disconnect()
                said = world.said()
                check(f"authenticated with hash hmac({name}) dhgroup {group}" in said, f"{name}, {group}: {said}")
                check(("controller authenticated" in said) == both, f"{name}, {group}: directions are wrong: {said}")
                combinations += 1
        tls.allow(HOSTNQN, HOST_SECRET, CTRL_SECRET)
        said = world.refused(f"--dhchap-secret={WRONG_SECRET}")
        check("host response mismatch" in said, f"wrong secret: {said}")
        said = world.refused(f"--dhchap-secret={HOST_SECRET}", f"--dhchap-ctrl-secret={WRONG_SECRET}")
        check("controller authentication failed" in said, f"wrong secret of the controller: {said}")
        said = world.refused()
        check("no key" in said, f"no secret: {said}")
    finally:
        tls.allow_any(HOSTNQN)
    return f"{combinations} combinations of hash and group; wrong secrets and none are refused"


def both(world, _):
    tls = world.tls
    tls.set_port(PORTS[0], tls=True)
    tls.clear_keys()
    tls.insert_psk(*tls_psk(CONFIGURED[1], 1, HOSTNQN, NQN, 1))
    tls.allow(HOSTNQN, HOST_SECRET, CTRL_SECRET, "sha384", "ffdhe2048")
    try:
        world.said()
        world.connect("--tls", f"--dhchap-secret={HOST_SECRET}", f"--dhchap-ctrl-secret={CTRL_SECRET}")
        world.transfer()
        tls.disconnect()
    finally:
        tls.allow_any(HOSTNQN)
    said = world.said()
    check("controller authenticated" in said, f"not authenticated: {said}")
    return "authenticated over TLS"


def tests(suite):
    """The tests for the guest of a release of Debian."""
    return [
        ("linux-tls-sha256", suite_of(1)),
        *([("linux-tls-sha384", suite_of(2))] if suite in SHA384_SUITES else []),
        ("linux-tls-refused", refused),
        ("linux-tls-not-required", not_required),
        ("linux-tls-dhchap", authentication),
        # With TLS, Debian 14's nvmet asks for no authentication, even from a host that has a key.
        *([("linux-tls-and-dhchap", both)] if suite == "trixie" else []),
    ]
