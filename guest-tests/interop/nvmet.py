"""Linux's nvmet in a guest: one subsystem with one namespace, two ports, each behind a network device of its own."""

import contextlib
import re

from rig import NQN

SIZE = 128 << 20  # bytes
BLOCK = 512  # bytes
PORTS = (4420, 4421)

# memory_backed keeps data, cache_size gives flushes and FUA a meaning, and the delay of 0.3 ms keeps requests in flight.
SETUP = f"""
set -e
mount -t tracefs trace /sys/kernel/tracing
cd /sys/kernel/config
mkdir nullb/disk
for setting in size={SIZE >> 20} blocksize={BLOCK} memory_backed=1 discard=1 cache_size=8 irqmode=2 completion_nsec=300000; do
    echo "${{setting#*=}}" >"nullb/disk/${{setting%%=*}}"
done
echo 1 >nullb/disk/power
subsystem=$PWD/nvmet/subsystems/{NQN}
mkdir "$subsystem" "$subsystem/namespaces/1"
echo 1 >"$subsystem/attr_allow_any_host"
echo /dev/disk >"$subsystem/namespaces/1/device_path"
[ -b /dev/disk ] || echo /dev/nullb0 >"$subsystem/namespaces/1/device_path"
echo 1 >"$subsystem/namespaces/1/enable"
number=2
for port in {" ".join(map(str, PORTS))}; do
    directory=$PWD/nvmet/ports/$port
    mkdir "$directory"
    echo tcp >"$directory/addr_trtype"
    echo ipv4 >"$directory/addr_adrfam"
    echo 10.0.$number.15 >"$directory/addr_traddr"
    echo $port >"$directory/addr_trsvcid"
    ln -s "$subsystem" "$directory/subsystems/{NQN}"
    number=$((number + 1))
done
"""
SLOW = f"""
set -e
cd /sys/kernel/config
mkdir nullb/slow
for setting in size=32 blocksize={BLOCK} memory_backed=1 discard=1 irqmode=2 completion_nsec={{nanoseconds}}; do
    echo "${{{{setting#*=}}}}" >"nullb/slow/${{{{setting%%=*}}}}"
done
echo 1 >nullb/slow/power
namespace=nvmet/subsystems/{NQN}/namespaces/2
mkdir "$namespace"
echo "/dev/nullb$(cat nullb/slow/index)" >"$namespace/device_path"
[ -b "$(cat "$namespace/device_path")" ] || echo /dev/slow >"$namespace/device_path"
echo 1 >"$namespace/enable"
"""
NO_SLOW = f"""
cd /sys/kernel/config
echo 0 >nvmet/subsystems/{NQN}/namespaces/2/enable
rmdir nvmet/subsystems/{NQN}/namespaces/2
echo 0 >nullb/slow/power
rmdir nullb/slow
"""
# Messages of nvmet and the kernel below it when nothing is wrong.
USUAL = re.compile(r"nvmet: ([Cc]reat(ing|ed)|adding|connecting) |nvmet_tcp: enabling port|null_blk: |nvme nvme\d+: ")
ABOUT_US = re.compile(r"nvmet|nvme|null_blk|BUG|WARNING|Oops|I/O error|blocked for more")


class Nvmet:
    """The target in `guest`, set up on construction. `paths` are the daemon's addresses of its ports, in the order of PORTS."""

    def __init__(self, guest):
        self.guest = guest
        guest.sh(SETUP)
        self.paths = [f"tcp://127.0.0.1:{guest.host_ports[port]}" for port in PORTS]

    @contextlib.contextmanager
    def slow_namespace(self, milliseconds):
        """Adds namespace 2 for the duration of the block: 32 MiB, on a disk that takes `milliseconds` for each request."""
        self.guest.sh(SLOW.format(nanoseconds=milliseconds * 1_000_000))
        try:
            yield 2
        finally:
            self.guest.sh(NO_SLOW)

    def set_ana(self, index, state):
        """Sets the ANA state of the only group on a port."""
        self.guest.sh(f"echo {state} >/sys/kernel/config/nvmet/ports/{PORTS[index]}/ana_groups/1/ana_state")

    def remove(self, index):
        """Removes the subsystem from a port. nvmet then ends its controllers there and does not listen any more."""
        self.guest.sh(f"rm /sys/kernel/config/nvmet/ports/{PORTS[index]}/subsystems/{NQN}")

    def restore(self, index):
        """Puts the subsystem on a port again."""
        config = "/sys/kernel/config/nvmet"
        self.guest.sh(f"ln -s {config}/subsystems/{NQN} {config}/ports/{PORTS[index]}/subsystems/{NQN}")

    def connections(self, index):
        """How many connections of hosts a port has."""
        port = f"{PORTS[index]:04X}"
        return int(self.guest.sh(f"awk '$4 == \"01\" && $2 ~ /:{port}$/' /proc/net/tcp | wc -l"))

    def set_netem(self, index, words):
        """Impairs the packets that the network device of a port sends, as `tc qdisc … netem WORDS` does. Without words, ends
        that."""
        self.guest.sh(
            f"/bin/tc qdisc replace dev eth{index} root netem {words}" if words else f"/bin/tc qdisc del dev eth{index} root"
        )

    def trace(self, on):
        """Begins or ends the trace of the commands that arrive. At the end, returns {command: [arguments, …]}."""
        tracing = "/sys/kernel/tracing"
        if on:
            self.guest.sh(f"cd {tracing}; echo >trace; echo 8192 >buffer_size_kb; echo 1 >events/nvmet/nvmet_req_init/enable")
            return None
        text = self.guest.sh(f"cd {tracing}; echo 0 >events/nvmet/nvmet_req_init/enable; cat trace", timeout=60)
        found = {}
        for name, arguments in re.findall(r"cmd=\((\w+) ?(.*?)\)\s*$", text, re.MULTILINE):
            found.setdefault(name, []).append(arguments)
        return found

    def complaints(self):
        """The lines that the kernel has logged since the last call and that it does not log when nothing is wrong."""
        lines = self.guest.sh("dmesg -c | cut -c 1-200").splitlines()
        return [line for line in lines if ABOUT_US.search(line) and not USUAL.search(line)]
