"""An I/O queue of an NVMe/TCP host in clear text that knows no secret."""

import socket
import struct

from case import check

TIMEOUT = 20  # seconds
ICREQ, ICRESP, CAPSULE_CMD, CAPSULE_RESP, C2H_DATA = 0, 1, 4, 5, 7
FABRICS, CONNECT, READ = 0x7F, 1, 2
BLOCK = 512  # bytes
IN_CAPSULE, IN_PDUS = 0x01, 0x5A  # types of an SGL descriptor, which say where the data are


class RawHost:
    """Connects to `port` of 127.0.0.1. A target that ends the connection fails the test. Status 0 is success."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self._file = self._socket.makefile("rb")
        self._socket.sendall(struct.pack("<BBBBI120x", ICREQ, 0, 128, 0, 128))
        self._receive(ICRESP)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        self._socket.close()

    def connect(self, hostnqn, hostid, subnqn, cntlid, qid):
        """Returns the status, and whether the controller asks for authentication."""
        data = struct.pack("<16sH238x256s256s256x", hostid.bytes, cntlid, subnqn.encode(), hostnqn.encode())
        status, result, _ = self._command(FABRICS, CONNECT, IN_CAPSULE, len(data), struct.pack("<HHH", 0, qid, 31), data)
        return status, result >> 16 != 0

    def read(self, block):
        """Returns the status, and the data of a block of namespace 1."""
        status, _, data = self._command(READ, 1, IN_PDUS, BLOCK, struct.pack("<QH", block, 0))
        return status, data

    def _command(self, opcode, second, sgl_type, length, rest, data=b""):
        """`second` is the dword of the NSID, or of a fabrics command's type. Returns status, result and data."""
        sqe = struct.pack("<BBHI16xQI3xB24s", opcode, 0x40, 0, second, 0, length, sgl_type, rest)
        header = struct.pack("<BBBBI", CAPSULE_CMD, 0, 72, 72 * bool(data), 72 + len(data))
        self._socket.sendall(header + sqe + data)
        got, pdu = b"", self._receive(C2H_DATA, CAPSULE_RESP)
        while pdu[0] == C2H_DATA:
            got += pdu[pdu[3]:]
            pdu = self._receive(C2H_DATA, CAPSULE_RESP)
        result, status = struct.unpack_from("<I10xH", pdu, 8)
        return status >> 1, result, got

    def _receive(self, *kinds):
        """Returns a PDU, of one of these types."""
        header = self._exactly(8)
        check(header[0] in kinds, f"the target has sent a PDU of type {header[0]}, not {kinds}")
        return header + self._exactly(struct.unpack_from("<I", header, 4)[0] - 8)

    def _exactly(self, length):
        try:
            data = self._file.read(length)
        except OSError:  # reset, or silent
            data = b""
        check(len(data) == length, "the target has ended the connection in clear text, or is silent")
        return data
