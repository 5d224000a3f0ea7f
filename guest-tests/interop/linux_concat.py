"""Linux's host against Linux's target in one guest, with secure channel concatenation. The tests show what this Linux does, so
that a failure of this project's programs against the guest is theirs."""

import functools
import re
import uuid

from case import PATIENCE, check, wait_for
from chap import CTRL_SECRET, HOST_SECRET, WRONG_SECRET
from concat import HASH_NUMBERS, SUITES, KeyedProofs, Phases, generated, set_ports
from initiator import HOST, HOSTID, HOSTNQN
from raw_host import BLOCK, RawHost
from rig import NQN

QUEUES = 3  # of each controller, as `Tls.connect` asks for them
LIVE_TIMEOUT = 30  # seconds


def concatenation(host_secret, ctrl_secret=None):
    """Options of `nvme connect`."""
    words = ["--concat", f"--dhchap-secret={host_secret}"]
    return words + [f"--dhchap-ctrl-secret={ctrl_secret}"] * bool(ctrl_secret)


def keys_in_use(world):
    """The numbers of the keys with which the controllers have connected."""
    return set(world.keys_of_tls())


def end_controllers(world):
    world.sh("for one in /sys/class/nvme/nvme*; do echo 1 >$one/delete_controller; done", check=False, timeout=60)


def concatenates(hash_name, ctrl_secret, world, _):
    """All that Linux sends passes through a relay on the host. Then its connections are cut."""
    set_ports(world.tls)
    world.tls.allow(HOSTNQN, HOST_SECRET, CTRL_SECRET, hash_name, "ffdhe2048")
    proofs = KeyedProofs(world)
    world.tls.log()
    number = HASH_NUMBERS[hash_name]
    before = None
    try:
        with Phases(int(world.nvmet.paths[0].rsplit(":", 1)[1])) as relay:
            world.tls.connect(HOST, relay.port, HOSTNQN, HOSTID, *concatenation(HOST_SECRET, ctrl_secret))
            for _ in range(2):
                wait_for(lambda: world.sh("cat /sys/class/nvme/nvme0/state").strip() == "live", LIVE_TIMEOUT, "nvme0 live")
                wait_for(lambda: "nvme0n1" in world.sh("ls /sys/block"), PATIENCE, "a disk nvme0n1")
                world.transfer()
                used = keys_in_use(world)
                check(len(used) == 1 and used != before, f"connected with the keys {used}, after {before}")
                kinds = {generated(world).get(key) for key in used}
                check(kinds == {number}, f"the key {used} is none with an identity NVMe1G{number:02}: {generated(world)}")
                check(set(proofs.keys_of_target()) == used, f"nvmet's queues use the keys {proofs.keys_of_target()}")
                check(len(proofs.keys_of_target()) == QUEUES, f"not {QUEUES} connections: {proofs.keys_of_target()}")
                sides = {(qid, side) for _, qid, side in proofs.of_target()}
                check(sides == {(0, "host")}, f"nvmet has authenticated {sides}")
                check(not any(side == "ctrl" for _, _, side in proofs.of_host()), "the host has the controller prove itself")
                if before is None:
                    before = used
                    proofs.forget()
                    relay.cut()
                    wait_for(lambda: world.sh("cat /sys/class/nvme/nvme0/state").strip() != "live", PATIENCE, "nvme0 lost")
            world.tls.disconnect()
            check(not relay.wrong(), relay.wrong())
            said = relay.said()
    finally:
        end_controllers(world)
        world.tls.allow_any(HOSTNQN)
    text = world.tls.log()
    ciphers = set(re.findall(r"Session description: \S+--\((.*)\)", text))
    check(ciphers == {{1: "AES-128-GCM", 2: "AES-256-GCM"}[number]}, f"ciphers: {ciphers}")
    asked = "; a controller secret is ignored, even a wrong one" * bool(ctrl_secret)
    return f"identity NVMe1G{number:02}, {ciphers.pop()}, a new key after a loss; {said}{asked}"


