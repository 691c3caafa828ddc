# cython: boundscheck=False, wraparound=False
"""The usual event, checked in C: what is not usual is left to `envelope.py`, which says why.

Usual is a short event whose texts are ASCII, with no headers, and a value that is plain or a map of
texts to plain values; of these msgspec makes the same bytes as msgpack, in half the time. Budget: the
tuple that is returned, and what MessagePack makes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport PyObject

import msgspec

from onehop.transport.event import NO_HEADERS

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

cdef enum:
    FIELDS = 8
    MAX_USUAL_BYTES = 2048  # of one that is read here
    MAX_EVENT_BYTES = 1024 * 1024
    MAX_TOPIC_BYTES = 255
    MAX_SOURCE_BYTES = 255
    MAX_KEY_BYTES = 1024
    MAX_USUAL_ITEMS = 64

cdef object pack = msgspec.msgpack.Encoder().encode, unpack = msgspec.msgpack.Decoder().decode
cdef object no_headers = NO_HEADERS
cdef object new_tuple = tuple.__new__


cdef bint is_short(text, Py_ssize_t least, Py_ssize_t most):
    return (
        type(text) is str
        and PyUnicode_IS_COMPACT_ASCII(text)
        and least <= PyUnicode_GET_LENGTH(text) <= most
    )


cdef bint is_scalar(value):
    kind = type(value)
    return (
        value is None or kind is float or kind is int or kind is str or kind is bool
        or kind is bytes
    )


cdef bint is_plain_value(value):
    cdef Py_ssize_t place = 0
    cdef PyObject *key
    cdef PyObject *item
    if is_scalar(value):
        return True
    if type(value) is not dict or len(<dict>value) > MAX_USUAL_ITEMS:
        return False
    while PyDict_Next(value, &place, &key, &item):
        if type(<object>key) is not str or not is_scalar(<object>item):
            return False
    return True


cdef class UsualEncoder:
    """Encodes the events of one source: the usual ones here, others with `encode_unusual`."""
    cdef str _source

    def __init__(self, str source):
        self._source = source

    def encode(self, topic, value, key, occurred_at_ns, sent_at_ns, headers):
        """The bytes of an event, as `envelope.py` says."""
        cdef bytes data
        if occurred_at_ns is None:
            occurred_at_ns = sent_at_ns
        if (
            not headers
            and is_short(topic, 1, MAX_TOPIC_BYTES)
            and (key is None or is_short(key, 0, MAX_KEY_BYTES))
            and type(occurred_at_ns) is int
            and is_plain_value(value)
        ):
            try:
                data = pack((1, topic, value, key, self._source, occurred_at_ns, sent_at_ns, None))
            except Exception:  # the other way says why
                data = None
            if data is not None and PyBytes_GET_SIZE(data) <= MAX_EVENT_BYTES:
                return data
        return self.encode_unusual(topic, value, key, occurred_at_ns, sent_at_ns, headers)


cdef list usual_fields(bytes data):
    """The eight fields of a usual event, checked; None for everything else."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef const unsigned char* start = <unsigned char*>PyBytes_AS_STRING(data)
    if size < 2 or size > MAX_USUAL_BYTES or start[0] != 0x98 or start[1] != 1:
        return None  # an array of eight, the first of which is the version
    try:
        fields = unpack(data)
    except Exception:
        return None
    if type(fields) is not list or PyList_GET_SIZE(fields) != FIELDS:
        return None
    key = <object>PyList_GET_ITEM(fields, 3)
    if (
        <object>PyList_GET_ITEM(fields, 7) is not None
        or not is_short(<object>PyList_GET_ITEM(fields, 1), 1, MAX_TOPIC_BYTES)
        or not is_short(<object>PyList_GET_ITEM(fields, 4), 1, MAX_SOURCE_BYTES)
        or not (key is None or is_short(key, 0, MAX_KEY_BYTES))
        or type(<object>PyList_GET_ITEM(fields, 5)) is not int
        or type(<object>PyList_GET_ITEM(fields, 6)) is not int
        or not is_plain_value(<object>PyList_GET_ITEM(fields, 2))
    ):
        return None
    return <list>fields


def decode_usual(whole_type, bytes data):
    """The fields of a usual event as a `whole_type`; None for everything else."""
    fields = usual_fields(data)
    if fields is None:
        return None
    _, topic, value, key, source, occurred_at_ns, sent_at_ns, _ = fields
    return new_tuple(
        whole_type, (topic, value, key, source, occurred_at_ns, sent_at_ns, no_headers)
    )
