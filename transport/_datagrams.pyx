"""The compiled side of `datagrams.py`: same names, same behaviour, one system call per batch.

Budget of the hot path: one recvmmsg or sendmmsg per batch, one copy of the bytes and one tuple per
datagram; sending copies nothing. An address is converted once and found again by its raw bytes.
The GIL is released around the system calls and taken back once per wake-up. Buffers live as long
as the reader, and a flag keeps a second thread away from them.
"""

import os
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EBADF, EINTR, ENOBUFS, errno
from libc.limits cimport LLONG_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, clockid_t, timespec
from posix.types cimport suseconds_t, time_t
from posix.uio cimport iovec
from onehop.transport.errors import LocalError

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events, revents
    short POLLIN, POLLNVAL
    int ppoll(pollfd* fds, unsigned long count, const timespec* timeout, const void* mask)

cdef extern from "<sys/time.h>" nogil:
    cdef struct timeval:
        time_t tv_sec
        suseconds_t tv_usec

cdef extern from "<sys/socket.h>" nogil:
    cdef struct cmsghdr:
        size_t cmsg_len
        int cmsg_level, cmsg_type
    int MSG_DONTWAIT, MSG_TRUNC, SOL_SOCKET, SO_RXQ_OVFL, SO_TIMESTAMPNS
    size_t CMSG_LEN(size_t length)
    size_t CMSG_SPACE(size_t length)
    int SO_RCVTIMEO
    int setsockopt(int fd, int level, int name, const void* value, unsigned int size)
    ssize_t recvmsg(int fd, msghdr* header, int flags)
    int recvmmsg(int fd, mmsghdr* headers, unsigned int count, int flags, timespec* timeout)
    int sendmmsg(int fd, mmsghdr* headers, unsigned int count, int flags)

cdef enum:
    SEND_CHUNK = 128  # datagrams per sendmmsg: their headers take 22 kB of stack
    SIGNAL_CHECK_NS = 1_000_000  # a spinning reader looks for Ctrl-C this often
    MAX_NAPS = 100
    NAP_NS = 10_000_000  # the kernel's own timeout counts coarsely: only whole naps are left to it