def refused(world, _):
    tls = world.tls
    reasons = []

    usual = (HOST_SECRET, CTRL_SECRET, "sha256", "ffdhe2048")

    def refuse(name, expected, port=(), allowed=usual, secret=HOST_SECRET):
        set_ports(tls, *port)
        tls.allow(HOSTNQN, *allowed)
        try:
            said = world.refused(*concatenation(secret))
        finally:
            tls.allow_any(HOSTNQN)
        check(expected in said, f"{name}: {said}")
        reasons.append(name)

    refuse("a port that requires TLS", "failed to receive icresp", (True, True))
    refuse("a port without TLS", "unexpected pdu type 22", (False,))
    refuse("no group but null", "qid 0 failure1 (3)", allowed=(HOST_SECRET, CTRL_SECRET, "sha256", "null"))
    # Linux's host offers SHA-512, and only then notices that no cipher suite has it.
    refuse("SHA-512", "failed to generate digest", allowed=(HOST_SECRET, CTRL_SECRET, "sha512", "ffdhe2048"))
    refuse("a wrong secret", "host response mismatch", secret=WRONG_SECRET)
    # Linux's host has no word for that: it goes on without a key and without TLS, and misses what it has not asked for.
    refuse("no secret on the target", "Mandatory sgls are not supported", allowed=())
    return ", ".join(reasons)


def clear_text(world, _):
    """A port that takes TLS and clear text does not insist on concatenation."""
    set_ports(world.tls)
    world.tls.allow(HOSTNQN, HOST_SECRET, CTRL_SECRET, "sha256", "ffdhe2048")
    try:
        world.connect(f"--dhchap-secret={HOST_SECRET}")
        world.transfer()
        check(not generated(world), f"keys: {generated(world)}")
        world.tls.disconnect()
    finally:
        world.tls.allow_any(HOSTNQN)
    world.said()
    return "nvmet serves a host in clear text that authenticates and asks for no concatenation"


def open_to_all(world, _):
    """A queue in clear text joins a controller whose queues use TLS. Its host knows the names and the controller's number only."""
    set_ports(world.tls)
    world.tls.allow(HOSTNQN, HOST_SECRET, CTRL_SECRET, "sha256", "ffdhe2048")
    try:
        world.connect(*concatenation(HOST_SECRET))
        check(len(keys_in_use(world)) == 1, f"connected with the keys {keys_in_use(world)}")
        world.transfer()
        first = bytes.fromhex(world.sh(f"hexdump -v -n {BLOCK} -e '1/1 \"%02x\"' data"))
        cntlid = int(world.sh("cat /sys/class/nvme/nvme0/cntlid"))
        with RawHost(int(world.nvmet.paths[0].rsplit(":", 1)[1])) as host:
            # Linux's host has the queues below.
            status, asked = host.connect(HOSTNQN, uuid.uuid4(), NQN, cntlid, qid=QUEUES)
            check(status == 0, f"nvmet refuses the queue with status {status:#x}")
            check(not asked, "nvmet asks for authentication on the queue")
            status, data = host.read(0)
            check(status == 0 and data == first, f"nvmet answers the read with status {status:#x} and {len(data)} bytes")
    finally:
        end_controllers(world)
        world.tls.allow_any(HOSTNQN)
    world.said()
    return "nvmet takes an I/O queue in clear text to a controller with TLS, from a host without a secret that then reads a block"


def lacking(world, _):
    options = world.sh("cat /dev/nvme-fabrics").strip().split(",")
    check("tls" in options and "concat" not in options, f"Linux's host has the options {options}")
    return "SKIPPED: all tests of concatenation, because the Linux of this guest has none"


def tests(suite):
    """The tests for the guest of a release of Debian."""
    if suite not in SUITES:
        return [("linux-concat", lacking)]
    return [
        ("linux-concat-sha256", functools.partial(concatenates, "sha256", None)),
        ("linux-concat-sha384", functools.partial(concatenates, "sha384", None)),
        ("linux-concat-ctrl-secret", functools.partial(concatenates, "sha384", WRONG_SECRET)),
        ("linux-concat-refused", refused),
        ("linux-concat-clear-text", clear_text),
        ("linux-concat-open", open_to_all),
    ]
