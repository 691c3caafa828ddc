# What `_lane.pyx` uses of `_datagrams.pyx`: the reader and its buffers.

from posix.uio cimport iovec

cdef extern from "<sys/socket.h>" nogil:
    cdef struct msghdr:
        void* msg_name
        void* msg_control
        unsigned int msg_namelen
        iovec* msg_iov
        size_t msg_iovlen, msg_controllen
        int msg_flags
    cdef struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len

cdef enum:
    SOCKADDR_BYTES = 28  # sockaddr_in6, the longer of the two
    CONTROL_WORDS = 8  # CONTROL_BYTES of datagrams.py, in words: aligned as a cmsghdr must be
    NOW = 0  # how to read: what is there now, sleeping until something is, or spinning
    SLEEPING = 1
    SPINNING = 2

cdef struct Slot:
    iovec buffer
    size_t control[CONTROL_WORDS]
    char sockaddr[SOCKADDR_BYTES]

cdef class DatagramReader:
    cdef readonly unsigned long long kernel_drops, truncated, errors
    cdef object _sock
    cdef tuple _last_address
    cdef char _last_sockaddr[SOCKADDR_BYTES]
    cdef mmsghdr* _headers
    cdef Slot* _slots
    cdef char* _data
    cdef size_t _size
    cdef unsigned int _batch, _last_drops, _last_length
    cdef int _naps  # what the kernel's timeout was last set to
    cdef unsigned int _used  # slots whose lengths the kernel has overwritten
    cdef bint _is_busy, _is_drained

    cdef int fetch(self, int how, long long deadline_ns) except -1
    cdef long long stamp(self, mmsghdr* header) except -2
    cdef tuple received(self, mmsghdr* header, long long received_at_ns)
    cdef tuple address(self, msghdr* header)
    cdef list _until(self, int how, long long deadline_ns)
    cdef list _collect(self, unsigned int count)
    cdef int _read(self, int fd, int how, long long deadline_ns) noexcept nogil
    cdef int _nap(self, int fd, long long deadline_ns) noexcept nogil
    cdef long long _read_control(self, msghdr* header) except -1
    cpdef _note_drops(self, unsigned int seen)

cdef long long deadline_after(object timeout_s) except -1
cdef bint is_past(long long deadline_ns) noexcept nogil