cdef class DatagramReader:
    """Reads a UDP socket in batches of at most `batch` datagrams of at most `size` bytes."""

    def __cinit__(self, sock, batch=64, size=2048):
        prepare_socket(sock, batch, size)
        self._sock, self._size = sock, size
        self._batch = self._used = batch
        self._headers = <mmsghdr*>calloc(self._batch, sizeof(mmsghdr))
        self._slots = <Slot*>calloc(self._batch, sizeof(Slot))
        self._data = <char*>calloc(self._batch, self._size)
        if self._headers == NULL or self._slots == NULL or self._data == NULL:
            raise MemoryError
        cdef unsigned int index
        for index in range(self._batch):
            data = self._data + index * self._size
            join(&self._headers[index].msg_hdr, &self._slots[index], data, self._size)
            self._headers[index].msg_hdr.msg_control = self._slots[index].control

    def __dealloc__(self):
        free(self._headers)
        free(self._slots)
        free(self._data)

    def receive(self):
        """Returns what is there now, at most `batch` datagrams; never blocks."""
        for _ in range(ROUNDS):
            found = self._collect(self.fetch(NOW, 0))
            if found or self._is_drained:
                return found
        return []

    def wait(self, timeout_s):
        """Blocks until the socket has a datagram or an error to read; None waits for ever."""
        cdef long long deadline_ns = deadline_after(timeout_s)
        cdef int fd, ready = -EINTR
        while ready == -EINTR:
            PyErr_CheckSignals()
            fd = self._sock.fileno()
            with nogil:
                ready = wait_readable(fd, deadline_ns)
        if ready < 0:
            raise OSError(-ready, os.strerror(-ready))
        return ready > 0

    def receive_wait(self, timeout_s):
        """Returns as `receive` does, sleeping until something is there; empty after the timeout."""
        return self._until(SLEEPING, deadline_after(timeout_s))

    def spin(self, timeout_s):
        """Returns as `receive_wait` does, but burns a core instead of sleeping."""
        return self._until(SPINNING, deadline_after(timeout_s))

    cdef list _until(self, int how, long long deadline_ns):
        while True:
            found = self._collect(self.fetch(how, deadline_ns))
            if found or is_past(deadline_ns):
                return found
            PyErr_CheckSignals()

    cdef int fetch(self, int how, long long deadline_ns) except -1:
        """Fills the buffers; returns how many datagrams are in them."""
        cdef int count, fd = self._sock.fileno()  # -1 once closed: the kernel says EBADF
        if self._is_busy:
            raise LocalError("reader is in use by another thread, expected one at a time")
        self._is_busy = True
        with nogil:
            count = self._read(fd, how, deadline_ns)
        self._is_busy = False
        self._is_drained = count == -EAGAIN
        if count >= 0:
            return count
        if count != -EAGAIN and count != -EINTR:
            if -count not in ASYNCHRONOUS_ERRORS:
                raise OSError(-count, os.strerror(-count))
            self.errors += 1
        return 0

    cdef int _read(self, int fd, int how, long long deadline_ns) noexcept nogil:
        cdef unsigned int index
        cdef long long stop_ns
        for index in range(self._used):
            self._headers[index].msg_hdr.msg_namelen = SOCKADDR_BYTES
            self._headers[index].msg_hdr.msg_controllen = sizeof(self._slots.control)
        cdef int count = read_now(fd, self._headers, self._batch)
        if count == -EAGAIN and how == SLEEPING:
            count = self._nap(fd, deadline_ns)
            if count == -EAGAIN:
                count = wait_readable(fd, deadline_ns)
                if count >= 0:  # after the deadline too: what came last may still be there
                    count = read_now(fd, self._headers, self._batch)
        elif how == SPINNING:
            stop_ns = min(deadline_ns, clock_ns(CLOCK_MONOTONIC) + SIGNAL_CHECK_NS)
            while count == -EAGAIN and clock_ns(CLOCK_MONOTONIC) < stop_ns:
                count = read_one(fd, self._headers, MSG_DONTWAIT)
        self._used = max(0, count)
        return count

    cdef int _nap(self, int fd, long long deadline_ns) noexcept nogil:
        """Sleeps inside the read itself: one system call from the wake-up to the datagram."""
        cdef timeval naps
        cdef long long left_ns = min(deadline_ns - clock_ns(CLOCK_MONOTONIC), MAX_NAPS * NAP_NS)
        cdef int count, wanted = left_ns // NAP_NS
        if wanted <= 0:
            return -EAGAIN
        if wanted != self._naps:
            naps.tv_sec, naps.tv_usec = 0, wanted * (NAP_NS // 1000)
            if wanted == MAX_NAPS:
                naps.tv_sec, naps.tv_usec = 1, 0
            if setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &naps, sizeof(naps)):
                return -EAGAIN
            self._naps = wanted
        count = read_one(fd, self._headers, 0)  # at once, too, where the socket does not block
        if count == 1 and self._headers.msg_hdr.msg_namelen == 0:
            return -EAGAIN  # no datagram: the socket was shut down to wake us
        return count

    cdef list _collect(self, unsigned int count):
        cdef list found = []
        cdef unsigned int index
        self._is_busy = True  # the buffers are in use until all is copied
        try:
            for index in range(count):
                header = &self._headers[index]
                received_at_ns = self.stamp(header)
                if received_at_ns >= 0:
                    found.append(self.received(header, received_at_ns))
        finally:
            self._is_busy = False
        return found

    cdef tuple received(self, mmsghdr* header, long long received_at_ns):
        """One datagram of the buffers as others get it."""
        data = PyBytes_FromStringAndSize(<char*>header.msg_hdr.msg_iov.iov_base, header.msg_len)
        return data, self.address(&header.msg_hdr), received_at_ns

    cdef long long stamp(self, mmsghdr* header) except -2:
        """When a datagram came; -1 for one that did not fit and is counted."""
        # First the ancillary data: a truncated datagram carries the drop counter too.
        received_at_ns = self._read_control(&header.msg_hdr)
        if header.msg_hdr.msg_flags & MSG_TRUNC or header.msg_len > self._size:
            self.truncated += 1
            return -1
        return received_at_ns

    cdef long long _read_control(self, msghdr* header) except -1:
        # MSG_CTRUNC needs no case of its own: an entry cut short fails its length check.
        cdef size_t offset = 0, end = min(header.msg_controllen, sizeof(self._slots.control))
        cdef long long received_at_ns = 0
        cdef timespec stamp
        cdef unsigned int drops
        while offset + CMSG_LEN(0) <= end:
            entry = <cmsghdr*>(<char*>header.msg_control + offset)
            if entry.cmsg_len < CMSG_LEN(0) or entry.cmsg_len > end - offset:
                break
            kind = entry.cmsg_type if entry.cmsg_level == SOL_SOCKET else -1
            if kind == SO_TIMESTAMPNS and entry.cmsg_len >= CMSG_LEN(sizeof(stamp)):
                memcpy(&stamp, <char*>entry + CMSG_LEN(0), sizeof(stamp))
                received_at_ns = <long long>stamp.tv_sec * 1_000_000_000 + stamp.tv_nsec
            elif kind == SO_RXQ_OVFL and entry.cmsg_len >= CMSG_LEN(sizeof(drops)):
                memcpy(&drops, <char*>entry + CMSG_LEN(0), sizeof(drops))
                self._note_drops(drops)
            offset += CMSG_SPACE(entry.cmsg_len - CMSG_LEN(0))
        return received_at_ns or clock_ns(CLOCK_REALTIME)

    cpdef _note_drops(self, unsigned int seen):
        # The kernel counts in 32 bits and wraps; a step of over half the circle is a step back.
        cdef unsigned int step = seen - self._last_drops
        if step < <unsigned int>0x80000000:
            self.kernel_drops += step
            self._last_drops = seen

    cdef tuple address(self, msghdr* header):
        cdef unsigned int length = min(header.msg_namelen, <unsigned int>SOCKADDR_BYTES)
        if length == self._last_length and not memcmp(header.msg_name, self._last_sockaddr, length):
            return self._last_address
        address = decode_address(PyBytes_FromStringAndSize(<char*>header.msg_name, length))
        memcpy(self._last_sockaddr, header.msg_name, length)
        self._last_length, self._last_address = length, address
        return address


