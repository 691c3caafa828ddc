# cython: boundscheck=False, wraparound=False
"""The compiled side of `lane.py`: same names, same behaviour, no copy of a datagram.

Budget of the hot path: one copy of each message, one tuple for each event.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from onehop.transport._datagrams cimport NOW, SLEEPING, deadline_after, is_past
from onehop.transport._envelope cimport usual_fields

from onehop.transport.envelope import Whole, decode
from onehop.transport.errors import Malformed
from onehop.transport.event import NO_HEADERS, Event

cdef enum:
    LENGTH_BYTES = 2
    HEARTBEAT_COUNT = 0
    END_OF_SESSION_COUNT = 0xFFFF
    MAX_UNSETTLED = 256  # that of `lane.py`
    MOST_TAKEN = 4096  # messages that were taken and are let go together

cdef char WHOLE_MARK = 0x98  # how an event begins

cdef object event_type = Event, whole_type = Whole, no_headers = NO_HEADERS
cdef object decode_message = decode, malformed = Malformed, new_tuple = tuple.__new__


cdef class Lane:
    """See `lane.py`."""

    def __cinit__(self, reader, *, is_raw, tuple topics, is_lost=None):
        if isinstance(reader, DatagramReader):
            self._reader = reader
        self._is_raw, self._topics, self._is_lost = is_raw, topics, is_lost
        self._messages, self._latencies_ns, self._runs = [], [], []
        self._stream = ""

    def __dealloc__(self):
        free(self._places)

    def __len__(self):
        return PyList_GET_SIZE(self._messages) - self._front

    @property
    def is_calm(self):
        """True while there is nothing else to do than to read: the accounts can wait a little."""
        cdef unsigned long long run = self._run_stop - self._run_first
        return (
            self.may_read and not self.is_stuck
            and PyList_GET_SIZE(self._latencies_ns) + PyList_GET_SIZE(self._runs) + run
            < MAX_UNSETTLED
        )

    def open(self, bytes session, tuple origin, source, epoch, stream=""):
        """Begins with a session whose packets come from `origin`; nothing of another one waits."""
        if len(session) != SESSION_BYTES:
            raise ValueError(f"session has {len(session)} bytes, expected {SESSION_BYTES}")
        memcpy(self._session, <char*>session, SESSION_BYTES)
        self._is_origin_known = self._is_origin_known and self._origin == origin
        self._origin, self._source, self._epoch, self._stream = origin, source, epoch, stream
        self.next_number = 0  # nothing can be read until `expect` is called

    def expect(self, next_number):
        """Says which packet is the next to be read."""
        self.next_number = next_number

    def read(self, int how, timeout_s):
        """Reads what is there, waiting for it as told; returns what is not the lane's."""
        if self._reader is None:
            raise TypeError("a lane for datagrams needs a compiled reader of them")
        cdef long long deadline_ns = 0 if how == NOW else deadline_after(timeout_s)
        cdef int count = self._reader.fetch(how, deadline_ns)
        while count == 0 and how != NOW and not is_past(deadline_ns):
            PyErr_CheckSignals()
            count = self._reader.fetch(how, deadline_ns)
        self._drop_taken()
        return self._sort(count)

    cdef int _drop_taken(self) except -1:
        if self._front == PyList_GET_SIZE(self._messages):
            self._messages.clear()
            self._front = 0
        elif self._front > MOST_TAKEN:  # others wait behind them: not often
            del self._messages[: self._front]
            memmove(self._places, self._places + self._front,
                    PyList_GET_SIZE(self._messages) * sizeof(Place))
            self._front = 0
        return 0

    cdef list _sort(self, int count):
        cdef list rest = []
        cdef bint is_next = True
        cdef long long at_ns
        cdef int index
        self._reader._is_busy = True  # the buffers are in use until all is copied
        try:
            for index in range(count):
                header = &self._reader._headers[index]
                at_ns = self._reader.stamp(header)
                if at_ns < 0 or (self._is_lost is not None and self._is_lost()):
                    continue
                is_next = is_next and self._is_ours(&header.msg_hdr) and self._append(
                    <unsigned char*>header.msg_hdr.msg_iov.iov_base, header.msg_len, at_ns
                )
                if not is_next:
                    rest.append(self._reader.received(header, at_ns))
        finally:
            self._reader._is_busy = False
        return rest

    cdef bint _is_ours(self, msghdr* header) except -1:
        cdef unsigned int length = min(header.msg_namelen, <unsigned int>SOCKADDR_BYTES)
        if self._is_origin_known:
            if length != self._sockaddr_bytes:
                return False
            return not memcmp(header.msg_name, self._sockaddr, length)
        if self._reader.address(header) != self._origin:
            return False
        memcpy(self._sockaddr, header.msg_name, length)
        self._sockaddr_bytes, self._is_origin_known = length, True
        return True

    cdef bint _append(
        self, const unsigned char* data, Py_ssize_t end, long long at_ns
    ) except -1:
        """Takes a packet if it is the next one and whole."""
        cdef Py_ssize_t length, at = HEADER_BYTES
        if end < HEADER_BYTES or memcmp(data, self._session, SESSION_BYTES):
            return False
        if big_endian(data + SESSION_BYTES, 8) != self.next_number:
            return False
        cdef unsigned int index, count = <unsigned int>big_endian(data + SESSION_BYTES + 8, 2)
        if count == HEARTBEAT_COUNT or count == END_OF_SESSION_COUNT:
            return False
        if self.next_number == 0 or self.next_number + count < count:  # none, or beyond the last
            return False
        for index in range(count):  # all of it before any of it
            if end - at < LENGTH_BYTES:
                return False
            at += LENGTH_BYTES + <Py_ssize_t>big_endian(data + at, 2)
        if at != end:
            return False
        self._make_room(count)
        at = HEADER_BYTES
        for index in range(count):
            length = <Py_ssize_t>big_endian(data + at, 2)
            at += LENGTH_BYTES
            self._add(PyBytes_FromStringAndSize(<char*>data + at, length), at_ns, length,
                      self.next_number + index)
            at += length
        self.next_number += count
        return True

    cdef int _add(self, message, long long at_ns, Py_ssize_t size,
                  unsigned long long number) except -1:
        place = &self._places[PyList_GET_SIZE(self._messages)]
        place.number, place.at_ns = number, at_ns
        self._messages.append(message)
        self.size_bytes += size
        return 0

    cdef int _make_room(self, Py_ssize_t count) except -1:
        cdef Py_ssize_t needed = PyList_GET_SIZE(self._messages) + count
        if needed <= self._room:
            return 0
        needed = max(needed, 2 * self._room)
        places = <Place*>realloc(self._places, needed * sizeof(Place))
        if places == NULL:
            raise MemoryError
        self._places, self._room = places, needed
        return 0

    def push(self, first, messages, long long at_ns):
        """Takes messages in, numbered from `first` on; one that is not bytes is for `pop`."""
        cdef unsigned long long number = first
        self._drop_taken()
        self._make_room(len(messages))
        for message in messages:
            self._add(message, at_ns, size_of(message), number)
            number += 1

    cpdef take(self):
        """The next event."""
        cdef unsigned long long number
        while self._front < PyList_GET_SIZE(self._messages) and not self.is_stuck:
            place = &self._places[self._front]
            message = <object>PyList_GET_ITEM(self._messages, self._front)
            number, at_ns = place.number, place.at_ns
            if type(message) is not bytes:
                self.is_stuck = True
                return None
            if self._is_raw:
                self._pass(number, PyBytes_GET_SIZE(message))
                return new_tuple(event_type, (
                    "", message, None, self._source, self._epoch, self._stream, number,
                    0, 0, at_ns, no_headers,
                ))
            fields = usual_fields(<bytes>message)
            if fields is not None:
                _, topic, value, key, source, occurred_at_ns, sent_at_ns, _ = fields
                headers = no_headers
            else:
                try:
                    whole = decode_message(message)
                except malformed:
                    whole = None
                if type(whole) is not whole_type:
                    self.is_stuck = True
                    return None
                topic, value, key, source, occurred_at_ns, sent_at_ns, headers = <tuple>whole
            if self._topics and not topic.startswith(self._topics):
                self._filter(number, PyBytes_GET_SIZE(message))
                continue
            self._pass(number, PyBytes_GET_SIZE(message))
            self._latencies_ns.append(<object>now_ns() - sent_at_ns)
            return new_tuple(event_type, (
                topic, value, key, source, self._epoch, self._stream, number,
                occurred_at_ns, sent_at_ns, at_ns, headers,
            ))
        return None

    def take_many(self, Py_ssize_t limit):
        """At most `limit` events, as many as `take` would give."""
        cdef list events = []
        while PyList_GET_SIZE(events) < limit:
            event = self.take()
            if event is None:
                break
            events.append(event)
        return events

    cdef int _pass(self, unsigned long long number, Py_ssize_t size) except -1:
        self._front += 1
        self.size_bytes -= size
        if number != self._run_stop:
            self._end_run()
            self._run_first = number
        self._run_stop = number + 1
        return 0

    cdef int _filter(self, unsigned long long number, Py_ssize_t size) except -1:
        self._front += 1
        self.size_bytes -= size
        self._end_run()
        self._runs.append((number, number + 1, True))
        return 0

    cdef int _end_run(self) except -1:
        if self._run_first < self._run_stop:
            self._runs.append((self._run_first, self._run_stop, False))
        self._run_first = self._run_stop
        return 0

    def pop(self):
        """What is next, as it is; the caller settles it."""
        cdef Py_ssize_t front = self._front
        if front == PyList_GET_SIZE(self._messages):
            return None
        message = <object>PyList_GET_ITEM(self._messages, front)
        self._front = front + 1
        self.size_bytes -= size_of(message)
        self.is_stuck = False
        return self._places[front].number, message, self._places[front].at_ns

    def drop(self, Py_ssize_t most):
        """Lets go of `most` messages at the most, numbered without a hole, that are no pieces of
        events; returns the first number, and how many."""
        cdef unsigned long long first = 0, stop = 0
        cdef Py_ssize_t size
        while most > 0 and self._front < PyList_GET_SIZE(self._messages):
            message = <object>PyList_GET_ITEM(self._messages, self._front)
            if type(message) is not bytes or (stop and self._places[self._front].number != stop):
                break
            size = PyBytes_GET_SIZE(message)
            if not self._is_raw and (size == 0 or PyBytes_AS_STRING(message)[0] != WHOLE_MARK):
                break
            self.size_bytes -= size
            stop = self._places[self._front].number + 1
            first = first or stop - 1
            self._front += 1
            most -= 1
        self.is_stuck = False
        return first, stop - first

    def settle(self):
        """What became of the numbers since the last time, and the latencies in nanoseconds."""
        self._end_run()
        runs, self._runs = self._runs, []
        latencies_ns, self._latencies_ns = self._latencies_ns, []
        return runs, latencies_ns


