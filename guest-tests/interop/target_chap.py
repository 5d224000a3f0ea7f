"""DH-HMAC-CHAP between this daemon and mpath-target, without a guest: what Linux cannot be made to do."""

import functools

from against_nvmet import OPTIONS, bench
from case import PATIENCE, check, wait_for
from chap import CTRL_SECRET, HOST_SECRET, WRONG_SECRET, Offer, secret_options
from keys import HOST_OPTIONS
from nvmet_chap import HOST_REFUSED, changed
from nvmet_tls import RefusedRig, refusal
from rig import Rig
from target_tls import expect_refusal

# The daemon allows everything, so a relay takes the rest away: (option of the target, error of the daemon, log of the target).
OFFERS = {
    "hash": (
        ("--dhchap-hash", "sha512"), "the controller allows none of the hashes",
        "the host offers the hashes SHA-256 and this target allows SHA-512",
    ),
    "group": (
        ("--dhchap-group", "ffdhe2048"), "the controller allows none of the Diffie-Hellman groups",
        "the host offers the Diffie-Hellman groups null and this target allows ffdhe2048",
    ),
}  # fmt: skip


def target_of(directory, *options):
    """A rig that only has a target."""
    return Rig(directory, "mem:16MiB", target_options=options)


def no_common(what, _, directory):
    option, expected, log = OFFERS[what]
    files = secret_options(directory, HOST_SECRET, CTRL_SECRET)
    target = target_of(directory, *files, *option)
    try:
        target.start_targets()
        with Offer(int(target.paths[0].rsplit(":", 1)[1]), 1, 0) as relay:
            options = (*OPTIONS, *HOST_OPTIONS, *files)
            with RefusedRig(directory, paths=[f"tcp://127.0.0.1:{relay.port}"], options=options) as rig:
                error = refusal(rig, expected, HOST_SECRET)
    finally:
        target.stop()
    said = target.log("mpath-target").read_text()
    check(log in said, f"mpath-target says {said!r}, not {log!r}")
    return error


def mended(_, directory):
    """A daemon with a wrong secret uses the file as soon as it is right."""
    for name in ("target", "daemon"):
        (directory / name).mkdir()
    with RefusedRig(
        directory, "mem:16MiB", listeners=["127.0.0.1:0"],
        target_options=secret_options(directory / "target", HOST_SECRET, CTRL_SECRET),
        options=(*OPTIONS, *HOST_OPTIONS, *secret_options(directory / "daemon", WRONG_SECRET, CTRL_SECRET)),
    ) as rig:  # fmt: skip
        refusal(rig, HOST_REFUSED, WRONG_SECRET)
        secret_options(directory / "daemon", HOST_SECRET, CTRL_SECRET)
        seconds = wait_for(lambda: rig.ctl("path", "list")[0]["state"] == "live", PATIENCE, "the path live with the right secret")
        report = bench(rig, seconds=1, size="8MiB")
    return f"live {seconds:.1f} s after the right secret was in the file; {report['completed']} requests"


def wrong_files(_, directory):
    """mpath-target does not start with a secret that it cannot use."""
    wrong = {
        "cut": (HOST_SECRET[:40], None, "the secret does not end with its third ':'"),
        "wrong checksum": (changed(HOST_SECRET, 20, "z"), None, "the CRC32 in the key field of the secret does not match"),
        "wrong controller secret": (HOST_SECRET, "secret", 'the secret does not start with "DHHC-1:"'),
    }
    for name, (host, ctrl, expected) in wrong.items():
        expect_refusal(name, target_of(directory, *secret_options(directory, host, ctrl)), expected)
    return f"does not start: {', '.join(wrong)}"


TESTS = [
    *((f"target-dhchap-refuses-{what}", functools.partial(no_common, what)) for what in OFFERS),
    ("target-dhchap-mended", mended),
    ("target-dhchap-wrong-secret-of-target", wrong_files),
]
