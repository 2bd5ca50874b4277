# The whole entries of a fetched set, by their sizes.

def walk_entries(data, Py_ssize_t size_at, Py_ssize_t overhead, Py_ssize_t smallest, Py_ssize_t block, /):
    """Return the fields of `simpleconsumer.primitives.Walk`, and a size that is impossible, or `smallest`."""
    cdef Py_buffer view
    cdef const uint8_t *start
    cdef Py_ssize_t position = 0, last = 0, entries = 0, tail = 0, before_tail = 0, block_start = 0
    cdef Py_ssize_t size = smallest, end
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *>view.buf
        while view.len - position >= overhead:
            size = big32(start + position + size_at)
            if size < smallest:
                break
            end = position + overhead + size
            if end > view.len:
                break
            if entries % block == 0 and entries:
                tail, before_tail, block_start = block_start, entries - block, position
            last, position = position, end
            entries += 1
    finally:
        PyBuffer_Release(&view)
    return position, last, entries, tail, entries - before_tail, min(size, smallest)
