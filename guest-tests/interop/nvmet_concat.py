"""This daemon with secure channel concatenation against Linux's nvmet: hashes and groups, lost paths under load, and set-ups that
must be refused."""

import functools

from against_nvmet import Benches, bench, both_carried, live, lose_paths, rig_of
from case import check, wait_for
from chap import CTRL_SECRET, HASHES, HOST_SECRET, WRONG_SECRET, keys_in, secret_options
from concat import HASH_NUMBERS, SUITES, KeyedProofs, Phases, generated, name_of, pairs, set_ports
from initiator import HOSTNQN
from keys import HOST_OPTIONS
from nvmet_chap import LIVE_TIMEOUT, SILENT, UNASKED, WrongSetup, tried
from nvmet_tls import SUITE_NAMES

QUEUES = 2  # of each path, with one I/O thread


def expect_concatenation(world, rig, proofs, hash_name, group):
    """Fails unless both associations use a key of their own that an authentication with this hash and group has generated.
    Returns the keys that connections have used since `proofs.forget`."""
    number = HASH_NUMBERS[hash_name]
    expected = {"sides": "host", "hash": HASHES[hash_name], "dh-group": group}
    for path in rig.ctl("path", "list"):
        check(path["tls-suite"] == SUITE_NAMES[number], f"{path['address']} uses {path['tls-suite']}")
        check(path["authentication"] == expected, f"{path['address']} shows {path['authentication']}, not {expected}")
    used = proofs.keys_of_target()
    # After a handshake that has failed, the daemon begins again, with another key.
    complete = [key for key in set(used) if used.count(key) == QUEUES]
    check(len(complete) == 2, f"2 paths with {QUEUES} connections each have used the keys {used}")
    kinds = generated(world)
    check(all(kinds.get(key) == number for key in complete), f"not all of {complete} have an identity NVMe1G{number:02}: {kinds}")
    sides = {(qid, side) for _, qid, side in proofs.of_target()}
    check(sides == {(0, "host")}, f"nvmet has authenticated {sides}")
    return set(used)


def pair(one):
    def test(world, directory):
        nvmet = world.nvmet
        set_ports(world.tls)
        world.tls.allow(HOSTNQN, one.host_secret, one.ctrl_secret, one.hash_name, one.group)
        proofs = KeyedProofs(world)
        options = ("--concat", *secret_options(directory, one.host_secret), *HOST_OPTIONS)
        try:
            with Phases(int(nvmet.paths[0].rsplit(":", 1)[1])) as relay:
                paths = [f"tcp://127.0.0.1:{relay.port}", nvmet.paths[1]]
                with rig_of(directory, nvmet, *options, paths=paths) as rig, Benches(rig) as load:
                    wait_for(lambda: live(rig, 0, 1), LIVE_TIMEOUT, "both paths live")
                    before = expect_concatenation(world, rig, proofs, one.hash_name, one.group)
                    proofs.forget()
                    said = lose_paths(rig, nvmet, relay, LIVE_TIMEOUT)
                    wait_for(lambda: live(rig, 0, 1), LIVE_TIMEOUT, "both paths live again")
                    after = expect_concatenation(world, rig, proofs, one.hash_name, one.group)
                    check(not before & after, f"the keys {before & after} were used again after a loss")
                    verified = load.end()
                    both_carried(rig)
                log = rig.log("vhost-blk-mpath").read_text()
                check(not relay.wrong(), f"path 0: {relay.wrong()}")
                said = f"{said}; path 0: {relay.said()}"
        finally:
            world.tls.allow_any(HOSTNQN)
        check(not keys_in(log, one.host_secret, one.ctrl_secret), "the log has bytes of a secret")
        return f"{said}; {verified}"

    return test


def falls_back(world, directory):
    """nvmet with SHA-512 does not insist on it. It uses a hash that the daemon offers."""
    set_ports(world.tls)
    world.tls.allow(HOSTNQN, HOST_SECRET, None, "sha512", "ffdhe2048")
    try:
        options = ("--concat", *secret_options(directory, HOST_SECRET), *HOST_OPTIONS)
        with rig_of(directory, world.nvmet, *options) as rig:
            wait_for(lambda: live(rig, 0, 1), LIVE_TIMEOUT, "both paths live")
            shown = [(path["authentication"]["hash"], path["tls-suite"]) for path in rig.ctl("path", "list")]
            expected = [(HASHES[name], SUITE_NAMES[number]) for name, number in HASH_NUMBERS.items()]
            check(shown[0] == shown[1] and shown[0] in expected, f"hash and suite: {shown}")
            report = bench(rig, seconds=1)
            both_carried(rig)
    finally:
        world.tls.allow_any(HOSTNQN)
    world.said()
    return f"nvmet allows SHA-512 and uses {shown[0][0]}; {report['completed']} requests"


FAILED = "authentication failed"
USUAL = (HOSTNQN, HOST_SECRET, CTRL_SECRET, "sha256", "ffdhe2048")
UNASKED_ERROR = "check that the target has the secret of this host NQN"
# The arguments of `set_ports`, for the set-ups that have other ports than usual.
PORT_OPTIONS = {"port-without-tls": (False,), "port-requires-tls": (True, True)}
Setup = functools.partial(WrongSetup, ctrl=CTRL_SECRET)
WRONG_SETUPS = (
    # nvmet of Debian 14 proves itself, but then has forgotten what it generates the key from.
    Setup("ctrl-secret", "no TLS connection with the key that the authentication has generated", "failed to generate PSK, error -22", USUAL),
    Setup("wrong-host-secret", FAILED + ".*refused the proof of this host", "host response mismatch", USUAL, host=WRONG_SECRET),
    # nvmet does not expect the host's refusal here, and ends the controller.
    Setup("wrong-ctrl-secret", FAILED + ".*the controller could not prove itself", "fatal error occurred", USUAL,
        ctrl=WRONG_SECRET),
    # The authentication succeeds, and then nvmet takes the first record of TLS for a PDU.
    Setup("port-without-tls", "check that this port of the controller uses TLS", "unexpected pdu type 22", USUAL),
    # Only tlshd complains: it expects a record of TLS in place of the PDU.
    Setup("port-requires-tls", "secure channel concatenation: .* takes clear text too", SILENT, USUAL),
    Setup("null-group", FAILED, r"qid 0 failure1 \(3\)", (HOSTNQN, HOST_SECRET, CTRL_SECRET, "sha256", "null")),
    Setup("target-without-secret", UNASKED_ERROR, UNASKED, (HOSTNQN,)),
    Setup("target-asks-for-nothing", UNASKED_ERROR, UNASKED, None),
)  # fmt: skip


def refused(setup, world, directory):
    tls = world.tls
    set_ports(tls, *PORT_OPTIONS.get(setup.name, ()))
    if setup.allowed:
        tls.allow(*setup.allowed)
    try:
        options = ("--concat", *secret_options(directory, setup.host, setup.ctrl))
        return tried(world, directory, setup, options)
    finally:
        tls.allow_any(HOSTNQN)


def tests(suite, everything):
    """The tests for the guest of a release of Debian. With `everything`, all combinations of hash and group."""
    if suite not in SUITES:
        return []
    return [
        *((f"nvmet-concat-{name_of(one)}", pair(one)) for one in pairs(everything)),
        ("nvmet-concat-sha512", falls_back),
        *((f"nvmet-concat-refuses-{setup.name}", functools.partial(refused, setup)) for setup in WRONG_SETUPS),
    ]
