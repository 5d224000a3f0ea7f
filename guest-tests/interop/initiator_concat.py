"""Linux's initiator with secure channel concatenation against mpath-target: hashes and groups, lost paths under load, and hosts
that must be refused."""

import functools
from collections import namedtuple

from case import check, wait_for
from chap import CTRL_SECRET, HOST_SECRET, WRONG_SECRET, secret_options
from concat import HASH_NUMBERS, SUITES, KeyedProofs, Phases, generated, name_of, pairs
from initiator import HOST, HOSTID, HOSTNQN
from initiator_chap import IO_TIMEOUT, LIVE_TIMEOUT, REFUSED, host
from linux_concat import concatenation, keys_in_use


def expect_concatenation(world, linux, proofs, hash_name, *controllers):
    """Fails unless each of these controllers has a generated key of its own, and Linux has authenticated its admin queue alone.
    Returns the keys of all controllers."""
    used, kinds = keys_in_use(world), generated(world)
    check(len(used) == 2, f"2 controllers use the keys {used}")
    number = HASH_NUMBERS[hash_name]
    check(all(kinds.get(key) == number for key in used), f"not all of {used} have an identity NVMe1G{number:02}: {kinds}")
    modes = linux.sh("cat /sys/class/nvme/nvme*/tls_mode").split()
    check(modes == ["concat"] * 2, f"the modes of TLS are {modes}")
    seen = proofs.of_host()
    for name in controllers:
        sides = {(qid, side) for controller, qid, side in seen if controller == name}
        # Linux's host does not ask for the proof of the controller, even if it has a secret for that.
        check(sides == {(0, "host")}, f"{name} has authenticated {sides}: {proofs.said}")
    check("authentication failed" not in proofs.said, f"Linux says: {proofs.said}")
    return used


def pair(one):
    return functools.partial(concatenates, one, None)


def concatenates(one, ctrl_secret, world, directory):
    """Connections are cut by the target, and a port is closed, while fio verifies. Path 0 leads through a relay."""
    world.tls.prepare_group(one.group)
    world.tls.clear_keys()
    options = (*secret_options(directory, one.host_secret, one.ctrl_secret), "--dhchap-hash", one.hash_name)
    options = ("--concat", *options, "--dhchap-group", one.group)
    with host(world, directory, *options) as linux, Phases(linux.target.ports[0]) as relay:
        proofs = KeyedProofs(world)
        linux.connect_with(one.host_secret, ctrl_secret, "concat", ports=[relay.port, linux.target.ports[1]])
        first = expect_concatenation(world, linux, proofs, one.hash_name, "nvme0", "nvme1")
        for index in (0, 1):
            expected = f"nvme{index}: qid 0: authenticated with hash hmac({one.hash_name}) dhgroup {one.group}"
            check(expected in proofs.said, f"Linux does not say {expected!r}: {proofs.said}")
        linux.start_load()
        for index in (0, 1):
            wait_for(linux.carries(index), IO_TIMEOUT, f"I/O on path {index}")
        proofs.forget()
        linux.target.set("all", "reset=all")
        wait_for(lambda: "live" not in linux.states(), IO_TIMEOUT, "both controllers lost")
        cut = wait_for(lambda: linux.states() == ["live"] * 2, LIVE_TIMEOUT, "both controllers live again")
        for index in (0, 1):
            wait_for(linux.carries(index), IO_TIMEOUT, f"I/O on path {index} again")
        second = expect_concatenation(world, linux, proofs, one.hash_name, "nvme0", "nvme1")
        check(not first & second, f"the keys {first & second} were used again after a loss")
        proofs.forget()
        back = linux.lose_second_path()
        third = expect_concatenation(world, linux, proofs, one.hash_name, "nvme1")
        check(len(second & third) == 1, f"nvme1 has no new key, or nvme0 has one: {second}, then {third}")
        said = linux.end_load()
        linux.disconnect()
        check(not relay.wrong(), f"path 0: {relay.wrong()}")
        check(not linux.target.log(), f"the target complains: {linux.target.log()}")
    times = f"connections cut: live after {cut:.1f} s; port closed: live {back:.1f} s after it was open"
    asked = "; Linux does not ask for the proof of the controller, and does not notice a wrong secret" * bool(ctrl_secret)
    return f"{times}; path 0: {relay.said()}; {said}{asked}"


# A host that must be refused. `options` are those of `nvme connect`, and `target` those of mpath-target. `kernel` is what Linux
# says, and `log` what mpath-target prints, if anything.
Refused = namedtuple("Refused", "name kernel log options target", defaults=(("--concat",),))

SECRET = f"--dhchap-secret={HOST_SECRET}"
FAILED = "authentication failed"
REFUSED_HOSTS = (
    # The target asks for concatenation in its answer to Connect.
    Refused("no-concat", "secure concatenation is not supported", "", [SECRET]),
    Refused("no-secret", "secure concatenation is not supported", "", []),
    Refused("wrong-secret", FAILED, REFUSED + "the host could not prove itself", concatenation(WRONG_SECRET)),
    # This target, without --concat, takes clear text and no TLS.
    Refused("target-without-concat", FAILED, REFUSED, concatenation(HOST_SECRET), ()),
)


def refused(setup, world, directory):
    world.tls.clear_keys()
    with host(world, directory, *setup.target, *secret_options(directory, HOST_SECRET, CTRL_SECRET)) as linux:
        worked = world.tls.connect(HOST, linux.target.ports[0], HOSTNQN, HOSTID, *setup.options, must=False)
        check(not worked, "connected")
        left = world.sh("ls /sys/class/nvme").split()
        check(not left, f"left after a refused connection: {left}")
        said, log = world.said(), linux.target.log()
        check(setup.kernel in said, f"Linux does not say {setup.kernel!r}: {said}")
        check(setup.log in log, f"the target says {log!r}, not {setup.log!r}")
        check(not generated(world), f"keys were generated: {generated(world)}")
    return log.strip() or setup.kernel


def tests(suite, everything):
    """The tests for the guest of a release of Debian. With `everything`, all combinations of hash and group."""
    if suite not in SUITES:
        return []
    chosen = pairs(everything)
    return [
        *((f"linux-host-concat-{name_of(one)}", pair(one)) for one in chosen),
        ("linux-host-concat-ctrl-secret", functools.partial(concatenates, chosen[0], WRONG_SECRET)),
        *((f"linux-host-concat-refuses-{setup.name}", functools.partial(refused, setup)) for setup in REFUSED_HOSTS),
    ]
