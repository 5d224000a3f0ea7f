"""A guest whose Linux is an NVMe/TCP target or an initiator. Scripts make it the one or the other.

    with LinuxGuest(forwards=[(4420,), (4421,)]) as guest:
        guest.sh("dmesg | tail")
        guest.host_ports[4420]      # where the guest's port is on 127.0.0.1
"""

import socket
import time

from machine import GuestError, Machine

SCRIPT_TIMEOUT = 30  # seconds


class LinuxGuest(Machine):
    """A machine with the nvmet guest. Each entry of `forwards` is a network device of the guest, with the guest's ports that the
    host can reach through it. The guest reaches the host's loopback as 10.0.2.2 on the first device, 10.0.3.2 on the next, and
    so on. With `own_addresses`, the host reaches the ports at the guest's own addresses. It must have these on its loopback.
    """

    IMAGE = "nvmet"

    def __init__(self, forwards=((),), own_addresses=False, **options):
        # nvmet and fio share the emulated guest. With two processors, neither of them starves the other.
        super().__init__(cpus=2, memory_mib=640, **options)
        self._forwards = [tuple(ports) for ports in forwards]
        self._scripts = 0
        self._own_addresses = own_addresses
        ports = [port for ports in self._forwards for port in ports]
        self.host_ports = {port: port for port in ports} if own_addresses else dict(zip(ports, free_ports()))

    def sh(self, script, timeout=SCRIPT_TIMEOUT, check=True):
        """Runs a script. Returns its output. A script that fails is a GuestError, unless `check` is off."""
        self._scripts += 1
        name = f"script-{self._scripts}"
        self.request("sh", name, script)
        header, payload = self.expect("result", time.monotonic() + timeout, f"{name} ({script.strip()[:80]})")
        code, text = int(header["words"][1]), payload.decode(errors="replace")
        if check and code != 0:
            raise GuestError(f"exit code {code} of {script.strip()!r}: {text.strip()}")
        return text

    def devices(self):
        words = []
        for index, ports in enumerate(self._forwards):
            at = own_address(index) if self._own_addresses else "127.0.0.1"
            forwards = "".join(f",hostfwd=tcp:{at}:{self.host_ports[port]}-:{port}" for port in ports)
            words += ["-netdev", f"user,id=net{index},net=10.0.{index + 2}.0/24,ipv6=off{forwards}"]
            words += ["-device", f"virtio-net-pci,netdev=net{index},romfile="]
        return words


def own_address(index):
    """The guest's address on the network device with this number."""
    return f"10.0.{index + 2}.15"


def free_ports():
    """Yields unused ports of 127.0.0.1. They are different ones as long as the generator lives."""
    held = []
    try:
        while True:
            held.append(socket.create_server(("127.0.0.1", 0)))
            yield held[-1].getsockname()[1]
    finally:
        for server in held:
            server.close()
