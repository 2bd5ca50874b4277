# Rows that become the columns of an Arrow record batch.

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.string cimport memcpy

cdef enum:
    SMALLEST_ROOM = 4096


cdef struct Row:
    # A message of a run. Key and value have -1 bytes for null; a time type of -1 stands for no time.
    int64_t offset
    int64_t next_offset
    int64_t time
    int64_t key_bytes
    int64_t value_bytes
    int64_t headers
    int64_t header_bytes
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers_at
    const uint8_t *end
    int32_t entry_index
    int32_t time_type


cdef class Memory:
    """Bytes that are freed with the last array that refers to them."""

    cdef uint8_t *data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __len__(self):
        return self.size

    def __dealloc__(self):
        PyMem_RawFree(self.data)


cdef struct Block:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room


cdef bint reserve(Block *block, Py_ssize_t more) noexcept nogil:
    """Make room for more bytes; False if there is no memory."""
    cdef Py_ssize_t room
    if more <= block.room - block.size:
        return True
    room = max(2 * block.room, block.size + more, SMALLEST_ROOM)
    cdef uint8_t *data = <uint8_t *>PyMem_RawRealloc(block.data, room)
    if data == NULL:
        return False
    block.data, block.room = data, room
    return True


cdef bint push(Block *block, const void *data, Py_ssize_t size) noexcept nogil:
    if not reserve(block, size):
        return False
    if size:
        memcpy(block.data + block.size, data, size)
    block.size += size
    return True


cdef bint push_int32(Block *block, int32_t number) noexcept nogil:
    return push(block, &number, sizeof(number))


cdef bint push_int64(Block *block, int64_t number) noexcept nogil:
    return push(block, &number, sizeof(number))


cdef bint push_bit(Block *block, Py_ssize_t index, bint is_set) noexcept nogil:
    cdef uint8_t none = 0
    if index & 7 == 0 and not push(block, &none, 1):
        return False
    if is_set:
        block.data[index >> 3] |= 1 << (index & 7)
    return True


cdef Memory taken(Block *block):
    """Return the content of a block, and empty it."""
    cdef uint8_t *shrunk
    memory = Memory()
    # A block that is nearly full stays as it is: one that shrinks each time is mapped anew each time, page by page.
    if block.size < block.room // 4 * 3:
        shrunk = <uint8_t *>PyMem_RawRealloc(block.data, block.size)
        if shrunk != NULL:
            block.data = shrunk
    memory.data, memory.size = block.data, block.size
    block.data, block.size, block.room = NULL, 0, 0
    return memory


cdef struct Binaries:
    # A column of byte strings, some of them null.
    Block ends
    Block data
    Block valid
    Py_ssize_t count
    Py_ssize_t nulls


cdef bint push_bytes(Binaries *column, const uint8_t *data, int64_t size) noexcept nogil:
    if column.count == 0 and not push_int32(&column.ends, 0):
        return False
    if not push_bit(&column.valid, column.count, size >= 0):
        return False
    if size > 0 and not push(&column.data, data, size):
        return False
    column.count += 1
    column.nulls += size < 0
    return push_int32(&column.ends, <int32_t>column.data.size)


cdef tuple taken_bytes(Binaries *column):
    """Return number, number of nulls, validity, ends and data of a column, and empty it."""
    found = column.count, column.nulls, taken(&column.valid), taken(&column.ends), taken(&column.data)
    column.count = column.nulls = 0
    return found


cdef void free_bytes(Binaries *column) noexcept:
    PyMem_RawFree(column.ends.data)
    PyMem_RawFree(column.data.data)
    PyMem_RawFree(column.valid.data)


