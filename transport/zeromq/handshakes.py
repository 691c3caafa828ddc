"""Peers that were not let in before they could say who they are: another mechanism, another key.

ZeroMQ tells of them on a monitor socket, with the endpoint they came to and not their own address;
those that got as far as showing a key are named by the doorkeeper.
"""

from collections import Counter

import zmq
from zmq.utils.monitor import recv_monitor_message

from .sockets import Socket

FAILURES = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
"""A failure of authentication is not among them: the doorkeeper has counted it."""
REASONS = {
    int(zmq.Event.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH): "another mechanism",
    int(zmq.Event.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC): "another server key",
}
MOST_AT_ONCE = 256


class Handshakes:
    """Counts what failed at some sockets."""

    def __init__(self) -> None:
        self.failed: Counter[str] = Counter()
        self._monitors: list[Socket] = []

    def watch(self, sock: Socket) -> None:
        """Counts the failures at a socket from now on."""
        monitor = sock.get_monitor_socket(FAILURES)
        monitor.setsockopt(zmq.LINGER, 0)
        self._monitors.append(monitor)

    def look(self) -> None:
        """Takes what has been told; in the thread that uses the sockets."""
        for monitor in self._monitors:
            for _ in range(MOST_AT_ONCE):
                try:
                    told = recv_monitor_message(monitor, zmq.DONTWAIT)
                except zmq.Again:
                    break
                reason = REASONS.get(int(told["value"]), "no handshake")
                self.failed[f"{reason} at {told['endpoint'].decode(errors='replace')}"] += 1

    def close(self) -> None:
        """To be called before the sockets are closed."""
        for monitor in self._monitors:
            monitor.close()
        self._monitors.clear()
