"""Linux's initiator with DH-HMAC-CHAP against mpath-target: hashes, groups, directions and secrets, lost paths, authentication on
live queues, TLS in addition, and hosts that must be refused."""

import contextlib
import functools
from collections import Counter, namedtuple

from case import check, wait_for
from chap import (
    CTRL_SECRET, HOST_SECRET, KINDS, WRONG_SECRET, Offer, Proofs, keys_in, name_of, pairs, secret, secret_options,
)  # fmt: skip
from initiator import HOST, HOSTID, HOSTNQN, Target, World
from keys import CONFIGURED, key_file, key_text
from rig import NQN
from tls import tls_psk

QUEUES = (0, 1, 2)  # of each controller, as `World.connect` asks for them
LOAD = "[load]\nbs=4k\nsize=4m\nrate_iops=200\nverify_backlog=64\n"
LOOP = """
rm -f stop runs exit out.json
(
    while
        fio --output-format=json --output=out.json job.fio >/dev/null 2>&1
        code=$?
        echo >>runs
        [ $code = 0 ] && [ ! -e stop ]
    do :; done
    echo $code >exit
) >/dev/null 2>&1 &
"""
IO_TIMEOUT = 20  # seconds
KEEP_ALIVE = 40  # seconds; the authentication of an emulated guest can take longer than the usual 5 s
LIVE_TIMEOUT = 60  # seconds; an emulated guest takes seconds for each queue with a large group
ROUNDS = 3
REFUSED = "authentication failed: "  # as mpath-target says it


class Linux(World):
    """The guest as a host of `target`, with a load that runs until it is ended."""

    def connect_with(self, host_secret, ctrl_secret=None, *options, ports=None):
        secrets = [f"dhchap_secret={host_secret}"] + [f"dhchap_ctrl_secret={ctrl_secret}"] * bool(ctrl_secret)
        self.connect(*secrets, f"keep_alive_tmo={KEEP_ALIVE}", *options, ports=ports, timeout=LIVE_TIMEOUT)

    def start_load(self):
        """Starts fio in the background, again and again."""
        self.write_job(LOAD)
        self.sh(LOOP)

    def end_load(self):
        """Ends the load. Returns how much the last run has verified, and the number of runs, in words."""
        self.sh("echo >stop")
        said = self.end_fio()
        return f"{said} in the last of {self.sh('wc -l <runs').strip()} runs"

    def state(self, index):
        """The state of a controller, or "" if it is gone."""
        return self.sh(f"cat /sys/class/nvme/nvme{index}/state 2>/dev/null", check=False).strip()

    def lose_second_path(self):
        """Closes the second port of the target for a while. Returns how long nvme1 took to come back, in seconds."""
        self.target.set(2, "listen=off", "reset=all")
        try:
            wait_for(lambda: self.state(1) == "connecting", IO_TIMEOUT, "nvme1 connecting")
            wait_for(self.carries(0), IO_TIMEOUT, "I/O on path 0")
        finally:
            self.target.set(2, "listen=on")
        back = wait_for(lambda: self.state(1) == "live", LIVE_TIMEOUT, "nvme1 live again")
        wait_for(self.carries(1), IO_TIMEOUT, "I/O on path 1 again")
        return back

    def authenticate(self, index, text):
        """Has a controller authenticate on its live queues with a secret."""
        self.sh(f"printf %s '{text}' >/sys/class/nvme/nvme{index}/dhchap_secret")


@contextlib.contextmanager
def host(world, directory, *options):
    """The guest as a host, and a target with `options`. Both paths must carry I/O, if any was sent."""
    with Target(directory, *options) as target:
        world.said()
        try:
            yield Linux(world.tls.guest, target)
        finally:
            # Only a test that fails leaves any.
            world.sh("for one in /sys/class/nvme/nvme*; do echo 1 >$one/delete_controller; done", check=False, timeout=60)
    check(not keys_in(target.log(), HOST_SECRET, CTRL_SECRET), "the target's log has bytes of a secret")


def expect_proofs(proofs, both, *controllers):
    """Fails unless Linux says that each queue of these controllers was authenticated, in the right directions."""
    seen = Counter(proofs.of_host())
    for name in controllers:
        for side in ("host", "ctrl")[: 1 + both]:
            missing = [qid for qid in QUEUES if not seen[name, qid, side]]
            check(not missing, f"no proof of the {side} on queues {missing} of {name}: {proofs.said}")
    check(both or not any(side == "ctrl" for _, _, side in seen), "a controller proved itself unasked")
    check("authentication failed" not in proofs.said, f"Linux says: {proofs.said}")


