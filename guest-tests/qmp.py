"""QEMU's monitor, as far as the tests need it."""

import json
import socket
import time

from guest import GuestError

CONNECT_TIMEOUT = 180  # seconds
ANSWER_TIMEOUT = 180  # seconds; QEMU answers nothing while it waits for a back-end


class Qmp:
    """A connection to the monitor of a QEMU that may have to start first; for one thread at a time.

    with Qmp(path) as qmp:
        qmp.call("query-status")
    """

    def __init__(self, path):
        self._events = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_TIMEOUT)
        deadline = time.monotonic() + CONNECT_TIMEOUT
        while True:
            try:
                self._socket.connect(str(path))
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    self._socket.close()
                    raise GuestError(f"QEMU's monitor: {error}") from error
                time.sleep(0.05)
        self._lines = self._socket.makefile("r")

    def __enter__(self):
        self._line()  # the greeting
        self.call("qmp_capabilities")
        return self

    def __exit__(self, *_):
        self._lines.close()
        self._socket.close()

    def call(self, command, **arguments):
        """Runs a command; returns what it returns. An error is a GuestError."""
        self.send({"execute": command, "arguments": arguments})
        try:
            while True:
                answer = self._line()
                if "error" in answer:
                    raise GuestError(f"QEMU: {command}: {answer['error']['desc']}")
                if "return" in answer:
                    return answer["return"]
                self._events.append(answer)
        except OSError as error:
            raise GuestError(f"QEMU's monitor: {command}: {error}") from error

    def send(self, request):
        """Sends a request; what comes of it is received, whatever else comes before."""
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise GuestError(f"QEMU's monitor: {error}") from error

    def receive(self):
        """The next answer or event."""
        try:
            return self._events.pop(0) if self._events else self._line()
        except OSError as error:
            raise GuestError(f"QEMU's monitor: {error}") from error

    def event(self, name):
        """The data of the next event of this name; those of other names before it are forgotten."""
        while True:
            event = self.receive()
            if event["event"] == name:
                return event["data"]

    def _line(self):
        line = self._lines.readline()
        if not line:
            raise GuestError("QEMU's monitor: QEMU has ended")
        return json.loads(line)
