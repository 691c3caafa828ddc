# cython: boundscheck=False, wraparound=False
"""Whole numbers by bucket, as `histogram.py` counts them one by one."""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.math cimport ceil, log

from onehop.transport import histogram

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef enum:
    MAX_BUCKET = 3110

cdef long long MOST = 1 << 53  # a float holds every whole number up to here
cdef double LN_GAMMA = histogram.LN_GAMMA
cdef int OFFSET = histogram.OFFSET


def tally(list values):
    """The counts by bucket, the least, the greatest and the sum; None unless all are whole numbers
    that a float holds."""
    cdef unsigned int counts[2 * MAX_BUCKET + 1]
    cdef long long value, least = MOST, greatest = -MOST
    cdef int bucket, lowest = MAX_BUCKET, highest = -MAX_BUCKET, overflow
    cdef Py_ssize_t index, size = PyList_GET_SIZE(values)
    if size == 0 or size > 0x7FFFFFFF:
        return None
    for bucket in range(2 * MAX_BUCKET + 1):
        counts[bucket] = 0
    for index in range(size):
        number = <object>PyList_GET_ITEM(values, index)
        if type(number) is not int:
            return None
        value = PyLong_AsLongLongAndOverflow(number, &overflow)
        if overflow or value > MOST or value < -MOST:
            return None
        if value > 0:
            bucket = <int>ceil(log(<double>value) / LN_GAMMA) + OFFSET
        elif value < 0:
            bucket = -(<int>ceil(log(<double>-value) / LN_GAMMA) + OFFSET)
        else:
            bucket = 0
        counts[MAX_BUCKET + bucket] += 1
        lowest, highest = min(lowest, bucket), max(highest, bucket)
        least, greatest = min(least, value), max(greatest, value)
    return (
        {
            bucket: counts[MAX_BUCKET + bucket]
            for bucket in range(lowest, highest + 1)
            if counts[MAX_BUCKET + bucket]
        },
        least, greatest, sum(values),
    )
