"""Wrong set-ups of TLS between this daemon and mpath-target, without a guest. Each must be refused, with a reason that names what is
wrong. mpath-target knows more reasons than Linux's nvmet, and prints them."""

import functools
import re
from collections import namedtuple

from against_nvmet import OPTIONS, bench
from case import PATIENCE, check, wait_for
from keys import CONFIGURED, HOST_OPTIONS, OTHER, key_file, key_options, key_text
from nvmet_chap import changed
from nvmet_tls import MISSING_KEY, NONE_ACCEPTED, RefusedRig, refusal
from rig import Rig, RigError
from tls import dhchap_secret, interchange

KEY = key_text(1)
LISTENER = "127.0.0.1:0"
# Another key under the same identity is an unknown identity of version 1 first, then a wrong key of version 0.
DIFFERENT_KEYS = 'no key is known for the identity "NVMe1R01 .*the keys for the identity "NVMe0R01 .* differ'
IN_CLEAR = "TLS handshake failed: the peer sends clear text in place of TLS: check that this port of the peer uses TLS"

# A wrong set-up. The daemon's key file has `text`, unless that is None, and mode `mode`. `error` is what an operator of the daemon must
# read, and `log` what the target prints.
WrongSetup = namedtuple("WrongSetup", "name error text log mode target_text listener", defaults=(KEY, "^$", 0o600, KEY, LISTENER))


def expect_refusal(name, target, expected):
    """Fails unless the target of this rig refuses to start, with `expected` in its error."""
    try:
        target.start_targets()
    except RigError as error:
        check(expected in str(error), f"{name}: {error}")
    else:
        check(False, f"{name}: mpath-target starts")
    finally:
        target.stop()


WRONG_SETUPS = (
    WrongSetup("wrong-key", NONE_ACCEPTED, interchange(OTHER, 1), DIFFERENT_KEYS),
    WrongSetup("key-of-other-suite", NONE_ACCEPTED, key_text(2), 'no key is known for the identity "NVMe0R02'),
    WrongSetup("key-without-transform", NONE_ACCEPTED, interchange(CONFIGURED[1], 0), DIFFERENT_KEYS),
    WrongSetup("clear-text-target", IN_CLEAR, listener=LISTENER + ",tls=off"),
    WrongSetup("clear-text-daemon", MISSING_KEY, None, IN_CLEAR),
    WrongSetup("mode-0644", r"tls-key-file \S+: mode 0644 gives other users access; run `chmod 0600 \S+`", mode=0o644),
    WrongSetup("empty-key-file", "the file is empty", ""),
    WrongSetup("secret-of-authentication", "does not begin with `NVMeTLSkey-1:`", dhchap_secret(CONFIGURED[1], 1)),
    WrongSetup("unknown-hash", r"the hash field of the TLS key is 03; use 00", KEY.replace(":01:", ":03:")),
    WrongSetup("cut-key", "the key field of the TLS key has no colon at its end", KEY[:40]),
    WrongSetup("short-key", "has 47 characters instead of 48 or 72", KEY[:-2] + ":"),
    WrongSetup("not-base64", "character 21 of the TLS key is not a base64 character", changed(KEY, 20, "!")),
    WrongSetup("wrong-checksum", "the checksum in the TLS key is not that of the key", changed(KEY, 20, "z")),
    WrongSetup("hash-of-other-length", r"has 32 bytes, and hash 02 \(SHA-384\) requires 48", KEY.replace(":01:", ":02:")),
    WrongSetup("text-behind-key", "6 bytes follow the last colon of the TLS key", KEY + "second"),
)


def refused(setup, _, directory):
    for name in ("target", "daemon"):
        (directory / name).mkdir()
    target_file = key_file(directory / "target", setup.target_text)
    options = HOST_OPTIONS if setup.text is None else key_options(key_file(directory / "daemon", setup.text, setup.mode))
    return run(directory, target_file, options, setup)


def missing(_, directory):
    setup = WrongSetup("key-file-missing", r"cannot read tls-key-file \S+: No such file")
    return run(directory, key_file(directory, KEY), key_options(directory / "nowhere.key"), setup)


def run(directory, target_file, options, setup):
    with RefusedRig(
        directory, "mem:16MiB", listeners=[setup.listener], target_options=("--tls-key-file", target_file),
        options=(*OPTIONS, *options),
    ) as rig:  # fmt: skip
        error = refusal(rig, setup.error, setup.text)
    log = rig.log("mpath-target").read_text().strip()
    check(re.search(setup.log, log, re.DOTALL), f"mpath-target says {log!r}, not {setup.log!r}")
    return error


def mended(_, directory):
    """A daemon whose key file is wrong uses the file as soon as it is right."""
    (directory / "target").mkdir()
    target_file = key_file(directory / "target", KEY)
    file = key_file(directory, interchange(OTHER, 1))
    with RefusedRig(
        directory, "mem:16MiB", listeners=[LISTENER], target_options=("--tls-key-file", target_file),
        options=(*OPTIONS, *key_options(file)),
    ) as rig:  # fmt: skip
        refusal(rig, NONE_ACCEPTED, KEY)
        key_file(directory, KEY)
        seconds = wait_for(lambda: rig.ctl("path", "list")[0]["state"] == "live", PATIENCE, "the path live with the right key")
        report = bench(rig, seconds=1, size="8MiB")
    return f"live {seconds:.1f} s after the right key was in the file; {report['completed']} requests"


def target_without_key(_, directory):
    """mpath-target does not start with a key that it cannot use."""
    wrong = {
        "cut": (KEY[:40], "no colon at its end"),
        "wrong checksum": (changed(KEY, 20, "z"), "the checksum in the TLS key is not that of the key"),
    }
    for name, (text, expected) in wrong.items():
        expect_refusal(name, Rig(directory, "mem:16MiB", target_options=("--tls-key-file", key_file(directory, text))), expected)
    return f"does not start: {', '.join(wrong)}"


TESTS = [
    *((f"target-tls-refuses-{setup.name}", functools.partial(refused, setup)) for setup in WRONG_SETUPS),
    ("target-tls-refuses-key-file-missing", missing),
    ("target-tls-mended", mended),
    ("target-tls-wrong-key-of-target", target_without_key),
]
