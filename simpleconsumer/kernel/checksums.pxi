# CRC-32 and CRC-32C of buffers.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "checksums.h" nogil:
    void prepare_checksums()
    uint32_t crc32_checksum(const uint8_t *at, size_t size, uint32_t before)
    uint32_t crc32c_checksum(const uint8_t *at, size_t size, uint32_t before)

prepare_checksums()

cdef enum:
    WORTH_A_SWITCH = 1 << 16  # from so many bytes on, other threads may run meanwhile


cdef uint32_t crc32_of(const uint8_t *at, size_t size, uint32_t before):
    if size < WORTH_A_SWITCH:
        return crc32_checksum(at, size, before)
    with nogil:
        return crc32_checksum(at, size, before)


cdef uint32_t crc32c_of(const uint8_t *at, size_t size, uint32_t before):
    if size < WORTH_A_SWITCH:
        return crc32c_checksum(at, size, before)
    with nogil:
        return crc32c_checksum(at, size, before)


def crc32(data, uint32_t before=0, /):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return crc32_of(<const uint8_t *>view.buf, view.len, before)
    finally:
        PyBuffer_Release(&view)


def crc32c(data, uint32_t before=0, /):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return crc32c_of(<const uint8_t *>view.buf, view.len, before)
    finally:
        PyBuffer_Release(&view)
