# What `zeromq/_frames.pyx` uses of `_lane.pyx`: the lane, to be filled from another source.

from onehop.transport._datagrams cimport SOCKADDR_BYTES, DatagramReader, msghdr

cdef enum:
    SESSION_BYTES = 10
    HEADER_BYTES = 20

cdef struct Place:
    unsigned long long number
    long long at_ns

cdef class Lane:
    cdef DatagramReader _reader
    cdef public bint may_read
    cdef readonly bint is_stuck
    cdef readonly unsigned long long next_number
    cdef readonly Py_ssize_t size_bytes
    cdef unsigned long long _run_first, _run_stop  # taken and not settled
    cdef bint _is_raw, _is_origin_known
    cdef tuple _topics, _origin
    cdef object _is_lost, _source, _epoch, _stream
    cdef char _session[SESSION_BYTES]
    cdef char _sockaddr[SOCKADDR_BYTES]
    cdef unsigned int _sockaddr_bytes
    cdef list _messages, _latencies_ns, _runs
    cdef Place* _places  # one for each of the messages
    cdef Py_ssize_t _front, _room

    cdef int _drop_taken(self) except -1
    cdef list _sort(self, int count)
    cdef bint _is_ours(self, msghdr* header) except -1
    cdef bint _append(
        self, const unsigned char* data, Py_ssize_t end, long long at_ns
    ) except -1
    cdef int _add(self, message, long long at_ns, Py_ssize_t size,
                  unsigned long long number) except -1
    cdef int _make_room(self, Py_ssize_t count) except -1
    cdef int _pass(self, unsigned long long number, Py_ssize_t size) except -1
    cdef int _filter(self, unsigned long long number, Py_ssize_t size) except -1
    cdef int _end_run(self) except -1
    cpdef take(self)

cdef long long now_ns() noexcept nogil
