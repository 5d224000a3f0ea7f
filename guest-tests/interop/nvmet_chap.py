"""This daemon with DH-HMAC-CHAP against Linux's nvmet: hashes, groups, directions and secrets, lost paths, secrets that change,
TLS in addition, and set-ups that must be refused."""

import functools
import re
from collections import namedtuple

from against_nvmet import OPTIONS, Benches, bench, both_carried, carries, live, lose_paths, rig_of
from case import check, wait_for
from chap import (
    BOTH, CTRL_SECRET, HASHES, HOST_SECRET, KINDS, WRONG_SECRET, Proofs, keys_in, name_of, pairs, secret, secret_options,
)  # fmt: skip
from initiator import HOSTNQN
from keys import HOST_OPTIONS, OTHER, key_file, key_options, key_text
from nvmet import PORTS
from nvmet_tls import SUITE_NAMES, RefusedRig, refusal, use_right_key
from tap import Relay
from tls import dhchap_secret, interchange

QUEUES = (0, 1)  # of each path, with one I/O thread
# nvmet of Debian 14 asks for authentication on admin queues only.
SUITES_THAT_ASK_ON_ALL_QUEUES = ("trixie",)
LOG_TIMEOUT = 15  # seconds, in which the daemon tries several times
LIVE_TIMEOUT = 60  # seconds; an emulated guest takes seconds for each queue with a large group


def clear_text(tls):
    for port in PORTS:
        tls.set_port(port, tls=False)


def expect_proofs(suite, rig, proofs, pair):
    """Fails unless nvmet says that it has authenticated the queues of both associations, in the directions of the pair, and the
    daemon shows the same. A daemon with a controller secret begins by itself on queues on which nvmet asks for nothing."""
    expected = {"sides": "bidirectional" if pair.both else "host", "hash": HASHES[pair.hash_name], "dh-group": pair.group}
    seen = proofs.of_target()
    queues = list(QUEUES) if pair.both or suite in SUITES_THAT_ASK_ON_ALL_QUEUES else [0]
    for path in rig.ctl("path", "list"):
        check(path["authentication"] == expected, f"{path['address']} shows {path['authentication']}, not {expected}")
        for side in ("host", "ctrl")[: 1 + pair.both]:
            proven = [qid for qid in QUEUES if (path["cntlid"], qid, side) in seen]
            check(proven == queues, f"proof of the {side} on queues {proven} of controller {path['cntlid']}, not {queues}")
    check(pair.both or not any(side == "ctrl" for _, _, side in seen), "a controller proved itself unasked")


def pair(suite, one):
    def test(world, directory):
        nvmet, tls = world.nvmet, world.tls
        clear_text(tls)
        # Without a controller secret in the file, the daemon does not ask for its proof. nvmet has the secret anyway.
        tls.allow(HOSTNQN, one.host_secret, one.ctrl_secret, one.hash_name, one.group)
        proofs = Proofs(world)
        options = (*secret_options(directory, one.host_secret, one.ctrl_secret if one.both else None), *HOST_OPTIONS)
        try:
            with Relay(int(nvmet.paths[0].rsplit(":", 1)[1])) as relay:
                paths = [f"tcp://127.0.0.1:{relay.port}", nvmet.paths[1]]
                with rig_of(directory, nvmet, *options, paths=paths) as rig, Benches(rig) as load:
                    wait_for(lambda: live(rig, 0, 1), LIVE_TIMEOUT, "both paths live")
                    expect_proofs(suite, rig, proofs, one)
                    proofs.forget()
                    said = lose_paths(rig, nvmet, relay, LIVE_TIMEOUT)
                    wait_for(lambda: live(rig, 0, 1), LIVE_TIMEOUT, "both paths live again")
                    expect_proofs(suite, rig, proofs, one)
                    verified = load.end()
                    both_carried(rig)
                log = rig.log("vhost-blk-mpath").read_text()
        finally:
            tls.allow_any(HOSTNQN)
        check(not keys_in(log, one.host_secret, one.ctrl_secret), "the log has bytes of a secret")
        return f"{said}; {verified}"

    return test


