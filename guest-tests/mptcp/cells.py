"""Measures cells of the tables of throughput: one method with one workload, in one round."""

import tempfile
import time

from lab import LabError
from load import Load
from stack import Stack, WORKLOADS

GIB = 1 << 30
# The latency of single requests needs less time than throughput.
RANDREAD_SECONDS = 1


def samples(lab, row, method, seconds, warm_up):
    """Yields each workload with its sample."""
    if method.policy:
        yield from _through_the_daemon(lab, row, method, seconds, warm_up)
    else:
        for direction in ("read", "write"):
            yield direction, raw(lab, method, direction, seconds, warm_up)


def _through_the_daemon(lab, row, method, seconds, warm_up):
    # A new daemon, so that its policy has learned nothing.
    with tempfile.TemporaryDirectory(prefix="mpath-mptcp.") as directory, Stack(directory, lab, method) as stack:
        stack.check()
        # randread is the latency of one link, so it is measured only where all links are alike and lose nothing.
        for workload in ("read", "write", *(["randread"] if row.table == "a" else [])):
            length = RANDREAD_SECONDS if workload == "randread" else seconds
            report, cpu_seconds = stack.run(*WORKLOADS[workload], seconds=length, warm_up=warm_up)
            stack.check()
            yield workload, _sample(report, cpu_seconds, "write" if workload == "write" else "read")


def _sample(report, cpu_seconds, kind):
    total = report["total"][kind]
    return {
        "mib_s": total["mib_per_second"],
        "p50_ms": total["latency_us"]["p50"] / 1000,
        "p99_ms": total["latency_us"]["p99"] / 1000,
        # The CPU time and the bytes include the warm-up.
        "cpu_seconds": cpu_seconds,
        "gib": report["completed"] * report["config"]["bs_bytes"] / GIB,
    }


def raw(lab, method, direction, seconds, warm_up):
    """Measures plain sockets. Returns a sample. The connections must be what `method` says."""
    links = len(lab.links)
    with Load(lab, method.transport, method.connections(links), direction) as load:
        time.sleep(warm_up)
        measured = load.measure(seconds)
    wanted = {"mptcp": method.transport == "mptcp", "subflows": method.subflows(links)}
    for connection in measured["connections"]:
        if any(connection[name] != value for name, value in wanted.items()):
            raise LabError(f"{method.name}: {connection}, not {wanted}")
    return {"mib_s": measured["mib_s"]}
