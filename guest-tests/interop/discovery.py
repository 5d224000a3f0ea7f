#!/usr/bin/env python3
"""Tests a disk that has only discovered paths, against Linux's nvmet. Each port lists itself, and refers to the other port.

nvmet lists its ports by their addresses in the guest. So this runs in a network namespace of its own, where loopback has these
addresses and QEMU forwards them. `run` starts this script. Exit codes: 0 passed, 1 failed.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "faults")]
from against_nvmet import OPTIONS, Bench, bench, carries, verified  # noqa: E402
from case import PATIENCE, check, run_tests, wait_for  # noqa: E402
from guest import GuestError  # noqa: E402
from initiator import HOSTNQN  # noqa: E402
from keys import CONFIGURED, DISCOVERY_NQN, key_file, key_options, key_text  # noqa: E402
from linux import LinuxGuest, own_address  # noqa: E402
from network import enter  # noqa: E402
from nvmet import PORTS, Nvmet  # noqa: E402
from rig import NQN, Rig, RigError, end_on_signals  # noqa: E402
from tls import SUITES, Tls, tls_psk  # noqa: E402

CHANGE_TIMEOUT = 15  # seconds
TLS_TIMEOUT = 30  # seconds; a handshake takes up to a second in an emulated guest
ADDRESSES = [own_address(index) for index in range(len(PORTS))]
PATHS = [f"tcp://{address}:{port}" for address, port in zip(ADDRESSES, PORTS)]


class DiscoveryRig(Rig):
    """Only the daemon, without a path on its command line."""

    def start(self):
        self.start_daemon()


class RefusedRig(DiscoveryRig):
    """Waits only until discovery has failed in clear text. Without any path the disk is never served."""

    def _is_served(self):
        errors = [one["last-error"] or "" for one in self.ctl("discovery", "list", check=False) or []]
        return any("for a discovery controller discovery-tls-key-file" in error for error in errors)


def refer(nvmet, index, on):
    """Sets whether a port refers to the other one."""
    other = 1 - index
    nvmet.guest.sh(f"""
        set -e
        directory=/sys/kernel/config/nvmet/ports/{PORTS[index]}/referrals/other
        if [ ! -d "$directory" ]; then
            mkdir "$directory"
            echo tcp >"$directory/addr_trtype"
            echo ipv4 >"$directory/addr_adrfam"
            echo {ADDRESSES[other]} >"$directory/addr_traddr"
            echo {PORTS[other]} >"$directory/addr_trsvcid"
        fi
        echo {int(on)} >"$directory/enable"
    """)


def paths_of(rig):
    return sorted((path["address"], path["state"]) for path in rig.ctl("path", "list"))


def discovery(nvmet, directory):
    both = sorted((path, "live") for path in PATHS)
    refer(nvmet, 0, True)
    refer(nvmet, 1, True)
    options = (*OPTIONS, "--keep-alive-tmo", 2, "--discovery", PATHS[0])
    with DiscoveryRig(directory, policy="round-robin", io_threads=2, options=options) as rig, Bench(rig, seconds=12) as load:
        wait_for(lambda: paths_of(rig) == both, PATIENCE, "both paths found and live")
        controllers = rig.ctl("discovery", "list")
        check([one["address"] for one in controllers] == PATHS, f"asked were {[one['address'] for one in controllers]}")
        check(all(one["state"] == "connected" for one in controllers), f"not all connected: {controllers}")
        wait_for(carries(rig, 1), PATIENCE, "I/O on the second path")
        refer(nvmet, 0, False)
        gone = wait_for(lambda: paths_of(rig) == both[:1], CHANGE_TIMEOUT, "the second path gone with its referral")
        wait_for(lambda: nvmet.connections(1) == 0, PATIENCE, "nothing connected to the second port")
        refer(nvmet, 0, True)
        back = wait_for(lambda: paths_of(rig) == both, CHANGE_TIMEOUT, "the second path back with its referral")
        report = load.report()
        kinds = [event["kind"] for event in rig.ctl("events")]
        check("discovery-changed" in kinds and "path-lost" not in kinds, f"events: {kinds}")
        complaints = nvmet.complaints()
        check(not complaints, f"the target's kernel complains: {'; '.join(complaints[:5])}")
    return f"both ports found by one, gone in {gone * 1000:.0f} ms, back in {back * 1000:.0f} ms; {verified(report)}"


def over_tls(nvmet, directory):
    """Both ports require TLS, for discovery too. Without keys, neither the log nor a path is reached."""
    tls = Tls(nvmet.guest)
    for port in PORTS:
        tls.set_port(port, tls=True)
    for subnqn in (NQN, DISCOVERY_NQN):
        tls.insert_psk(*tls_psk(CONFIGURED[1], 1, HOSTNQN, subnqn, 1))
    refer(nvmet, 0, True)
    file = key_file(directory, key_text(1))
    options = (*OPTIONS, "--discovery", PATHS[0], *key_options(file))
    with RefusedRig(directory, options=options) as rig:
        check(not rig.ctl("path", "list"), "a path was found in clear text")
    both = sorted((path, "live") for path in PATHS)
    with DiscoveryRig(directory, policy="round-robin", options=(*options, "--discovery-tls-key-file", file)) as rig:
        wait_for(lambda: paths_of(rig) == both, TLS_TIMEOUT, "both paths found and live")
        controllers = rig.ctl("discovery", "list")
        states = [one["state"] for one in controllers]
        check(states == ["connected"] * 2, f"the discovery controllers are {states}")
        suites = {one["tls-suite"] for one in (*controllers, *rig.ctl("path", "list"))}
        check(suites == {"TLS_AES_128_GCM_SHA256"}, f"discovery controllers and paths use {suites}")
        report = bench(rig, seconds=1)
    return f"both ports and a referral found over TLS, none in clear text; {verified(report)}"


def tests(suite):
    """The tests for the guest of a release of Debian."""
    return [("nvmet-discovery", discovery), *[("nvmet-discovery-tls", over_tls)] * (suite in SUITES)]


def run_apart(tests, directory):
    """Runs this script, which prints its own verdicts. Returns whether all tests passed."""
    names = [name for name, _ in tests]
    return subprocess.run([sys.executable, __file__, str(directory), *names], check=False).returncode == 0


def main():
    enter()
    end_on_signals()
    directory = Path(sys.argv[1])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in ADDRESSES:
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
        # Connections must not have the guest's own address as their source. With 127.0.0.1, QEMU shows them as from the guest's
        # host.
        route = ["local", address, "dev", "lo", "table", "local", "src", "127.0.0.1"]
        subprocess.run(["ip", "route", "replace", *route], check=True)
    try:
        forwards = [(port,) for port in PORTS]
        with LinuxGuest(forwards, own_addresses=True, console_log=directory / "discovery-console.log") as guest:
            wanted = [(name, test) for name, test in tests(os.environ.get("SUITE")) if name in sys.argv[2:]]
            return 0 if run_tests(wanted, directory, Nvmet(guest)) == len(wanted) else 1
    except (GuestError, RigError) as error:
        print(f"FAIL discovery: {error}", flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