def secrets(suite, world, directory):
    """Each kind of secret, as that of the host and as that of the controller."""
    clear_text(world.tls)
    proofs = Proofs(world)
    try:
        for kind in range(len(KINDS)):
            host, ctrl = secret(kind, 1), secret(kind + 5, 2)
            own = directory / str(kind)
            own.mkdir()
            world.tls.allow(HOSTNQN, host, ctrl)
            proofs.forget()
            with rig_of(own, world.nvmet, *secret_options(own, host, ctrl), *HOST_OPTIONS) as rig:
                wait_for(lambda: live(rig, 0, 1), LIVE_TIMEOUT, f"both paths live with the secret {KINDS[kind]}")
                expect_proofs(suite, rig, proofs, BOTH)
                bench(rig, seconds=1)
                both_carried(rig)
    finally:
        world.tls.allow_any(HOSTNQN)
    return f"{len(KINDS)} kinds: keys of 32, 48 and 64 bytes, each as it is and transformed with each hash"


def replaced(suite, world, directory):
    """A secret is replaced on the target, then in the file. Live paths stay, and the next connections need the new secret."""
    clear_text(world.tls)
    world.tls.allow(HOSTNQN, HOST_SECRET, CTRL_SECRET)
    proofs = Proofs(world)
    options = (*secret_options(directory, HOST_SECRET, CTRL_SECRET), *HOST_OPTIONS)
    try:
        with rig_of(directory, world.nvmet, *options) as rig, Benches(rig) as load:
            wait_for(lambda: live(rig, 0, 1), LIVE_TIMEOUT, "both paths live")
            expect_proofs(suite, rig, proofs, BOTH)
            world.tls.replace_secret(HOSTNQN, WRONG_SECRET)
            for path in (0, 1):
                wait_for(carries(rig, path), LIVE_TIMEOUT, f"I/O on path {path} with the old secret")
            check(not any(path["losses"] for path in rig.ctl("path", "list")), "a new secret on the target ended a path")
            proofs.forget()
            rig.ctl("path", "reset", 0)
            refused = "the controller refused the proof of this host"
            wait_for(lambda: refused in (rig.ctl("path", "list")[0]["last-error"] or ""), LIVE_TIMEOUT, "path 0 refused")
            secret_options(directory, WRONG_SECRET, CTRL_SECRET)
            back = wait_for(lambda: live(rig, 0), LIVE_TIMEOUT, "path 0 live with the new secret")
            rig.ctl("path", "reset", 1)
            wait_for(lambda: len(proofs.of_target()) == 4 * len(QUEUES), LIVE_TIMEOUT, "path 1 authenticated again")
            wait_for(lambda: live(rig, 0, 1), LIVE_TIMEOUT, "path 1 live again")
            expect_proofs(suite, rig, proofs, BOTH)
            for path in (0, 1):
                wait_for(carries(rig, path), LIVE_TIMEOUT, f"I/O on path {path} with the new secret")
            verified = load.end()
    finally:
        world.tls.allow_any(HOSTNQN)
    return f"live paths stayed; refused until the file had the new secret, back {back:.1f} s later; {verified}"


def with_tls(suite, world, directory):
    """TLS and authentication in both directions on every connection."""
    use_right_key(world.tls)
    world.tls.allow(HOSTNQN, HOST_SECRET, CTRL_SECRET, "sha384", "ffdhe2048")
    proofs = Proofs(world)
    options = (*key_options(key_file(directory, key_text(1))), *secret_options(directory, HOST_SECRET, CTRL_SECRET))
    try:
        with rig_of(directory, world.nvmet, *options) as rig:
            wait_for(lambda: live(rig, 0, 1), LIVE_TIMEOUT, "both paths live")
            suites = [path["tls-suite"] for path in rig.ctl("path", "list")]
            check(suites == [SUITE_NAMES[1]] * 2, f"the paths use {suites}")
            expect_proofs(suite, rig, proofs, BOTH._replace(hash_name="sha384", group="ffdhe2048"))
            report = bench(rig, seconds=2)
            both_carried(rig)
    finally:
        world.tls.allow_any(HOSTNQN)
    return f"{SUITE_NAMES[1]}, both sides authenticated; {report['completed']} requests"


