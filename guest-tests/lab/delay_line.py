#!/usr/bin/env python3
"""A wire with a delay, for kernels without netem. It joins a card in this network namespace and one in another namespace. Frames
that either card sends arrive at the other one after the delay.

    delay_line.py DEVICE MILLISECONDS PID       # PID: a process in the other namespace

Makes both cards (TAP devices), prints a line, and carries frames until it is killed. The cards end with it.
"""

import collections
import ctypes
import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
FRAME_BYTES = 65536
# The most frames on the wire: 5 ms of full frames at 20 Gbit/s. That is far more than this program can carry.
FRAMES_MAX = 8192


def open_card(device):
    """Makes the card in the present namespace of this process."""
    card = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(card, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
    return card


def enter_network_of(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/net") as namespace:
        if libc.setns(namespace.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace of process {pid}")


class Direction:
    """Frames on their way from one card to the other."""

    def __init__(self, source, sink, delay):
        self.source = source
        self._sink, self._delay = sink, delay
        self._under_way = collections.deque()

    def due_in(self, now):
        """Seconds until the next frame arrives. None if there is none."""
        return max(self._under_way[0][0] - now, 0) if self._under_way else None

    def take(self):
        """Takes what the card has sent."""
        try:
            while True:
                frame = os.read(self.source, FRAME_BYTES)
                if len(self._under_way) < FRAMES_MAX:
                    self._under_way.append((time.monotonic() + self._delay, frame))
        except BlockingIOError:
            pass

    def deliver(self, now):
        """Passes on the frames that are due."""
        while self._under_way and self._under_way[0][0] <= now:
            _, frame = self._under_way.popleft()
            try:
                os.write(self._sink, frame)
            except OSError:
                pass  # a card that is switched off or full loses the frame


def main():
    device, milliseconds, pid = sys.argv[1:]
    here = open_card(device)
    enter_network_of(pid)
    there = open_card(device)
    delay = float(milliseconds) / 1000
    directions = [Direction(here, there, delay), Direction(there, here, delay)]
    print("ready", flush=True)
    while True:
        now = time.monotonic()
        due = [due for direction in directions if (due := direction.due_in(now)) is not None]
        readable, _, _ = select.select([here, there], [], [], min(due, default=None))
        for direction in directions:
            if direction.source in readable:
                direction.take()
            direction.deliver(time.monotonic())


if __name__ == "__main__":
    main()