cdef class MessageLane(Lane):
    """The same over a reader in Python, which has the packets as bytes."""
    cdef object _receive, _receive_wait, _spin

    def __init__(self, reader, *, is_raw, topics, is_lost=None):
        self._receive, self._receive_wait = reader.receive, reader.receive_wait
        self._spin = reader.spin

    def read(self, int how, timeout_s):
        """Reads what is there, waiting for it as told; returns what is not the lane's."""
        cdef list received
        cdef Py_ssize_t index
        cdef bytes data
        if how == NOW:
            received = self._receive()
        else:
            received = (self._receive_wait if how == SLEEPING else self._spin)(timeout_s)
        self._drop_taken()
        if self._is_lost is not None:
            received = [datagram for datagram in received if not self._is_lost()]
        for index in range(PyList_GET_SIZE(received)):
            data, origin, at_ns = received[index]
            if origin != self._origin or not self._append(
                <unsigned char*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), at_ns
            ):
                return received[index:]
        return []


cdef Py_ssize_t size_of(message):
    return PyBytes_GET_SIZE(message) if type(message) is bytes else 0

cdef unsigned long long big_endian(const unsigned char* at, int size) noexcept nogil:
    cdef unsigned long long value = 0
    cdef int index
    for index in range(size):
        value = value << 8 | at[index]
    return value

cdef long long now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <long long>now.tv_sec * 1_000_000_000 + now.tv_nsec