def tls_in_place(world, directory):
    """Debian 14's nvmet asks a host with TLS for no authentication. So a daemon with a controller secret must refuse it."""
    use_right_key(world.tls)
    world.tls.allow(HOSTNQN, HOST_SECRET, CTRL_SECRET, "sha384", "ffdhe2048")
    proofs = Proofs(world)
    options = key_options(key_file(directory, key_text(1)))
    try:
        own = directory / "host"
        own.mkdir()
        with rig_of(own, world.nvmet, *options, *secret_options(own, HOST_SECRET)) as rig:
            wait_for(lambda: live(rig, 0, 1), LIVE_TIMEOUT, "both paths live")
            shown = [(path["tls-suite"], path["authentication"]) for path in rig.ctl("path", "list")]
            check(shown == [(SUITE_NAMES[1], None)] * 2, f"TLS and authentication: {shown}")
            report = bench(rig, seconds=2)
            both_carried(rig)
        check(not proofs.of_target(), f"nvmet has authenticated: {proofs.of_target()}")
        own = directory / "both"
        own.mkdir()
        options = (*OPTIONS, *options, *secret_options(own, HOST_SECRET, CTRL_SECRET))
        with RefusedRig(own, paths=world.nvmet.paths[:1], options=options) as rig:
            error = refusal(rig, NOT_ASKED, HOST_SECRET)
    finally:
        world.tls.allow_any(HOSTNQN)
    return (
        "SKIPPED: TLS and authentication together, because this nvmet asks a host with TLS for no proof. "
        f"Without a controller secret: TLS only, {report['completed']} requests. With one: {error}"
    )


SILENT = r"\A(?![\s\S]*nvmet)"  # nvmet has seen no host
# A wrong set-up. `allowed` has the arguments of `Tls.allow`, or is None for any host without authentication. `host` and `ctrl`
# are the texts in the daemon's files, and None is no file. `error` is what an operator must read, and `log` what nvmet says.
WrongSetup = namedtuple("WrongSetup", "name error log allowed host ctrl mode ctrl_mode", defaults=(
    SILENT, (HOSTNQN, HOST_SECRET, CTRL_SECRET), HOST_SECRET, None, 0o600, 0o600,
))  # fmt: skip

HOST_REFUSED = "authentication failed: the controller refused the proof of this host: the host secret is not the one"
NOT_ASKED = "the controller does not authenticate: it asks for no authentication, so it does not prove itself"
# nvmet's line about a new controller says whether it asks for authentication.
ASKED, UNASKED = r"controller \d+ for .* with DH-HMAC-CHAP", r"controller \d+ for (?!.*DH-HMAC-CHAP)"
UNREADABLE = r"mode 0640 gives other users access; run `chmod 0600 \S+`"
SHORT_KEY = dhchap_secret(bytes(range(30)), 1)


def changed(text, position, character):
    return text[:position] + character + text[position + 1 :]


def in_file(text):
    return rf"^dhchap-secret-file \S+: {text}"


