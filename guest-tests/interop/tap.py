"""A listener that forwards to a port of 127.0.0.1, and records the digests that both sides negotiate on each connection."""

import socket
import threading

HEADER = 128  # bytes of ICReq and ICResp
DGST = 11  # offset of the digests' byte, in ICReq and in ICResp


class Tap:
    """Listens on `port`. `digests` has a pair (asked, granted) for each connection so far: bit 0 header, bit 1 data."""

    def __init__(self, to):
        self._to = to
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets = []
        self.port = self._server.getsockname()[1]
        self.digests = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in (self._server, *self._sockets):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended by itself
            one.close()

    def _accept(self):
        while True:
            try:
                host, _ = self._server.accept()
                target = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return  # closed
            self._sockets += [host, target]
            threading.Thread(target=self._begin, args=(host, target), daemon=True).start()

    def _begin(self, host, target):
        try:
            asked = host.recv(HEADER, socket.MSG_WAITALL)
            target.sendall(asked)
            granted = target.recv(HEADER, socket.MSG_WAITALL)
            host.sendall(granted)
            self.digests.append((asked[DGST], granted[DGST]))
        except (OSError, IndexError):
            return  # one of them left at once
        for source, sink in ((host, target), (target, host)):
            threading.Thread(target=forward, args=(source, sink), daemon=True).start()


def forward(source, sink):
    """Copies until one of the two ends, then ends the other."""
    try:
        while data := source.recv(1 << 18):
            sink.sendall(data)
    except OSError:
        pass  # the other side learns it below
    for one in (source, sink):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended by itself
