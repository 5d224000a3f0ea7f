"""One end of some TCP or MPTCP connections with nothing above them, to be started in a namespace of the lab. `raw` has both.

  streams.py tcp|mptcp listen|connect send|receive ADDRESS:PORT...

One connection an address. It says when it is ready (listening, or connected), and answers each line of stdin with a line of JSON:
bytes sent or received so far, the time, and what each connection is. It ends with stdin.
"""

import json
import socket
import struct
import sys
import threading
import time

CHUNK = 1 << 20  # bytes
IPPROTO_MPTCP = 262
SOL_MPTCP, MPTCP_INFO = 284, 1
FALLBACK = 1  # in the flags of struct mptcp_info
BACKLOG = 64


class Stream(threading.Thread):
    """Moves bytes over one connection, as fast as they go, until it ends."""

    def __init__(self, connection, sends):
        super().__init__(daemon=True)
        self.connection, self.sends = connection, sends
        self.bytes = 0

    def run(self):
        buffer = memoryview(bytearray(CHUNK))
        move = self.connection.send if self.sends else self.connection.recv_into
        try:
            while moved := move(buffer):
                self.bytes += moved
        except ConnectionError:
            pass  # the other end is gone, as told

    def describe(self):
        """Its own address, whether MPTCP carries it, and by how many subflows."""
        described = {"address": self.connection.getsockname()[0], "mptcp": False, "subflows": 1}
        try:
            info = self.connection.getsockopt(SOL_MPTCP, MPTCP_INFO, 16)
        except OSError:
            return described  # TCP, or fallen back to it
        # subflows beside the first, seven more bytes, flags
        more, flags = struct.unpack_from("=B7xI", info)
        if not flags & FALLBACK:
            described |= {"mptcp": True, "subflows": 1 + more}
        return described


def connections(protocol, listens, addresses):
    """Connected sockets, one an address; says "ready" when the other end may go on."""
    if not listens:
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) for _ in addresses]
        for each, address in zip(sockets, addresses):
            each.connect(address)
        print("ready", flush=True)
        return sockets
    listeners = {}
    for address in set(addresses):
        listeners[address] = each = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(address)
        each.listen(BACKLOG)
    print("ready", flush=True)
    return [listeners[address].accept()[0] for address in addresses]


def main():
    transport, side, direction, *where = sys.argv[1:]
    addresses = [(host, int(port)) for host, port in (address.rsplit(":", 1) for address in where)]
    protocol = IPPROTO_MPTCP if transport == "mptcp" else socket.IPPROTO_TCP
    streams = [Stream(each, direction == "send") for each in connections(protocol, side == "listen", addresses)]
    for stream in streams:
        stream.start()
    for _ in sys.stdin:
        moved = [stream.bytes for stream in streams]
        answer = {"time": time.monotonic(), "bytes": moved, "connections": [stream.describe() for stream in streams]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