WRONG_SETUPS = (
    WrongSetup("wrong-host-secret", HOST_REFUSED + ".*; set the same secret", "host response mismatch", host=WRONG_SECRET),
    # nvmet does not expect the host's refusal here, and ends the controller.
    WrongSetup("wrong-ctrl-secret", "the controller could not prove itself: its secret is not the one", "fatal error occurred",
        ctrl=WRONG_SECRET),
    WrongSetup("no-secret", "requires authentication .* this host has no secret for it; set `dhchap-secret-file`", ASKED,
        host=None),
    WrongSetup("target-without-ctrl-secret", HOST_REFUSED + ".*or the target has no controller secret",
        "no ctrl key|success1 status", (HOSTNQN, HOST_SECRET), ctrl=CTRL_SECRET),
    WrongSetup("target-asks-for-nothing", NOT_ASKED, UNASKED, None, ctrl=CTRL_SECRET),
    WrongSetup("target-without-secret", NOT_ASKED, UNASKED, (HOSTNQN,), ctrl=CTRL_SECRET),
    WrongSetup("host-not-allowed", "Connect Invalid Host.*the target does not allow this host NQN", "not allowed",
        (HOSTNQN + "0", HOST_SECRET, CTRL_SECRET)),
    WrongSetup("secrets-exchanged", HOST_REFUSED, "host response mismatch", host=CTRL_SECRET, ctrl=HOST_SECRET),
    WrongSetup("mode-0640", in_file(UNREADABLE), mode=0o640),
    WrongSetup("mode-0640-of-ctrl-file", r"^dhchap-ctrl-secret-file \S+: " + UNREADABLE, ctrl=CTRL_SECRET, ctrl_mode=0o640),
    WrongSetup("empty-file", in_file("the file is empty"), host=""),
    WrongSetup("key-of-tls", in_file('the secret does not start with "DHHC-1:"'), host=interchange(OTHER, 1)),
    WrongSetup("unknown-transformation", in_file("the hash field of the secret is not 00, 01, 02 or 03"),
        host=HOST_SECRET.replace(":01:", ":04:")),
    WrongSetup("cut-secret", in_file("the secret does not end with its third ':'"), host=HOST_SECRET[:40]),
    WrongSetup("text-behind-secret", in_file("the secret does not end with its third ':'"), host=HOST_SECRET + "second"),
    WrongSetup("short-key", in_file("the key field of the secret holds 34 bytes instead of 36, 52 or 68"), host=SHORT_KEY),
    WrongSetup("not-base64", in_file("the key field of the secret is not valid Base64"), host=changed(HOST_SECRET, 20, "!")),
    WrongSetup("wrong-checksum", in_file("the CRC32 in the key field of the secret does not match"),
        host=changed(HOST_SECRET, 20, "z")),
    WrongSetup("wrong-checksum-of-ctrl-secret", r"^dhchap-ctrl-secret-file \S+: the CRC32 in the key field",
        ctrl=changed(CTRL_SECRET, 20, "z")),
)  # fmt: skip


def refused(setup, world, directory):
    clear_text(world.tls)
    if setup.allowed:
        world.tls.allow(*setup.allowed)
    try:
        return tried(world, directory, setup, secret_options(directory, setup.host, setup.ctrl, setup.mode, setup.ctrl_mode))
    finally:
        if setup.allowed:
            world.tls.allow_any(setup.allowed[0])


def tried(world, directory, setup, secrets_of_daemon):
    """Has the daemon try one path. Returns the path's error."""
    said = ""

    def target_says():
        nonlocal said
        said += world.sh("dmesg -c")
        return re.search(setup.log, said)

    world.said()
    options = (*OPTIONS, *HOST_OPTIONS, *secrets_of_daemon)
    with RefusedRig(directory, paths=world.nvmet.paths[:1], options=options) as rig:
        # nvmet sometimes ends a connection before its refusal has left. A later attempt then has the reason.
        error = refusal(rig, setup.error, None, LOG_TIMEOUT)
        if setup.log != SILENT:
            wait_for(target_says, LOG_TIMEOUT, f"{setup.log!r} in the target's log")
        log = rig.log("vhost-blk-mpath").read_text()
        shown = str(rig.ctl("path", "show", 0))
    check(target_says(), f"the target has seen a host: {said}")
    check(not keys_in(log, setup.host, setup.ctrl, HOST_SECRET, CTRL_SECRET), "the log has bytes of a secret")
    check(not keys_in(shown, setup.host, setup.ctrl, HOST_SECRET, CTRL_SECRET), "`path show` has bytes of a secret")
    return error


def missing(world, directory):
    clear_text(world.tls)
    setup = WrongSetup("file-missing", r"^cannot read dhchap-secret-file \S+: No such file")
    return tried(world, directory, setup, ("--dhchap-secret-file", directory / "nowhere.key"))


def tests(suite, everything):
    """The tests for the guest of a release of Debian. With `everything`, all combinations of hash, group and direction."""
    return [
        *((f"nvmet-dhchap-{name_of(one)}", pair(suite, one)) for one in pairs(everything)),
        ("nvmet-dhchap-secrets", functools.partial(secrets, suite)),
        ("nvmet-dhchap-replaced", functools.partial(replaced, suite)),
        ("nvmet-dhchap-tls", functools.partial(with_tls, suite) if suite == "trixie" else tls_in_place),
        *((f"nvmet-dhchap-refuses-{setup.name}", functools.partial(refused, setup)) for setup in WRONG_SETUPS),
        ("nvmet-dhchap-refuses-file-missing", missing),
    ]
