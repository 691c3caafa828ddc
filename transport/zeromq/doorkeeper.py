"""Lets peers in by their keys: the other end of ZeroMQ's authentication (ZAP), in a thread.

    request   version, id, domain, address, identity, mechanism, public key (32 bytes)
    reply     version, id, status, text, user, metadata

ZeroMQ asks before any message of a peer is seen. Who has no CURVE key, or one that is not on the
list, is refused, counted and named.
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

import zmq
from zmq.utils import z85

from .sockets import Socket

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_VERSION = b"1.0"
STOP_POLL_MS = 50
MAX_NAMED = 256
"""Refused peers named one by one; others are counted together."""


class Doorkeeper:
    """Answers for one context."""

    def __init__(
        self,
        context: zmq.Context[Socket],
        allowed: Mapping[bytes, str] | None,
        refused: Counter[str],
    ) -> None:
        """`refused` is where peers that are not let in are counted, by key and address."""
        self.refused = refused
        self._allowed = allowed
        self._is_closed = threading.Event()
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ZAP_ENDPOINT)
        self._thread = threading.Thread(target=self._serve, name="onehop-doorkeeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops; to be called before the context is destroyed."""
        self._is_closed.set()
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while not self._is_closed.is_set():
            if self._socket.poll(STOP_POLL_MS):
                self._socket.send_multipart(self.answer(self._socket.recv_multipart()))

    def answer(self, request: Sequence[bytes]) -> list[bytes]:
        """The reply to one request."""
        if len(request) < 6 or request[0] != ZAP_VERSION:
            return [ZAP_VERSION, b"", b"500", b"no ZAP 1.0 request", b"", b""]
        _, request_id, _, address, _, mechanism, *credentials = request
        key = z85.encode(credentials[0]) if mechanism == b"CURVE" and credentials else b""
        if key and (self._allowed is None or key in self._allowed):
            user = b"" if self._allowed is None else self._allowed[key].encode()
            return [ZAP_VERSION, request_id, b"200", b"OK", user, b""]
        self._refuse(key.decode() or mechanism.decode(errors="replace"), address.decode())
        return [ZAP_VERSION, request_id, b"400", b"not on the list", b"", b""]

    def _refuse(self, who: str, address: str) -> None:
        name = f"refused {who} at {address}"
        if name not in self.refused and len(self.refused) >= MAX_NAMED:
            name = "refused others"
        self.refused[name] += 1