cdef class ColumnRows:
    """Collects rows column by column, in the wanted columns alone.

    Args:
        wanted: Names of columns: key, value, offset, timestamp_ms, timestamp_type, headers, entry_index, next_offset.
        row_bytes: The size of a row without its key, its value and its headers.

    Attributes:
        count: How many rows there are.
        size_bytes: The size of the rows.
    """

    cdef readonly Py_ssize_t count
    cdef readonly int64_t size_bytes
    cdef int64_t row_bytes
    cdef bint wants_key, wants_value, wants_offset, wants_time, wants_type, wants_headers, wants_index, wants_next
    cdef Binaries keys, values, header_keys, header_values
    cdef Block offsets, times, times_valid, types, header_ends, headers_valid, indexes, next_offsets
    cdef Py_ssize_t times_null, headers_null
    cdef int64_t last_offset

    def __init__(self, wanted, int64_t row_bytes):
        self.row_bytes = row_bytes
        self.wants_key, self.wants_value = "key" in wanted, "value" in wanted
        self.wants_offset, self.wants_next = "offset" in wanted, "next_offset" in wanted
        self.wants_time, self.wants_type = "timestamp_ms" in wanted, "timestamp_type" in wanted
        self.wants_headers, self.wants_index = "headers" in wanted, "entry_index" in wanted

    def __dealloc__(self):
        free_bytes(&self.keys)
        free_bytes(&self.values)
        free_bytes(&self.header_keys)
        free_bytes(&self.header_values)
        PyMem_RawFree(self.offsets.data)
        PyMem_RawFree(self.times.data)
        PyMem_RawFree(self.times_valid.data)
        PyMem_RawFree(self.types.data)
        PyMem_RawFree(self.header_ends.data)
        PyMem_RawFree(self.headers_valid.data)
        PyMem_RawFree(self.indexes.data)
        PyMem_RawFree(self.next_offsets.data)

    cdef void expect(self, int64_t size) noexcept nogil:
        """Make room for values of so many bytes at once, if there is memory: a block that grows is copied."""
        if self.wants_value and self.values.count == 0:
            reserve(&self.values.data, size)

    cdef int64_t size_of(self, const Row *row) noexcept nogil:
        """Return the size of a row."""
        cdef int64_t size = self.row_bytes
        if row.key_bytes > 0:
            size += row.key_bytes
        if row.value_bytes > 0:
            size += row.value_bytes
        return size + row.header_bytes

    cdef bint push_row(self, const Row *row) noexcept nogil:
        """Add a row with headers that are sound; False if there is no memory."""
        if self.wants_key and not push_bytes(&self.keys, row.key, row.key_bytes):
            return False
        if self.wants_value and not push_bytes(&self.values, row.value, row.value_bytes):
            return False
        if self.wants_offset and not push_int64(&self.offsets, row.offset):
            return False
        if self.wants_next and not push_int64(&self.next_offsets, row.next_offset):
            return False
        if self.wants_index and not push_int32(&self.indexes, row.entry_index):
            return False
        if self.wants_time:
            if not push_bit(&self.times_valid, self.count, row.time_type >= 0):
                return False
            if not push_int64(&self.times, row.time if row.time_type >= 0 else 0):
                return False
            self.times_null += row.time_type < 0
        if self.wants_type and not push_int32(&self.types, row.time_type):
            return False
        if self.wants_headers and not self.push_headers(row):
            return False
        self.last_offset = row.offset
        self.count += 1
        self.size_bytes += self.size_of(row)
        return True

    cdef bint push_headers(self, const Row *row) noexcept nogil:
        cdef const uint8_t *at = row.headers_at
        cdef int64_t size = 0, number
        if self.count == 0 and not push_int32(&self.header_ends, 0):
            return False
        for number in range(row.headers):
            read_varint(&at, row.end, &size)
            if not push_bytes(&self.header_keys, at, size):
                return False
            at += size
            read_varint(&at, row.end, &size)
            if not push_bytes(&self.header_values, at, size):
                return False
            if size > 0:
                at += size
        self.headers_null += row.headers == 0
        if not push_bit(&self.headers_valid, self.count, row.headers > 0):
            return False
        return push_int32(&self.header_ends, <int32_t>self.header_keys.count)

    def add(self, key, value, int64_t offset, timestamp_ms, int32_t timestamp_type, headers, int64_t size_bytes,
            int32_t entry_index=0, int64_t next_offset=0):
        """Add one row that counts `size_bytes`."""
        cdef Row row
        row.offset, row.next_offset, row.entry_index = offset, next_offset, entry_index
        row.time_type = timestamp_type
        row.time = 0 if timestamp_ms is None else timestamp_ms
        row.key_bytes = -1 if key is None else len(key)
        row.value_bytes = -1 if value is None else len(value)
        row.key = row.value = NULL
        if key is not None:
            row.key = <const uint8_t *><const char *>key
        if value is not None:
            row.value = <const uint8_t *><const char *>value
        row.headers = row.header_bytes = 0
        cdef int64_t before = self.size_bytes
        cdef bint wants_headers = self.wants_headers
        self.wants_headers = False
        cdef bint is_done = self.push_row(&row)
        self.wants_headers = wants_headers
        if not is_done or (wants_headers and not self.push_header_objects(headers)):
            raise MemoryError
        self.size_bytes = before + size_bytes

    cdef bint push_header_objects(self, headers) except -1:
        cdef Py_ssize_t index = self.count - 1
        if index == 0 and not push_int32(&self.header_ends, 0):
            return False
        for key, value in headers:
            encoded = key.encode()
            if not push_bytes(&self.header_keys, <const uint8_t *><const char *>encoded, len(encoded)):
                return False
            if value is None:
                if not push_bytes(&self.header_values, NULL, -1):
                    return False
            elif not push_bytes(&self.header_values, <const uint8_t *><const char *>value, len(value)):
                return False
        self.headers_null += len(headers) == 0
        if not push_bit(&self.headers_valid, index, len(headers) > 0):
            return False
        return push_int32(&self.header_ends, <int32_t>self.header_keys.count)

    def close_entry(self, int64_t offset, int64_t end):
        """Give the last row the end of its entry, if it is one of the entry at `offset`."""
        if self.count and self.last_offset == offset and self.wants_next:
            memcpy(self.next_offsets.data + self.next_offsets.size - sizeof(end), &end, sizeof(end))

    def take(self):
        """Return number of rows and the buffers of each column that is wanted, by name; nothing is left."""
        count = self.count
        columns = {}
        if self.wants_key:
            columns["key"] = taken_bytes(&self.keys)
        if self.wants_value:
            columns["value"] = taken_bytes(&self.values)
        if self.wants_offset:
            columns["offset"] = taken(&self.offsets)
        if self.wants_next:
            columns["next_offset"] = taken(&self.next_offsets)
        if self.wants_index:
            columns["entry_index"] = taken(&self.indexes)
        if self.wants_time:
            columns["timestamp_ms"] = self.times_null, taken(&self.times_valid), taken(&self.times)
        if self.wants_type:
            columns["timestamp_type"] = taken(&self.types)
        if self.wants_headers:
            columns["headers"] = (
                self.headers_null, taken(&self.headers_valid), taken(&self.header_ends),
                taken_bytes(&self.header_keys), taken_bytes(&self.header_values),
            )
        self.count = self.size_bytes = self.times_null = self.headers_null = 0
        return count, columns
