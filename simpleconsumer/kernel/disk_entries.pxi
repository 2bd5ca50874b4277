# Entries in the `.log` files of brokers: runs of sound ones, and where one may start behind damage.
#
# `zkconsumer/log/runs.py` says what both return, and does the same in Python. Whoever changes one changes the other.

cdef enum:
    HEAD_LOOKAHEAD = 17
    SMALL_ENTRY = 1024
    CODEC_BITS = 7
    APPEND_TIME_BIT = 8
    NO_PLAIN_BITS = 48  # of a transaction, or a marker


cdef inline bint fits(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    """Whether the checksum of a whole entry fits; `size` as its head has it, at least the smallest."""
    if at[MAGIC_AT] == 2:
        if size < HEAD_BYTES - OVERHEAD:
            return False
        return crc32c_checksum(at + CRC_BODY_AT, size + OVERHEAD - CRC_BODY_AT, 0) == <uint32_t>big32(at + CRC_AT)
    return crc32_checksum(at + 16, size + OVERHEAD - 16, 0) == <uint32_t>big32(at + 12)


def plain_run(data, Py_ssize_t at, int64_t expected, int32_t epoch, /):
    cdef Py_buffer view
    cdef const uint8_t *here
    cdef Py_ssize_t size, entries = 0
    cdef int64_t last_first = expected, first_ms = -1, last_ms = -1, own_first_ms, own_last_ms
    cdef int32_t delta = 0
    cdef int magic = -1, attributes = 0, own
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            while view.len - at >= HEAD_BYTES and expected < INT64_MAX - INT32_MAX:
                here = <const uint8_t *>view.buf + at
                size = big32(here + 8)
                if here[MAGIC_AT] > 2 or (here[MAGIC_AT] != magic and entries) or big64(here) != expected:
                    break
                if size > view.len - at - OVERHEAD or size < (22 if here[MAGIC_AT] else 14):
                    break
                if here[MAGIC_AT] == 2:
                    own, delta = big16(here + 21), big32(here + 23)
                    if own & NO_PLAIN_BITS or big32(here + 12) != epoch or delta < 0:
                        break
                    if <int64_t>big32(here + 57) != <int64_t>delta + 1:
                        break
                    own_first_ms, own_last_ms = big64(here + 27), big64(here + 35)
                    if own & APPEND_TIME_BIT:
                        own_first_ms = own_last_ms
                else:
                    own, delta = here[MAGIC_AT + 1], 0
                    if own & CODEC_BITS or epoch != -1:
                        break
                    own_first_ms = own_last_ms = big64(here + 18) if here[MAGIC_AT] else -1
                if (own != attributes and entries) or not fits(here, size):
                    break
                magic, attributes = here[MAGIC_AT], own
                if own_first_ms >= 0 and (first_ms < 0 or own_first_ms < first_ms):
                    first_ms = own_first_ms
                last_ms = max(last_ms, own_last_ms)
                last_first, expected = expected, expected + delta + 1
                at += size + OVERHEAD
                entries += 1
    finally:
        PyBuffer_Release(&view)
    return at, entries, last_first, expected, magic, attributes, first_ms, last_ms


def entry_start(
    data, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t left, int64_t low, int64_t high, int64_t budget, int64_t refill, /
):
    cdef Py_buffer view
    cdef const uint8_t *here
    cdef Py_ssize_t size, found = -1, start = at
    cdef int64_t offset
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        stop = min(stop, view.len - HEAD_LOOKAHEAD + 1)
        with nogil:
            while at < stop:
                here = <const uint8_t *>view.buf + at
                at += 1
                if here[0] > 0x3F or here[MAGIC_AT] > 2:
                    continue
                size, offset = big32(here + 8), big64(here)
                if size < 14 or size > left - (at - 1) - OVERHEAD or not low <= offset < high:
                    continue
                if size > SMALL_ENTRY:
                    if budget + refill * (at - start) < 0:
                        continue
                    budget -= size
                if size > view.len - (at - 1) - OVERHEAD or fits(here, size):
                    found = at - 1
                    break
    finally:
        PyBuffer_Release(&view)
    return found, budget
