# cython: boundscheck=False, wraparound=False
"""Frames into and out of one ZeroMQ socket, with nothing of Python in between.

The lane does what the plain one does over `DataPort.receive_wait`, `receive` and `spin`, the sender
what `frames.py` does; these remain the specification. The functions of libzmq are those of the library that pyzmq has loaded, found by
`libzmq.py`. Budget of the hot path: one copy of each message, one system call for each time the
socket turns out to be empty.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EINTR
from libc.stdint cimport uintptr_t
from libc.string cimport memcmp

from onehop.transport._datagrams cimport NOW, SLEEPING, SPINNING, deadline_after, is_past
from onehop.transport._lane cimport HEADER_BYTES, SESSION_BYTES, Lane, now_ns

import zmq

from onehop.transport.ports import BATCH
from onehop.transport.zeromq import libzmq

cdef enum:
    DONTWAIT = 1  # ZMQ_DONTWAIT
    SLICE_NS = 50_000  # of spinning, before others may run
    CALM = 16  # reads for a single frame each, before it is looked whether more came with one

cdef struct Frame:  # zmq_msg_t: 64 bytes, as its header promises, aligned as a pointer is
    void* words[8]

cdef int batch = BATCH
cdef int (*frame_init)(Frame*) noexcept nogil
cdef int (*frame_receive)(Frame*, void*, int) noexcept nogil
cdef int (*frame_close)(Frame*) noexcept nogil
cdef void* (*frame_data)(Frame*) noexcept nogil
cdef size_t (*frame_size)(Frame*) noexcept nogil
cdef int (*last_error)() noexcept nogil
cdef int (*send_frame)(void*, const void*, size_t, int) noexcept nogil

frame_init = <int (*)(Frame*) noexcept nogil><uintptr_t>libzmq.address("zmq_msg_init")
frame_receive = (
    <int (*)(Frame*, void*, int) noexcept nogil><uintptr_t>libzmq.address("zmq_msg_recv")
)
frame_close = <int (*)(Frame*) noexcept nogil><uintptr_t>libzmq.address("zmq_msg_close")
frame_data = <void* (*)(Frame*) noexcept nogil><uintptr_t>libzmq.address("zmq_msg_data")
frame_size = <size_t (*)(Frame*) noexcept nogil><uintptr_t>libzmq.address("zmq_msg_size")
last_error = <int (*)() noexcept nogil><uintptr_t>libzmq.address("zmq_errno")
send_frame = (
    <int (*)(void*, const void*, size_t, int) noexcept nogil><uintptr_t>libzmq.address("zmq_send")
)


cdef class FrameSender:
    """Sends frames; see `frames.py`."""
    cdef object _zmq_socket
    cdef void* _socket

    def __init__(self, sock):
        self._zmq_socket, self._socket = sock, <void*><uintptr_t>sock.underlying

    def send(self, list frames):
        """Sends each; raises `ZMQError` when the socket takes no more."""
        cdef int sent
        for frame in frames:
            if self._zmq_socket.closed:
                raise zmq.ZMQError(zmq.ENOTSOCK)
            while True:
                sent = send_frame(self._socket, PyBytes_AS_STRING(<bytes?>frame),
                                  PyBytes_GET_SIZE(frame), DONTWAIT)
                if sent >= 0:
                    break
                if last_error() != EINTR:
                    raise zmq.ZMQError(last_error())
                PyErr_CheckSignals()


cdef class SocketLane(Lane):
    """A lane that reads the one socket of a `DataPort`."""
    cdef object _port, _zmq_socket
    cdef void* _socket
    cdef bytes _prefix
    cdef Frame _frame  # the last one received, which libzmq lets go with the next
    cdef int _timeout_ms, _calm
    cdef bint _is_dense

    def __cinit__(self, port, *, is_raw, topics, is_lost=None):
        frame_init(&self._frame)
        self._timeout_ms = -1
        self._prefix = b""

    def __init__(self, port, *, is_raw, topics, is_lost=None):
        self._port, self._zmq_socket = port, port.only
        self._socket = <void*><uintptr_t>self._zmq_socket.underlying

    def __dealloc__(self):
        frame_close(&self._frame)

    def open(self, bytes session, tuple origin, source, epoch, stream=""):
        """Begins with a session of a stream; nothing of another one waits."""
        Lane.open(self, session, origin, source, epoch, stream)
        self._prefix = stream.encode() + b"\0"

    def read(self, int how, timeout_s):
        """Reads what is there, waiting for it as told; returns what is not the lane's."""
        cdef long long deadline_ns = deadline_after(timeout_s) if how == SPINNING else 0
        cdef int count = 0, flags = DONTWAIT
        cdef bint has_more = False
        self._drop_taken()
        self._port.has_more = True  # until it is known, however this ends
        if how == SLEEPING and timeout_s:
            self._set_timeout(timeout_s)
            flags = 0
        while count < batch:
            if not (
                self._spin(deadline_ns) if how == SPINNING and count == 0 else self._receive(flags)
            ):
                break
            count += 1
            rest = self._take_frame(now_ns())
            if rest:
                return rest
            if count == 1 and how != SPINNING:
                flags = DONTWAIT
                if not self._is_dense and self._calm < CALM:
                    self._calm += 1
                    has_more = True  # perhaps; the next read does not sleep if there is
                    break
                self._calm = 0
        if not has_more:
            self._is_dense = count > 1
            has_more = count == batch
        self._port.has_more = has_more
        return []

    cdef int _set_timeout(self, timeout_s) except -1:
        cdef int timeout_ms = max(1, <int>(timeout_s * 1e3))
        if timeout_ms != self._timeout_ms:
            self._port.wait_at_most(timeout_ms)
            self._timeout_ms = timeout_ms
        return 0

    cdef bint _receive(self, int flags) except -1:
        """Takes the next frame; False when there is none."""
        cdef int size
        while not self._zmq_socket.closed:
            if flags == DONTWAIT:
                size = frame_receive(&self._frame, self._socket, flags)
            else:
                with nogil:
                    size = frame_receive(&self._frame, self._socket, flags)
            if size >= 0:
                return True
            if last_error() != EINTR:  # nothing is there, or the port was closed
                return False
            PyErr_CheckSignals()
        return False

    cdef bint _spin(self, long long deadline_ns) except -1:
        """The same as `_receive`, looking again and again; other threads and signals get their
        turn after each slice."""
        cdef int size = -1
        cdef long long slice_ends_ns
        while size < 0 and not self._zmq_socket.closed:
            with nogil:
                slice_ends_ns = now_ns() + SLICE_NS
                while size < 0 and now_ns() < slice_ends_ns:
                    size = frame_receive(&self._frame, self._socket, DONTWAIT)
                    if size < 0 and last_error() != EAGAIN:
                        break
            if size < 0:
                PyErr_CheckSignals()
                if is_past(deadline_ns):
                    return False
        return size >= 0

    cdef list _take_frame(self, long long at_ns):
        """Takes the packet in the frame, if it is the next; returns what the intake has to see."""
        cdef const char* data = <const char*>frame_data(&self._frame)
        cdef Py_ssize_t size = frame_size(&self._frame)
        cdef Py_ssize_t begin = PyBytes_GET_SIZE(self._prefix)
        # quotes NUL session sequence count blocks
        #            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        if (
            size >= begin + HEADER_BYTES
            and memcmp(data, PyBytes_AS_STRING(self._prefix), begin) == 0
            and memcmp(data + begin, self._session, SESSION_BYTES) == 0
        ):
            if self._is_lost is not None and self._is_lost():
                return []
            if self._append(<const unsigned char*>data + begin, size - begin, at_ns):
                return []
        return self._port.sort(PyBytes_FromStringAndSize(data, size), at_ns)