def send_batch(sock, datagrams):
    """Sends in order, without blocking, and returns how many datagrams the kernel accepted."""
    cdef mmsghdr headers[SEND_CHUNK]
    cdef Slot slots[SEND_CHUNK]
    cdef tuple items = tuple(datagrams)
    cdef Py_ssize_t sent = 0
    cdef int family = family_of(sock), fd, ready, count, error
    while sent < len(items):
        fd, ready = sock.fileno(), fill(headers, slots, items, sent, family)
        with nogil:
            count = sendmmsg(fd, headers, ready, MSG_DONTWAIT)
            error = errno
        if count > 0:
            sent += count
        elif sent > 0 or error == EAGAIN or error == ENOBUFS:  # sent > 0 too if nothing is ready
            break
        elif error == EINTR:
            PyErr_CheckSignals()
        else:
            raise OSError(error, os.strerror(error))
    return sent

cdef int fill(mmsghdr* headers, Slot* slots, tuple items, Py_ssize_t first, int family) except -1:
    """Prepares up to SEND_CHUNK items, ends before a bad one, raises if that is the very first."""
    cdef int index = 0, count = min(len(items) - first, SEND_CHUNK)
    cdef bytes sockaddr
    try:
        for index in range(count):
            item = items[first + index]
            if type(item) is not tuple or len(item) != 2 or type(item[0]) is not bytes:
                raise TypeError(f"datagram is {type(item).__name__}, expected (bytes, address)")
            data, address = <tuple>item
            sockaddr = encode_address(family, address)
            header = &headers[index].msg_hdr
            join(header, &slots[index], PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            # Copied, because the cache may let go of it while the kernel reads.
            header.msg_namelen = min(len(sockaddr), SOCKADDR_BYTES)
            memcpy(slots[index].sockaddr, PyBytes_AS_STRING(sockaddr), header.msg_namelen)
            header.msg_control, header.msg_controllen, header.msg_flags = NULL, 0, 0
    except (TypeError, ValueError):
        if first + index == 0:
            raise
        return index
    return count

cdef void join(msghdr* header, Slot* slot, char* data, size_t size) noexcept nogil:
    slot.buffer.iov_base, slot.buffer.iov_len = data, size
    header.msg_iov, header.msg_iovlen = &slot.buffer, 1
    header.msg_name = slot.sockaddr

cdef long long clock_ns(clockid_t clock) noexcept nogil:
    cdef timespec now
    clock_gettime(clock, &now)
    return <long long>now.tv_sec * 1_000_000_000 + now.tv_nsec

cdef long long deadline_after(object timeout_s) except -1:
    if timeout_s is None or timeout_s >= LONGEST_S:
        return LLONG_MAX
    return clock_ns(CLOCK_MONOTONIC) + (<long long>(timeout_s * 1e9) if timeout_s > 0 else 0)

cdef bint is_past(long long deadline_ns) noexcept nogil:
    return clock_ns(CLOCK_MONOTONIC) >= deadline_ns

cdef int read_now(int fd, mmsghdr* headers, unsigned int batch) noexcept nogil:
    cdef int count = recvmmsg(fd, headers, batch, MSG_DONTWAIT, NULL)
    return count if count >= 0 else -errno

cdef int read_one(int fd, mmsghdr* header, int flags) noexcept nogil:
    """One instead of a batch: cheaper, where nothing more is likely to have come."""
    cdef ssize_t size = recvmsg(fd, &header.msg_hdr, flags)
    if size < 0:
        return -errno
    header.msg_len = size
    return 1

cdef int wait_readable(int fd, long long deadline_ns) noexcept nogil:
    """1: readable, 0: the deadline has passed, -errno: neither."""
    if fd < 0:  # poll(2) would ignore it and sleep
        return -EBADF
    cdef pollfd watched
    cdef timespec timeout
    cdef long long remaining_ns = max(0, deadline_ns - clock_ns(CLOCK_MONOTONIC))
    watched.fd, watched.events, watched.revents = fd, POLLIN, 0
    timeout.tv_sec, timeout.tv_nsec = remaining_ns // 1_000_000_000, remaining_ns % 1_000_000_000
    cdef int ready = ppoll(&watched, 1, NULL if deadline_ns == LLONG_MAX else &timeout, NULL)
    if ready < 0:
        return -errno
    return -EBADF if watched.revents & POLLNVAL else ready


# Last, as `datagrams.py` imports this module in turn: each finds the other far enough along.
from onehop.transport.datagrams import ASYNCHRONOUS_ERRORS, LONGEST_S, ROUNDS
from onehop.transport.datagrams import decode_address, encode_address, family_of, prepare_socket
