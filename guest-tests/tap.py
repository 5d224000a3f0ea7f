"""Listeners that forward to a port of 127.0.0.1 and look at the bytes of both directions."""

import collections
import socket
import struct
import threading

HEADER = 128  # bytes of ICReq and ICResp
DGST = 11  # offset of the digests' byte, in ICReq and in ICResp
CHUNK = 1 << 18  # bytes


class Relay:
    """Listens on `port`. With `mptcp`, both sides of the relay use MPTCP."""

    def __init__(self, to, mptcp=False):
        self._to, self._protocol = to, socket.IPPROTO_MPTCP if mptcp else 0
        self._server = self._socket()
        self._server.bind(("127.0.0.1", 0))
        self._server.listen()
        self._sockets = []
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self._server)
        self.cut()

    def cut(self):
        """Ends all connections. New ones are accepted."""
        for one in self._sockets:
            end(one)
        self._sockets = []

    def _socket(self):
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM, self._protocol)

    def _accept(self):
        while True:
            try:
                host, _ = self._server.accept()
            except OSError:
                return  # closed
            target = self._socket()
            try:
                target.connect(("127.0.0.1", self._to))
            except OSError:
                host.close()
                target.close()
                continue
            self._sockets = [one for one in self._sockets if one.fileno() >= 0] + [host, target]
            for one in (host, target):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._begin, args=(host, target), daemon=True).start()

    def _begin(self, host, target):
        for source, sink in ((host, target), (target, host)):
            look = self._look(source is host)
            threading.Thread(target=forward, args=(source, sink, look), daemon=True).start()

    def _look(self, from_host):
        """A function that gets the bytes of one direction of a connection, before they are forwarded."""
        return lambda data: None


class Tap(Relay):
    """`digests` has a pair (asked, granted) for each connection so far: bit 0 header, bit 1 data."""

    def __init__(self, to):
        self.digests = []
        super().__init__(to)

    def _begin(self, host, target):
        try:
            asked = host.recv(HEADER, socket.MSG_WAITALL)
            target.sendall(asked)
            granted = target.recv(HEADER, socket.MSG_WAITALL)
            host.sendall(granted)
            self.digests.append((asked[DGST], granted[DGST]))
        except (OSError, IndexError):
            return  # one of them left at once
        super()._begin(host, target)


class Capture(Relay):
    """Follows the records of TLS, and searches all bytes for a `word`, if there is one.

    `found` counts the chunks of bytes with the word. `streams` has the state of each direction of each connection.
    """

    def __init__(self, to, word=None, mptcp=False):
        self._word = word
        self.found, self.streams = 0, []
        super().__init__(to, mptcp)

    def bytes(self):
        return sum(stream.bytes for stream in self.streams)

    def is_tls(self):
        """Whether all bytes so far belong to records of TLS, and at least one to a record of application data."""
        types = sum((stream.types for stream in self.streams), collections.Counter())
        return types[Records.APPLICATION_DATA] > 0 and all(stream.is_tls for stream in self.streams)

    def _look(self, from_host):
        stream, tail = Records(from_host), b""
        self.streams.append(stream)

        def look(data):
            nonlocal tail
            stream.feed(data)
            if self._word:
                self.found += self._word in tail + data
                tail = (tail + data)[1 - len(self._word) :]

        return look


class Records:
    """The records of TLS in one direction of a connection: their number, by type."""

    APPLICATION_DATA = 23
    KINDS = (20, 21, 22, APPLICATION_DATA)
    VERSIONS = (0x0301, 0x0303)
    LENGTH_MAX = (1 << 14) + 256

    def __init__(self, from_host):
        self.from_host, self.bytes, self.types, self.is_tls = from_host, 0, collections.Counter(), True
        self._header, self._left = b"", 0

    def feed(self, data):
        self.bytes += len(data)
        at = 0
        while self.is_tls and at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
                continue
            missing = 5 - len(self._header)
            self._header += data[at : at + missing]
            at += missing
            if len(self._header) == 5:
                kind, version, self._left = struct.unpack(">BHH", self._header)
                self.is_tls = kind in self.KINDS and version in self.VERSIONS and self._left <= self.LENGTH_MAX
                self.types[kind] += 1
                self._header = b""


def forward(source, sink, look):
    """Copies until one of the two ends, then ends the other."""
    try:
        while data := source.recv(CHUNK):
            look(data)
            sink.sendall(data)
    except OSError:
        pass  # the other side learns it below
    for one in (source, sink):
        end(one)


def end(one):
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended by itself
    one.close()
