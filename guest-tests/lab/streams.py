"""One end of some plain TCP or MPTCP connections. `load` starts it in a namespace of the lab.

  streams.py tcp|mptcp send|receive listen PORT COUNT
  streams.py tcp|mptcp send|receive connect PORT ADDRESS...    one connection for each address

It prints a line when it is ready (listening, or connected). It answers each line of stdin with a line of JSON: the bytes sent or
received so far, the time, and a description of each connection. It ends when it is killed, or when stdin ends.
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
            pass  # the other end has been ended

    def describe(self):
        """Its own address, whether MPTCP carries it, and by how many subflows."""
        described = {"address": self.connection.getsockname()[0], "mptcp": False, "subflows": 1}
        try:
            info = self.connection.getsockopt(SOL_MPTCP, MPTCP_INFO, 16)
        except OSError:
            return described  # plain TCP, or MPTCP that fell back to TCP
        # further subflows, seven other bytes, flags
        more, flags = struct.unpack_from("=B7xI", info)
        if not flags & FALLBACK:
            described |= {"mptcp": True, "subflows": 1 + more}
        return described


def listen(protocol, port):
    """Listens on every address, because subflows that join need the listener too, for as long as the connection lasts."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", port))
    listener.listen(BACKLOG)
    print("ready", flush=True)
    return listener


def connect(protocol, port, address):
    """A connection to an address."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    connection.connect((address, port))
    return connection


def main():
    transport, direction, side, port, *rest = sys.argv[1:]
    protocol = IPPROTO_MPTCP if transport == "mptcp" else socket.IPPROTO_TCP
    if side == "listen":
        listener = listen(protocol, int(port))
        connections = [listener.accept()[0] for _ in range(int(rest[0]))]
    else:
        connections = [connect(protocol, int(port), address) for address in rest]
        print("ready", flush=True)
    streams = [Stream(each, direction == "send") for each in connections]
    for stream in streams:
        stream.start()
    for _ in sys.stdin:
        moved = [stream.bytes for stream in streams]
        answer = {"time": time.monotonic(), "bytes": moved, "connections": [stream.describe() for stream in streams]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