def pair(one):
    def test(world, directory):
        world.tls.prepare_group(one.group)
        # The target has a controller secret in any case. Only a host that asks gets its proof.
        options = (*secret_options(directory, one.host_secret, one.ctrl_secret), "--dhchap-hash", one.hash_name)
        with host(world, directory, *options, "--dhchap-group", one.group) as linux:
            proofs = Proofs(world)
            linux.connect_with(one.host_secret, one.ctrl_secret if one.both else None)
            expect_proofs(proofs, one.both, "nvme0", "nvme1")
            for index in (0, 1):
                expected = f"nvme{index}: qid 0: authenticated with hash hmac({one.hash_name}) dhgroup {one.group}"
                check(expected in proofs.said, f"Linux does not say {expected!r}: {proofs.said}")
            linux.start_load()
            for index in (0, 1):
                wait_for(linux.carries(index), IO_TIMEOUT, f"I/O on path {index}")
            proofs.forget()
            linux.target.set(1, "reset=all")
            wait_for(lambda: linux.state(0) != "live", IO_TIMEOUT, "nvme0 lost")
            cut = wait_for(lambda: linux.state(0) == "live", LIVE_TIMEOUT, "nvme0 live again")
            wait_for(linux.carries(0), IO_TIMEOUT, "I/O on path 0 again")
            expect_proofs(proofs, one.both, "nvme0")
            back = linux.lose_second_path()
            expect_proofs(proofs, one.both, "nvme1")
            said = linux.end_load()
            linux.disconnect()
            check(not linux.target.log(), f"the target complains: {linux.target.log()}")
        return f"connections cut: live after {cut:.1f} s; port closed: live {back:.1f} s after it was open; {said}"

    return test


def secrets(world, directory):
    """Each kind of secret, as that of the host and as that of the controller."""
    for kind in range(len(KINDS)):
        host_secret, ctrl_secret = secret(kind, 1), secret(kind + 5, 2)
        own = directory / str(kind)
        own.mkdir()
        with host(world, own, *secret_options(own, host_secret, ctrl_secret), "--dhchap-group", "null") as linux:
            proofs = Proofs(world)
            linux.connect_with(host_secret, ctrl_secret)
            expect_proofs(proofs, True, "nvme0", "nvme1")
            world.transfer()
            linux.disconnect()
            check(not linux.target.log(), f"the target complains about {KINDS[kind]}: {linux.target.log()}")
    return f"{len(KINDS)} kinds: keys of 32, 48 and 64 bytes, each as it is and transformed with each hash"


def again(world, directory):
    """Linux authenticates on live queues when it gets a secret. The load must not notice. A wrong secret ends the path."""
    world.tls.prepare_group("ffdhe2048")
    options = secret_options(directory, HOST_SECRET, CTRL_SECRET)
    with host(world, directory, *options, "--dhchap-group", "ffdhe2048") as linux:
        proofs = Proofs(world)
        linux.connect_with(HOST_SECRET, CTRL_SECRET)
        linux.start_load()
        for index in (0, 1):
            wait_for(linux.carries(index), IO_TIMEOUT, f"I/O on path {index}")
        expect_proofs(proofs, True, "nvme0", "nvme1")
        for _ in range(ROUNDS):
            for index in (0, 1):
                proofs.forget()
                linux.authenticate(index, HOST_SECRET)
                wait_for(lambda: len(set(proofs.of_host())) == 2 * len(QUEUES), IO_TIMEOUT, f"all queues of nvme{index} again")
                expect_proofs(proofs, True, f"nvme{index}")
                check("reconnect" not in proofs.said, f"a path was lost: {proofs.said}")
                wait_for(linux.carries(index), IO_TIMEOUT, f"I/O on path {index} afterwards")
        check(linux.states() == ["live"] * 2 and not linux.target.log(), f"the target complains: {linux.target.log()}")
        linux.authenticate(1, WRONG_SECRET)
        wait_for(lambda: linux.state(1) != "live", IO_TIMEOUT, "nvme1 refused with a wrong secret")
        wait_for(linux.carries(0), IO_TIMEOUT, "I/O on path 0")
        said = linux.end_load()
        check(linux.state(0) == "live", f"nvme0 is {linux.state(0)}")
        log = linux.target.log()
        check(REFUSED + "the host could not prove itself" in log, f"the target says {log!r}")
        # Linux may give such a controller up.
        world.sh("for one in /sys/class/nvme/nvme*; do echo 1 >$one/delete_controller; done", timeout=60)
    return f"authenticated {2 * ROUNDS} times more, each on {len(QUEUES)} live queues; a wrong secret ended its path only; {said}"


