"""A link that is lost under verification, and comes back. Counts the completed bytes step by step."""

import tempfile
import time

from stack import Stack, VERIFY

STEP = 0.1  # seconds
WARM_UP = 1
BEFORE = 2
LOST = 3
AFTER = 8


def sample(lab, method, kind):
    """Does one run, in which the first link is lost by `kind`: "down" or "silence". Times are in seconds from the first count."""
    link = lab.link(0)
    lose, give_back = {"down": (link.down, link.up), "silence": (link.silence, link.restore)}[kind]
    with tempfile.TemporaryDirectory(prefix="mpath-mptcp.") as directory, Stack(directory, lab, method) as stack:
        stack.check()
        # The front-end runs longer than all steps, so that it is not idle at the end.
        length = BEFORE + LOST + AFTER + 1
        front_end = stack.start_front_end(*VERIFY, seconds=length, warm_up=WARM_UP)
        time.sleep(WARM_UP)
        steps = Steps(stack)
        steps.count_for(BEFORE)
        lost_at = steps.do(lose)
        steps.count_for(LOST)
        restored_at = steps.do(give_back)
        steps.count_for(AFTER)
        report = stack.report(front_end)
        # All paths and subflows must be back.
        stack.check()
    failures = report["failures"]
    return {
        "lists": steps.counts(),
        "lost_at_s": lost_at,
        "restored_at_s": restored_at,
        "errors": report["total"]["errors"] + sum(map(len, failures.values())),
        "miscompares": report["verify"]["miscompares"],
        "read_back": int(report["verify"]["read_back"]),
        "ok": int(report["ok"]),
    }


class Steps:
    """Counts the completed bytes, once in each step."""

    def __init__(self, stack):
        self._stack = stack
        self._start = time.monotonic()
        self._times, self._bytes = [], []

    def count_for(self, seconds):
        """Counts for this number of seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._times.append(time.monotonic() - self._start)
            self._bytes.append(self._stack.bytes())
            time.sleep(min(left, STEP))

    def do(self, action):
        """Runs `action`. Returns the time when it was done."""
        action()
        return time.monotonic() - self._start

    def counts(self):
        """The times of all counts, and the bytes completed by each."""
        return {"times_s": self._times, "bytes": self._bytes}
