"""Named tests, one line of verdict each."""

import time

from guest import GuestError
from rig import RigError


class Failed(Exception):
    """What a test found wrong, as a sentence."""


def check(condition, sentence):
    """Fails the test with `sentence` unless `condition` holds."""
    if not condition:
        raise Failed(sentence)


def wait_for(condition, seconds, sentence):
    """Waits until `condition()` is true; returns how long that took. Fails the test after so many seconds."""
    start = time.monotonic()
    while not condition():
        check(time.monotonic() - start < seconds, f"not within {seconds} s: {sentence}")
        time.sleep(0.05)
    return time.monotonic() - start


def run_tests(tests, wanted, directory, world):
    """Runs the tests whose names contain one of the words `wanted`; returns how many ran and the names of those that failed.

    A test takes (world, its own directory) and returns what it measured, in words.
    """
    ran, failed = 0, []
    for name, test in tests:
        if wanted and not any(word in name for word in wanted):
            continue
        ran += 1
        own = directory / name
        own.mkdir(parents=True)
        start = time.monotonic()
        try:
            verdict, said = "PASS", test(world, own)
        except (Failed, GuestError, RigError) as error:
            verdict, said = "FAIL", str(error)
            failed.append(name)
        print(f"{verdict} {name}: {said} ({time.monotonic() - start:.0f} s)", flush=True)
    return ran, failed