def with_tls(world, directory):
    """TLS and authentication in both directions on every connection."""
    tls = world.tls
    tls.clear_keys()
    tls.insert_psk(*tls_psk(CONFIGURED[1], 1, HOSTNQN, NQN, 1))
    options = ("--tls-key-file", key_file(directory, key_text(1)), *secret_options(directory, HOST_SECRET, CTRL_SECRET))
    with host(world, directory, *options, "--dhchap-hash", "sha384", "--dhchap-group", "null") as linux:
        proofs = Proofs(world)
        linux.connect_with(HOST_SECRET, CTRL_SECRET, "tls")
        expect_proofs(proofs, True, "nvme0", "nvme1")
        check(len(world.keys_of_tls()) == 1, f"connected with the keys {world.keys_of_tls()}")
        linux.start_load()
        for index in (0, 1):
            wait_for(linux.carries(index), IO_TIMEOUT, f"I/O on path {index}")
        proofs.forget()
        linux.target.set("all", "reset=all")
        wait_for(lambda: linux.states() != ["live"] * 2, IO_TIMEOUT, "the kernel notices the resets")
        back = wait_for(lambda: linux.states() == ["live"] * 2, LIVE_TIMEOUT, "both controllers live again")
        expect_proofs(proofs, True, "nvme0", "nvme1")
        said = linux.end_load()
        linux.disconnect()
        world.said()
    return f"TLS, both sides authenticated; all connections reset: live again after {back:.1f} s; {said}"


# A host that must be refused. `target` has the secrets of the target, and `host` those of the host. `kernel` is what Linux says,
# and `log` what mpath-target prints. `offer` has the identifiers of the only hash and group that reach the target.
Refused = namedtuple("Refused", "name kernel log target host options offer", defaults=(
    (HOST_SECRET, CTRL_SECRET), (HOST_SECRET, None), (), None,
))  # fmt: skip

FAILED = "authentication failed"
REFUSED_HOSTS = (
    Refused("wrong-host-secret", FAILED, "the host could not prove itself: its secret is not the one", host=(WRONG_SECRET, None)),
    Refused("wrong-ctrl-secret", "controller authentication failed", "the host refused the proof of this target",
        host=(HOST_SECRET, WRONG_SECRET)),
    # Linux notices before it sends anything.
    Refused("no-secret", "qid 0: no key", "", host=(None, None)),
    Refused("target-without-ctrl-secret", FAILED, "the host asks for a proof of the controller, but this target has no",
        (HOST_SECRET, None), (HOST_SECRET, CTRL_SECRET)),
    Refused("secrets-exchanged", FAILED, "the host could not prove itself", host=(CTRL_SECRET, HOST_SECRET)),
    # Linux offers everything, so a relay takes the rest away.
    Refused("no-common-hash", FAILED, "the host offers the hashes SHA-256 and this target allows SHA-512; allow a common hash",
        options=("--dhchap-hash", "sha512"), offer=(1, 0)),
    Refused("no-common-group", FAILED, "the host offers the Diffie-Hellman groups null and this target allows ffdhe2048",
        options=("--dhchap-group", "ffdhe2048"), offer=(1, 0)),
)  # fmt: skip


def refused(setup, world, directory):
    options = setup.options or ("--dhchap-group", "null")
    with host(world, directory, *secret_options(directory, *setup.target), *options) as linux:
        port = linux.target.ports[0]
        names = [f"--dhchap-{name}={text}" for name, text in zip(("secret", "ctrl-secret"), setup.host) if text]
        with contextlib.ExitStack() as stack:
            relay = stack.enter_context(Offer(port, *setup.offer)) if setup.offer else None
            worked = world.tls.connect(HOST, relay.port if relay else port, HOSTNQN, HOSTID, *names, must=False)
        check(not worked, "connected")
        check(not relay or relay.changed, "the relay has changed nothing")
        left = world.sh("ls /sys/class/nvme").split()
        check(not left, f"left after a refused connection: {left}")
        said, log = world.sh("dmesg -c"), linux.target.log()
        check(setup.kernel in said, f"Linux does not say {setup.kernel!r}: {said}")
        expected = setup.log and REFUSED + setup.log
        check(expected in log and (expected or not log), f"the target says {log!r}, not {expected!r}")
    return log.strip() or setup.kernel


def tests(_suite, everything):
    """The tests for the guest of a release of Debian. With `everything`, all combinations of hash, group and direction."""
    return [
        *((f"linux-host-dhchap-{name_of(one)}", pair(one)) for one in pairs(everything)),
        ("linux-host-dhchap-secrets", secrets),
        ("linux-host-dhchap-again", again),
        ("linux-host-dhchap-tls", with_tls),
        *((f"linux-host-dhchap-refuses-{setup.name}", functools.partial(refused, setup)) for setup in REFUSED_HOSTS),
    ]
