"""This daemon over TLS against Linux's nvmet: keys of both identity versions and derivations, lost paths, and set-ups that must be
refused."""

import functools
import re
import time
from collections import namedtuple

from against_nvmet import OPTIONS, Bench, bench, both_carried, live, lose_paths, quiet, rig_of, verified
from case import check, wait_for
from initiator import HOSTNQN
from keys import CONFIGURED, HOST_OPTIONS, OTHER, key_file, key_options, key_text
from nvmet import PORTS
from rig import NQN, Rig
from tap import Capture
from tls import SHA384_SUITES, tls_psk

SUITE_NAMES = {1: "TLS_AES_128_GCM_SHA256", 2: "TLS_AES_256_GCM_SHA384"}  # by hash
DERIVATIONS = {False: "as in the specification", True: "as by libnvme before 1.16"}  # by `compat`
LIVE_TIMEOUT = 20  # seconds; a handshake takes up to a second in an emulated guest


def keys_of(hash_number):
    """Each identity version with each derivation."""

    def test(world, directory):
        tls = world.tls
        for port in PORTS:
            tls.set_port(port, tls=True)
        said = []
        for compat in (True, False):
            for version in (0, 1):
                key = tls_psk(CONFIGURED[hash_number], hash_number, HOSTNQN, NQN, version, compat)
                tls.clear_keys()
                if compat or not tls.compat_only:
                    tls.insert(CONFIGURED[hash_number], hash_number, HOSTNQN, version, compat)
                    check(tls.keys() == dict([key]), f"nvme has inserted {tls.keys()}, not {key}")
                else:
                    tls.insert_psk(*key)
                own = directory / f"{version}-{compat}"
                own.mkdir()
                said.append(connected(world, own, hash_number, version, compat))
        return f"{SUITE_NAMES[hash_number]}; {'; '.join(said)}"

    return test


def connected(world, directory, hash_number, version, compat):
    """Verifies on both paths. The daemon must have used a key of this version and derivation."""
    world.said()
    options = key_options(key_file(directory, key_text(hash_number)))
    with rig_of(directory, world.nvmet, *options) as rig:
        wait_for(lambda: live(rig, 0, 1), LIVE_TIMEOUT, "both paths live")
        suites = [path["tls-suite"] for path in rig.ctl("path", "list")]
        check(suites == [SUITE_NAMES[hash_number]] * 2, f"the paths use {suites}")
        report = bench(rig, seconds=1)
        both_carried(rig)
        log = rig.log("vhost-blk-mpath").read_text()
    # The second path begins with what the first one has found.
    accepted = set(re.findall("accepts the TLS key of tls-key-file with (.*) path=", log))
    check(accepted == {f"identity version {version}, derived {DERIVATIONS[compat]}"}, f"accepted: {accepted}")
    quiet(world.nvmet)
    # If two handshakes run at once, Debian 14's tlshd sometimes does not find a key that it has. The daemon then tries again.
    refusals = log.count("path down")
    said = f", {refusals} time(s) refused before" * bool(refusals)
    return f"version {version}, derived {DERIVATIONS[compat]}{said}: {verified(report)}"


def paths_lost(world, directory):
    """The connections of one path end, then the port of the other one is removed."""
    nvmet = world.nvmet
    use_right_key(world.tls)
    options = key_options(key_file(directory, key_text(1)))
    with Capture(int(nvmet.paths[0].rsplit(":", 1)[1])) as tap:
        paths = [f"tcp://127.0.0.1:{tap.port}", nvmet.paths[1]]
        with rig_of(directory, nvmet, *options, paths=paths, io_threads=2) as rig, Bench(rig, seconds=25) as load:
            wait_for(lambda: live(rig, 0, 1), LIVE_TIMEOUT, "both paths live")
            said = lose_paths(rig, nvmet, tap, LIVE_TIMEOUT)
            report = load.report()
        check(tap.is_tls(), "not all bytes of path 0 were records of TLS")
    world.said()
    return f"{said}; {verified(report)}; {tap.bytes() >> 20} MiB in records of TLS on path 0"


def use_right_key(tls):
    for port in PORTS:
        tls.set_port(port, tls=True)
    tls.clear_keys()
    tls.insert_psk(*tls_psk(CONFIGURED[1], 1, HOSTNQN, NQN, 1))


# A wrong set-up. `target` sets up the target, which has TLS and no key before. The daemon has the key of `hash_number`, or no
# key. `error` is what an operator of the daemon must read, and `log` what the target's kernel and tlshd say.
WrongSetup = namedtuple("WrongSetup", "name target error log hash_number", defaults=(1,))

