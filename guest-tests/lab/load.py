"""Raw connections through a lab, and their throughput.

    with Load(lab, "mptcp", connections=4, direction="read") as load:
        time.sleep(1)
        measured = load.measure(3)
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from namespace import LabError

STREAMS = Path(__file__).resolve().parent / "streams.py"
PORT = 4420
MIB = 1 << 20


class Load:
    """`connections` connections of `transport`, which is "tcp" or "mptcp". The target sends if `direction` is "read", else the
    host.

    `links` are the indices of the links that connections use in turn, by default all. MPTCP itself chooses the links of further
    subflows.
    """

    def __init__(self, lab, transport="tcp", connections=1, direction="read", links=None):
        self._lab = lab
        links = links or range(len(lab.links))
        addresses = [lab.link(links[number % len(links)]).target_address for number in range(connections)]
        sender = "target" if direction == "read" else "host"
        self._ends = {}
        for name, side in (("target", ("listen", PORT, connections)), ("host", ("connect", PORT, *addresses))):
            words = (transport, "send" if name == sender else "receive", *side)
            self._ends[name] = getattr(lab, name).popen(
                sys.executable, STREAMS, *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self._line(self._ends[name])
        self._receiver = self._ends["host" if direction == "read" else "target"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the connections."""
        for end in self._ends.values():
            end.kill()
            end.wait()
            end.stdin.close()
            end.stdout.close()

    def measure(self, seconds):
        """Measures the throughput for `seconds`. The help of `raw` describes the fields of the result."""
        before, wire_before, wire_time_before = self._snapshot()
        time.sleep(seconds)
        after, wire_after, wire_time_after = self._snapshot()
        elapsed = after["time"] - before["time"]
        wire_elapsed = wire_time_after - wire_time_before
        per_link = []
        for link, then, now in zip(self._lab.links, wire_before, wire_after):
            sent, received = (now.sent - then.sent) / wire_elapsed, (now.received - then.received) / wire_elapsed
            per_link.append(
                {
                    "rate_mbit": link.rate_bit_s / 1e6,
                    "sent_mib_s": round(sent / MIB, 2),
                    "received_mib_s": round(received / MIB, 2),
                    "utilisation": round(max(sent, received) * 8 / link.rate_bit_s, 4),
                }
            )
        arrived = [(now - then) / elapsed / MIB for then, now in zip(before["bytes"], after["bytes"])]
        return {
            "mib_s": round(sum(arrived), 2),
            "seconds": round(elapsed, 3),
            "links": per_link,
            "connections": [
                {**connection, "mib_s": round(rate, 2)} for connection, rate in zip(after["connections"], arrived)
            ],
        }

    def _snapshot(self):
        """Returns what the receiver has got, the counters of the links, and the time at which the counters were read."""
        self._receiver.stdin.write("\n")
        self._receiver.stdin.flush()
        got = json.loads(self._line(self._receiver))
        start = time.monotonic()
        counters = self._lab.counters()
        return got, counters, (start + time.monotonic()) / 2

    @staticmethod
    def _line(end):
        line = end.stdout.readline()
        if not line:
            raise LabError(f"{STREAMS.name} ended with code {end.wait()}")
        return line
