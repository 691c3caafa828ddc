# What `_lane.pyx` uses of `_envelope.pyx`.

cdef list usual_fields(bytes data)
