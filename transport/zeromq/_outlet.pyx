# cython: boundscheck=False, wraparound=False
"""The compiled side of `outlet.py`: same names, same behaviour.

Budget of the hot path, for one event: the two tuples of its last value; for one packet: its bytes.
A ring keeps messages as they came; the length in front of each is written when it goes out.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

import time

from onehop.transport.errors import LimitError
from onehop.transport.zeromq.wire import prefix_of

cdef extern from "Python.h":
    Py_ssize_t PyUnicode_FindChar(object text, Py_UCS4 letter, Py_ssize_t start, Py_ssize_t end,
                                  int direction) except -2
    str PyUnicode_Substring(object text, Py_ssize_t start, Py_ssize_t end)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

cdef enum:
    SESSION_BYTES = 10
    HEADER_BYTES = 20
    LENGTH_BYTES = 2
    END_OF_SESSION_COUNT = 0xFFFF
    MAX_MESSAGE_COUNT = 0xFFFE
    MOST_EVICTED = 4096  # messages that were evicted and are let go of together
    FEWEST = 1024  # messages there is room for at first


cdef class Stream:
    """One stream: its ring, its session, and the packet that is being filled."""
    cdef readonly str name
    cdef readonly bytes session, prefix
    cdef readonly Py_ssize_t index
    cdef readonly unsigned long long first, next
    cdef readonly Py_ssize_t size_bytes
    cdef list _kept  # from `_front` on, the messages `first` to `next - 1`
    cdef double* _sent_at  # one for each of them
    cdef Py_ssize_t _front, _room
    cdef list _pending
    cdef Py_ssize_t _pending_bytes
    cdef bint _has_unsent, _has_moved

    def __init__(self, str name, Py_ssize_t index, bytes session):
        if len(session) != SESSION_BYTES:
            raise ValueError(f"session has {len(session)} bytes, expected {SESSION_BYTES}")
        self.name, self.index, self.session, self.prefix = name, index, session, prefix_of(name)
        self.first = self.next = 1
        self._kept, self._pending = [], []
        self._pending_bytes = HEADER_BYTES

    def __dealloc__(self):
        free(self._sent_at)

    def sent_at(self, unsigned long long number):
        """When message `number`, which must be in the ring, was first sent."""
        if not self.first <= number < self.next:
            raise KeyError(number)
        return self._sent_at[self._front + <Py_ssize_t>(number - self.first)]

    def blocks(self, unsigned long long first, Py_ssize_t count, Py_ssize_t packet_bytes):
        """Blocks from `first` on: at most `count`, and as many as fit one packet."""
        cdef Py_ssize_t room = packet_bytes - HEADER_BYTES
        cdef list found = []
        cdef unsigned long long stop, number
        cdef bytes block
        count = min(count, MAX_MESSAGE_COUNT)
        if count <= 0 or first >= self.next:
            return found
        if first < self.first:
            raise KeyError(first)
        stop = first + min(<unsigned long long>count, self.next - first)
        for number in range(first, stop):
            message = <bytes>self._kept[self._front + <Py_ssize_t>(number - self.first)]
            room -= LENGTH_BYTES + PyBytes_GET_SIZE(message)
            if room < 0 and found:
                break
            block = PyBytes_FromStringAndSize(NULL, LENGTH_BYTES + PyBytes_GET_SIZE(message))
            write_block(PyBytes_AS_STRING(block), message)
            found.append(block)
        return found

    cdef int _keep(self, bytes message, double now) except -1:
        cdef Py_ssize_t place = PyList_GET_SIZE(self._kept), room
        if place == self._room:
            room = max(2 * self._room, FEWEST)
            grown = <double*>realloc(self._sent_at, room * sizeof(double))
            if grown == NULL:
                raise MemoryError
            self._sent_at, self._room = grown, room
        self._sent_at[place] = now
        self._kept.append(message)
        self.next += 1
        self.size_bytes += LENGTH_BYTES + PyBytes_GET_SIZE(message)
        return 0

    cdef Py_ssize_t _evict(self) except -1:
        """Drops the oldest message; returns its size."""
        cdef Py_ssize_t size = (
            LENGTH_BYTES + PyBytes_GET_SIZE(<object>PyList_GET_ITEM(self._kept, self._front))
        )
        self._kept[self._front] = None
        self._front += 1
        self.first += 1
        self.size_bytes -= size
        if self._front >= MOST_EVICTED and 2 * self._front >= PyList_GET_SIZE(self._kept):
            del self._kept[: self._front]
            memmove(self._sent_at, self._sent_at + self._front,
                    PyList_GET_SIZE(self._kept) * sizeof(double))
            self._front = 0
        return size

    cdef bytes _close_packet(self):
        """The packet that was being filled."""
        cdef Py_ssize_t begin = PyBytes_GET_SIZE(self.prefix), count = PyList_GET_SIZE(self._pending)
        cdef bytes packet = PyBytes_FromStringAndSize(NULL, begin + self._pending_bytes)
        cdef char* at = PyBytes_AS_STRING(packet)
        memcpy(at, PyBytes_AS_STRING(self.prefix), begin)
        at = write_header(at + begin, self.session, self.next - count, count)
        for message in self._pending:
            at = write_block(at, <bytes>message)
        self._pending.clear()
        self._pending_bytes = HEADER_BYTES
        return packet


cdef class Remembered:
    """The last event of each topic and key; see `last_values.py`."""
    cdef readonly dict values
    cdef readonly Py_ssize_t max_values, max_bytes
    cdef public Py_ssize_t size_bytes

    def __init__(self, Py_ssize_t max_values, Py_ssize_t max_bytes):
        self.values, self.max_values, self.max_bytes = {}, max_values, max_bytes

    cpdef remember(self, topic, key, str stream, sequence, bytes data):
        """Notes an event that was published."""
        name = (topic, key)
        before = self.values.pop(name, None)
        if before is not None:
            self.size_bytes -= len(<bytes>(<tuple>before)[2])
        self.values[name] = (stream, sequence, data)
        self.size_bytes += PyBytes_GET_SIZE(data)
        if len(self.values) > self.max_values or self.size_bytes > self.max_bytes:
            self.forget()


cdef class Outlet:
    """All streams of a publisher."""
    cdef readonly Py_ssize_t max_message_bytes
    cdef readonly list streams
    cdef readonly Py_ssize_t size_bytes
    cdef Py_ssize_t _packet_bytes, _max_messages, _max_bytes
    cdef double _max_age_s
    cdef object _moved_at
    cdef Remembered _values
    cdef object _encode, _otherwise, _blockers, _groups
    cdef dict _by_name
    cdef list _unsent, _moved, _messages
    cdef unsigned short* _oldest  # a circle: whose message is the oldest, the next, …
    cdef Py_ssize_t _oldest_front, _oldest_count, _oldest_room

    def __init__(self, options, Py_ssize_t packet_bytes, Remembered values, encode, otherwise,
                 tuple company):
        self.max_message_bytes = packet_bytes - HEADER_BYTES - LENGTH_BYTES
        self._packet_bytes = packet_bytes
        self._max_messages, self._max_bytes = options.max_messages, options.max_bytes
        self._max_age_s = options.max_age_s
        self._values = values
        self._encode, self._otherwise = encode, otherwise
        self._blockers, self._groups = company
        self.streams, self._by_name = [], {}
        self._unsent, self._moved, self._messages = [], [], []

    def __dealloc__(self):
        free(self._oldest)

    @property
    def moved_at(self):
        """When the first of the streams that have moved did."""
        return self._moved_at

    @property
    def has_messages(self):
        """True when `take_full` has something."""
        return PyList_GET_SIZE(self._messages) > 0

    def find(self, str name):
        """The stream of that name, if it is open."""
        return self._by_name.get(name)

    def open(self, str name, bytes session):
        """Opens a stream."""
        if len(self.streams) > 0xFFFF:
            raise LimitError(f"{len(self.streams)} streams, which is the most")
        stream = Stream(name, len(self.streams), session)
        self._by_name[name] = stream
        self.streams.append(stream)
        return stream

    def number(self, topic, value, key, headers, occurred_at_ns, double now):
        """Encodes an event that is sent now, and publishes it."""
        if type(topic) is not str and isinstance(topic, str):
            topic = str.__str__(topic)  # of a subclass; an enumeration's own is its name
        cdef bytes data = self._encode(topic, value, key, occurred_at_ns, time.time_ns(), headers)
        cdef unsigned long long number = self.publish(topic, key, data, now)
        if number == 0 or self._blockers or self._groups:
            return self._otherwise(topic, key, data, number, now)
        return number

    cpdef unsigned long long publish(self, str topic, key, bytes data, double now) except? 0:
        """Puts an event; 0 when its stream is not open, or it is longer than a message may be."""
        cdef Py_ssize_t dot
        cdef unsigned long long number
        # quotes.AAPL
        # ^^^^^^
        dot = PyUnicode_FindChar(topic, c".", 0, PyUnicode_GET_LENGTH(topic), 1)
        found = self._by_name.get(topic if dot < 0 else PyUnicode_Substring(topic, 0, dot))
        if found is None or PyBytes_GET_SIZE(data) > self.max_message_bytes:
            return 0
        stream = <Stream>found
        number = self._put(stream, data, now)
        self._values.remember(topic, key, stream.name, number, data)
        return number

    def put(self, str name, bytes message, double now):
        """Numbers a message of a stream that is open; it leaves with the next `take_…`."""
        if len(message) > self.max_message_bytes:
            raise LimitError(
                f"message of {len(message)} bytes, a packet holds at most {self.max_message_bytes}"
            )
        return self._put(<Stream>self._by_name[name], message, now)

    cdef unsigned long long _put(self, Stream stream, bytes message, double now) except 0:
        cdef Py_ssize_t size = LENGTH_BYTES + PyBytes_GET_SIZE(message)
        cdef unsigned long long number = stream.next
        if (
            stream._pending_bytes + size > self._packet_bytes
            or PyList_GET_SIZE(stream._pending) == MAX_MESSAGE_COUNT
        ):
            self._messages.append(stream._close_packet())
        self._note_oldest(stream.index)
        stream._keep(message, now)
        self.size_bytes += size
        self._evict(now)
        stream._pending.append(message)
        stream._pending_bytes += size
        if not stream._has_unsent:
            stream._has_unsent = True
            self._unsent.append(stream)
        if not stream._has_moved:
            stream._has_moved = True
            self._moved.append(stream)
            if self._moved_at is None:
                self._moved_at = now
        return number

    cdef int _note_oldest(self, Py_ssize_t index) except -1:
        cdef Py_ssize_t room = self._oldest_room
        if self._oldest_count == room:
            grown = <unsigned short*>realloc(
                self._oldest, max(2 * room, FEWEST) * sizeof(unsigned short)
            )
            if grown == NULL:
                raise MemoryError
            # What stands in front of the oldest goes behind what was the end.
            memcpy(grown + room, grown, self._oldest_front * sizeof(unsigned short))
            self._oldest, self._oldest_room = grown, max(2 * room, FEWEST)
        self._oldest[(self._oldest_front + self._oldest_count) % self._oldest_room] = index
        self._oldest_count += 1
        return 0

    cdef int _evict(self, double now) except -1:
        """Drops what is beyond a bound, never the newest message."""
        while self._oldest_count > 1:
            stream = <Stream>self.streams[self._oldest[self._oldest_front]]
            if (
                self._oldest_count <= self._max_messages
                and self.size_bytes <= self._max_bytes
                and stream._sent_at[stream._front] >= now - self._max_age_s
            ):
                return 0
            self.size_bytes -= stream._evict()
            self._oldest_front = (self._oldest_front + 1) % self._oldest_room
            self._oldest_count -= 1
        return 0

    def add(self, bytes message):
        """Adds what is no packet of a stream."""
        self._close_packets()
        self._messages.append(message)

    def end(self):
        """Says of each stream that nothing more will come."""
        cdef bytes header
        self._close_packets()
        for each in self.streams:
            stream = <Stream>each
            header = PyBytes_FromStringAndSize(NULL, HEADER_BYTES)
            write_header(PyBytes_AS_STRING(header), stream.session, stream.next,
                         END_OF_SESSION_COUNT)
            self._messages.append(stream.prefix + header)

    def take_full(self):
        """The packets that are full, and what was before them."""
        messages, self._messages = self._messages, []
        return messages

    def take_all(self):
        """Everything that has not gone out yet."""
        self._close_packets()
        messages, self._messages = self._messages, []
        return messages

    cdef int _close_packets(self) except -1:
        for each in self._unsent:
            stream = <Stream>each
            stream._has_unsent = False
            if PyList_GET_SIZE(stream._pending):
                self._messages.append(stream._close_packet())
        self._unsent.clear()
        return 0

    def take_moved(self, Py_ssize_t most, double now):
        """The streams that have moved, the longest ago first; the others have moved `now`."""
        moved, self._moved = self._moved[:most], self._moved[most:]
        for stream in moved:
            (<Stream>stream)._has_moved = False
        self._moved_at = now if self._moved else None
        return moved


cdef char* write_header(
    char* at, bytes session, unsigned long long sequence, Py_ssize_t count
) noexcept:
    """20 bytes; returns where the next go."""
    memcpy(at, PyBytes_AS_STRING(session), SESSION_BYTES)
    at = write_big_endian(at + SESSION_BYTES, sequence, 8)
    return write_big_endian(at, count, 2)


cdef char* write_block(char* at, bytes message) noexcept:
    """A message with its length in front; the same."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(message)
    at = write_big_endian(at, size, LENGTH_BYTES)
    memcpy(at, PyBytes_AS_STRING(message), size)
    return at + size


cdef char* write_big_endian(char* at, unsigned long long value, int size) noexcept nogil:
    cdef int index
    for index in range(size):
        at[index] = <char>(value >> (8 * (size - 1 - index)))
    return at + size
