"""Runs named tests, and prints one line with the verdict for each."""

import time

from guest import GuestError
from rig import RigError

PATIENCE = 60  # seconds; the longest wait for what is bound to come, on a machine that may be busy


class Failed(Exception):
    """A test has failed. The text says what is wrong, as a sentence."""


def check(condition, sentence):
    """Fails the test with `sentence` unless `condition` holds."""
    if not condition:
        raise Failed(sentence)


def wait_for(condition, seconds, sentence):
    """Waits until `condition()` is true. Returns how long that took. Fails the test after the timeout."""
    start = time.monotonic()
    while not condition():
        check(time.monotonic() - start < seconds, f"not within {seconds} s: {sentence}")
        time.sleep(0.05)
    return time.monotonic() - start


def run_tests(tests, directory, world):
    """Runs (name, test) pairs. Returns how many tests passed.

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
