"""Reads fio's JSON: the rows of a table, and everything that is wrong with a run."""

import os

# If a guest's clock is faster or slower than the host's, every latency is wrong by the same factor.
CLOCK_TOLERANCE = 0.05  # of the job's time
CLOCK_SLACK = 0.5  # seconds, because the two clocks are not read at the same moment

# Messages that fio prints for good jobs too. The job files keep their writers apart (offset_increment), which fio does not check.
HARMLESS = ("fio: multiple writers may overwrite blocks",)
# The message and the exit code of fio when it was told to end before its time.
STOPPED = "fio: terminating on signal 2"
STOPPED_CODE = 128
MAX_MESSAGES = 5  # a job with wrong blocks may have thousands

HEADERS = ("job", "op", "ios", "IOPS", "MiB/s", "p50 µs", "p99 µs", "verified", "error")


def _options(result, job):
    """The effective options of a job: its own ones, and the [global] ones of the file that it does not set."""
    return {**result.json.get("global options", {}), **job.get("job options", {})}


def _compares(options):
    """Whether the job compares the data that it reads with the expected data."""
    return options.get("verify", "none") != "none" and options.get("do_verify", "1") != "0"


def rows(result):
    """A row for each job and direction, as {header: value}. Numbers are not rounded. Latencies are completion latencies."""
    table = []
    for job in result.json.get("jobs", []):
        for op in ("read", "write", "trim"):
            stats = job[op]
            # With verify_only, fio counts writes that it has not done.
            if not stats["total_ios"] or (op == "write" and "verify_only" in _options(result, job)):
                continue
            percentiles = stats["clat_ns"].get("percentile", {})
            table.append(
                {
                    "job": job["jobname"],
                    "op": op,
                    "ios": stats["total_ios"],
                    "IOPS": stats["iops"],
                    "MiB/s": stats["bw_bytes"] / 2**20,
                    "p50 µs": percentiles.get("50.000000", 0) / 1000,
                    "p99 µs": percentiles.get("99.000000", 0) / 1000,
                    "verified": stats["total_ios"] if op == "read" and _compares(_options(result, job)) else None,
                    "error": job["error"],
                }
            )
    return table


def problems(result):
    """Every reason not to trust the run, as sentences. Empty for a good run."""
    found = []
    if not result.json.get("jobs"):
        found.append("fio gave no result")
    for job in result.json.get("jobs", []):
        name, options = job["jobname"], _options(result, job)
        ios = {op: job[op]["total_ios"] for op in ("read", "write", "trim")}
        if job["error"]:
            found.append(f"{name}: {os.strerror(job['error'])} (errno {job['error']})")
        if not any(ios.values()):
            found.append(f"{name}: did no I/O")
        elif _compares(options):
            written, read = job["write"]["io_bytes"], job["read"]["io_bytes"]
            if read == 0:
                found.append(f"{name}: should verify, but verified nothing")
            elif read < written:
                found.append(f"{name}: verified only {read} of the {written} bytes written")
    harmless = (*HARMLESS, STOPPED) if result.stopped else HARMLESS
    messages = [text for text in result.messages if not text.startswith(harmless)]
    found += messages[:MAX_MESSAGES]
    if len(messages) > MAX_MESSAGES:
        found.append(f"… and {len(messages) - MAX_MESSAGES} more messages")
    if result.exit_code != (STOPPED_CODE if result.stopped else 0):
        found.append(f"fio's exit code is {result.exit_code}")
    drift = abs(result.guest_seconds - result.host_seconds)
    if drift > CLOCK_SLACK + CLOCK_TOLERANCE * result.host_seconds:
        counted = f"{result.guest_seconds:.1f} s in {result.host_seconds:.1f} s"
        found.append(f"the guest's clock counted {counted}: no latency holds")
    return found


def render(table):
    """The rows as aligned text."""

    def cell(value):
        if value is None:
            return "-"
        if isinstance(value, float):
            return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
        return str(value)

    lines = [HEADERS] + [tuple(cell(row[h]) for h in HEADERS) for row in table]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADERS))]
    lines.insert(1, tuple("-" * width for width in widths))
    left = 2  # columns of words; the others are numbers
    return "\n".join(
        "  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    )