NONE_ACCEPTED = r"the controller accepts none of the 6 TLS identities of tls-key-file \S+ for host \S+ and subsystem \S+: .*give both sides the same key"
MISSING_KEY = "no answer to the first message: connection .*; if this port of the controller requires TLS, set tls-key-file"


def insert_all(tls, configured, hash_number=1, hostnqn=HOSTNQN, subnqn=NQN):
    for version in (0, 1):
        tls.insert_psk(*tls_psk(configured, hash_number, hostnqn, subnqn, version))


def insert(configured, *more):
    return lambda tls: insert_all(tls, configured, *more)


def clear_text(tls):
    tls.set_port(PORTS[0], tls=False)


UNKNOWN = "failed to search 'psk' key|TLS handshake failed|Handshake .* failed"
REFUSED = "Handshake .* failed|Handshake request failed"
WRONG_SETUPS = (
    WrongSetup("no-key", lambda tls: None, NONE_ACCEPTED, UNKNOWN),
    WrongSetup("wrong-key", insert(OTHER), NONE_ACCEPTED, REFUSED),
    WrongSetup("key-of-other-host", insert(CONFIGURED[1], 1, HOSTNQN + "0"), NONE_ACCEPTED, UNKNOWN),
    WrongSetup("key-of-other-subsystem", insert(CONFIGURED[1], 1, HOSTNQN, NQN + "0"), NONE_ACCEPTED, UNKNOWN),
    WrongSetup("key-of-other-suite", insert(CONFIGURED[2], 2), NONE_ACCEPTED, UNKNOWN),
    WrongSetup("clear-text-target", clear_text, NONE_ACCEPTED + ".*this port of the controller uses TLS", "unexpected pdu type 22"),
    WrongSetup("clear-text-daemon", insert(CONFIGURED[1]), MISSING_KEY, REFUSED, None),
    WrongSetup("no-tlshd", lambda tls: tls.stop_tlshd(), NONE_ACCEPTED, "failed to start TLS"),
)
# The keys are right, but the target cannot use them.
SHA384 = WrongSetup("sha384", insert(CONFIGURED[2], 2), NONE_ACCEPTED, REFUSED, 2)


class RefusedRig(Rig):
    """Waits only until each path was tried. Without any path the disk is never served."""

    def _is_served(self):
        return all(path["last-error"] for path in self.ctl("path", "list", check=False) or [{"last-error": None}])


def refused(setup, world, directory):
    tls = world.tls
    tls.set_port(PORTS[0], tls=True)
    tls.clear_keys()
    setup.target(tls)
    world.said()
    text = key_text(setup.hash_number or 1)
    options = key_options(key_file(directory, text)) if setup.hash_number else HOST_OPTIONS
    try:
        with RefusedRig(directory, paths=world.nvmet.paths[:1], options=(*OPTIONS, *options)) as rig:
            error = refusal(rig, setup.error, text)
        said = world.said()
    finally:
        if setup.name == "no-tlshd":
            tls.start_tlshd()
    check(re.search(setup.log, said), f"the target does not say {setup.log!r}: {said}")
    return error


def refusal(rig, expected, secret, timeout=0):
    """Fails the test unless the only path has failed with the `expected` error. Returns the error without names of directories.
    With a `timeout`, in seconds, later attempts count too."""
    end = time.monotonic() + timeout
    while True:
        path = rig.ctl("path", "list")[0]
        error = path["last-error"] or ""
        if re.search(expected, error) or time.monotonic() >= end:
            break
        time.sleep(0.1)
    check(path["state"] == "connecting", f"the path is {path['state']}")
    check(re.search(expected, error), f"the path's error is {error!r}, not {expected!r}")
    check(rig.path_ios() == [0], f"a refused path carried {rig.path_ios()} requests")
    log = rig.log("vhost-blk-mpath").read_text()
    check(f"path down: {error}" in log, f"the error {error!r} is not in the log: {log}")
    check(not secret or secret.split(":")[2][:16] not in log, "the log has bytes of the secret")
    return error.replace(f"{rig.directory}/", "")


def tests(suite):
    """The tests for the guest of a release of Debian."""
    setups = WRONG_SETUPS if suite in SHA384_SUITES else (*WRONG_SETUPS, SHA384)
    return [
        ("nvmet-tls-sha256", keys_of(1)),
        *([("nvmet-tls-sha384", keys_of(2))] if suite in SHA384_SUITES else []),
        ("nvmet-tls-paths-lost", paths_lost),
        *((f"nvmet-tls-refuses-{setup.name}", functools.partial(refused, setup)) for setup in setups),
    ]
