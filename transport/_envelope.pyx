# cython: boundscheck=False, wraparound=False
"""The usual event, checked in C: what is not usual is left to `envelope.py`, which says why.

Usual is a short event whose texts are ASCII, with no headers, and a value that is plain or a map of
texts to plain values. Budget: the tuple that is returned, and what MessagePack makes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport PyObject

import msgpack

from onehop.transport.event import NO_HEADERS

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

cdef enum:
    FIELDS = 8
    MAX_USUAL_BYTES = 2048
    MAX_TOPIC_BYTES = 255
    MAX_SOURCE_BYTES = 255
    MAX_KEY_BYTES = 1024
    MAX_USUAL_ITEMS = 64

cdef object unpackb = msgpack.unpackb, no_headers = NO_HEADERS
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


def is_usual(topic, value, key, headers, occurred_at_ns):
    """True when an event can be packed as it is."""
    return (
        not headers
        and is_short(topic, 1, MAX_TOPIC_BYTES)
        and (key is None or is_short(key, 0, MAX_KEY_BYTES))
        and type(occurred_at_ns) is int
        and is_plain_value(value)
    )


def decode_usual(whole_type, bytes data):
    """The fields of a usual event as a `whole_type`; None for everything else."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef const unsigned char* start = <unsigned char*>PyBytes_AS_STRING(data)
    if size < 2 or size > MAX_USUAL_BYTES or start[0] != 0x98 or start[1] != 1:
        return None  # an array of eight, the first of which is the version
    try:
        fields = unpackb(data, strict_map_key=False)
    except Exception:
        return None
    if type(fields) is not list or PyList_GET_SIZE(fields) != FIELDS:
        return None
    topic = <object>PyList_GET_ITEM(fields, 1)
    value = <object>PyList_GET_ITEM(fields, 2)
    key = <object>PyList_GET_ITEM(fields, 3)
    source = <object>PyList_GET_ITEM(fields, 4)
    occurred_at_ns = <object>PyList_GET_ITEM(fields, 5)
    sent_at_ns = <object>PyList_GET_ITEM(fields, 6)
    if (
        <object>PyList_GET_ITEM(fields, 7) is not None
        or not is_short(topic, 1, MAX_TOPIC_BYTES)
        or not is_short(source, 1, MAX_SOURCE_BYTES)
        or not (key is None or is_short(key, 0, MAX_KEY_BYTES))
        or type(occurred_at_ns) is not int
        or type(sent_at_ns) is not int
        or not is_plain_value(value)
    ):
        return None
    return new_tuple(
        whole_type, (topic, value, key, source, occurred_at_ns, sent_at_ns, no_headers)
    )
