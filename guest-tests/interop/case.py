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


def run_tests(tests, directory, world):
    """Runs (name, test) pairs; returns how many passed.

    A test takes (world, its own directory) and returns what it measured, in words.
    """
    passed = 0
    for name, test in tests:
        own = directory / name
        own.mkdir(parents=True)
        start = time.monotonic()
        try:
            verdict, said = "PASS", test(world, own)
            passed += 1
        except (Failed, GuestError, RigError) as error:
            verdict, said = "FAIL", str(error)
        print(f"{verdict} {name}: {said} ({time.monotonic() - start:.0f} s)", flush=True)
    return passed
