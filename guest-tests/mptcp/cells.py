"""Cells of the tables of throughput: one method, one workload, once."""

import tempfile
import time

from lab import LabError
from load import Load
from stack import Stack, WORKLOADS

GIB = 1 << 30
# Latency with nothing else under way needs less time.
RANDREAD_SECONDS = 1


def samples(lab, row, method, seconds, warm_up):
    """Each workload with its sample."""
    if method.policy:
        yield from _through_the_daemon(lab, row, method, seconds, warm_up)
    else:
        for direction in ("read", "write"):
            yield direction, raw(lab, method, direction, seconds, warm_up)


def _through_the_daemon(lab, row, method, seconds, warm_up):
    # A daemon that has learned nothing.
    with tempfile.TemporaryDirectory(prefix="mpath-mptcp.") as directory, Stack(directory, lab, method) as stack:
        stack.check()
        # Latency without load: where links are alike and whole, as it is that of one of them.
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
        # Both with the warm-up.
        "cpu_seconds": cpu_seconds,
        "gib": report["completed"] * report["config"]["bs_bytes"] / GIB,
    }


def raw(lab, method, direction, seconds, warm_up):
    """The sample of sockets alone, which must be what `method` says."""
    links = len(lab.links)
    with Load(lab, method.transport, method.connections(links), direction) as load:
        time.sleep(warm_up)
        measured = load.measure(seconds)
    wanted = {"mptcp": method.transport == "mptcp", "subflows": method.subflows(links)}
    for connection in measured["connections"]:
        if any(connection[name] != value for name, value in wanted.items()):
            raise LabError(f"{method.name}: {connection}, not {wanted}")
    return {"mib_s": measured["mib_s"]}
