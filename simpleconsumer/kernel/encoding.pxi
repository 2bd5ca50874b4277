# Messages as bytes: record batches, and message sets of every older format; and the hashes that choose partitions.
#
# Keys and values are found first, with the interpreter held; then all bytes are written at once while other threads
# run. What has another form than is written here gives None, and is encoded in Python.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.string cimport memcpy

cdef enum:
    MOST_ROWS = 1 << 24  # more are encoded in Python; their sizes could be added up here no longer
    WRITTEN_MAGIC = 2
    NO_LEADER_EPOCH = -1
    ENTRY_HEAD_BYTES = 16  # offset, size and checksum of an entry

cdef int64_t MOST_BYTES = INT32_MAX
cdef double FARTHEST_MS = 1e18  # the difference of two times fits


cdef struct Sent:
    # A message that is to be sent; sizes of -1 mean null.
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers  # with their count
    int64_t key_bytes, value_bytes, header_bytes
    int64_t time
    int64_t body_bytes


cdef inline bint find_bytes(object part, const uint8_t **at, int64_t *size):
    """Find the bytes of a key or value; False if it is neither bytes nor None."""
    if part is None:
        at[0], size[0] = NULL, -1
        return True
    if not PyBytes_Check(part):
        return False
    at[0], size[0] = <const uint8_t *>PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part)
    return True


cdef bint find_pair(object row, Sent *sent):
    """Find key and value of a row: a value, or a tuple that begins with key and value."""
    sent.headers, sent.header_bytes = NULL, 0
    if not PyTuple_CheckExact(row):
        sent.key, sent.key_bytes = NULL, -1
        return find_bytes(row, &sent.value, &sent.value_bytes)
    if PyTuple_GET_SIZE(row) < 2:
        return False
    return (
        find_bytes(<object>PyTuple_GET_ITEM(row, 0), &sent.key, &sent.key_bytes)
        and find_bytes(<object>PyTuple_GET_ITEM(row, 1), &sent.value, &sent.value_bytes)
    )


cdef bint find_time(object given, int64_t *time) except? False:
    """Take the time of a row that has its own; False if it is no number, or far away."""
    cdef int is_too_large = 0
    cdef int64_t found
    if not PyLong_CheckExact(given):
        return False
    found = PyLong_AsLongLongAndOverflow(given, &is_too_large)
    if is_too_large or not -FARTHEST_MS < <double>found < FARTHEST_MS:
        return False
    time[0] = found
    return True


cdef inline uint8_t *put_big(uint8_t *at, uint64_t number, int size) noexcept nogil:
    """Write the lowest bytes of a number, the highest of them first; return the byte after it."""
    cdef int index
    for index in range(size):
        at[index] = <uint8_t>(number >> 8 * (size - 1 - index))
    return at + size


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return <uint64_t>number << 1 ^ <uint64_t>(number >> 63)


cdef inline int varint_bytes(int64_t number) noexcept nogil:
    cdef uint64_t rest = zigzag(number) >> 7
    cdef int size = 1
    while rest:
        rest >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *at, int64_t number) noexcept nogil:
    cdef uint64_t rest = zigzag(number)
    while rest > 0x7F:
        at[0] = <uint8_t>(rest | 0x80)
        at += 1
        rest >>= 7
    at[0] = <uint8_t>rest
    return at + 1


cdef inline uint8_t *put_bytes(uint8_t *at, const uint8_t *data, int64_t size) noexcept nogil:
    if size > 0:
        memcpy(at, data, size)
        return at + size
    return at


# -- record batches ----------------------------------------------------------------------------------------------------

cdef class Records:
    """The records of one batch, found and not written yet.

    Attributes:
        count: How many they are.
        size: The bytes that they take.
        first_time: The time of the first one, in ms since 1970.
        newest_time: The largest time.
    """

    cdef Sent *found
    cdef list held
    cdef readonly int64_t count, size, first_time, newest_time

    def __dealloc__(self):
        PyMem_RawFree(self.found)

    cdef bint find(self, runs, double clock_s, encode_headers) except -1:
        """Find all records; False if one has a form that is not written here."""
        cdef int64_t index, many, number = 0
        cdef double time_ms
        cdef Sent *sent
        self.held = [(tuple(rows), tuple(times)) for rows, times in runs]
        self.count = sum(len(each) for each, _ in self.held)
        if not 0 < self.count <= MOST_ROWS:
            return False
        self.found = <Sent *>PyMem_RawMalloc(self.count * sizeof(Sent))
        if self.found == NULL:
            raise MemoryError
        for each, times in list(self.held):
            many = len(each)
            if len(times) != 1 and len(times) != many:
                return False
            for index in range(many):
                sent = &self.found[number]
                row = <object>PyTuple_GET_ITEM(each, index)
                time = <object>PyTuple_GET_ITEM(times, index if len(times) > 1 else 0)
                if not PyFloat_CheckExact(time) or not PyTuple_CheckExact(row) or not find_pair(row, sent):
                    return False
                time_ms = (clock_s + PyFloat_AS_DOUBLE(time)) * 1000
                if not -FARTHEST_MS < time_ms < FARTHEST_MS:  # nor a number that is none
                    return False
                sent.time = <int64_t>time_ms
                if PyTuple_GET_SIZE(row) > 2:
                    if PyTuple_GET_SIZE(row) > 3 and not find_time(<object>PyTuple_GET_ITEM(row, 3), &sent.time):
                        return False
                    headers = <object>PyTuple_GET_ITEM(row, 2)
                    if type(headers) is tuple and not headers:
                        number += 1
                        continue
                    if encode_headers is None:
                        return False
                    headers = encode_headers(headers)
                    self.held.append(headers)
                    sent.headers, sent.header_bytes = <const uint8_t *>PyBytes_AS_STRING(headers), len(headers)
                number += 1
        self.measure()
        return self.size <= MOST_BYTES

    cdef void measure(self) noexcept:
        cdef int64_t number
        cdef Sent *sent
        self.first_time = self.newest_time = self.found[0].time
        for number in range(self.count):
            sent = &self.found[number]
            self.newest_time = max(self.newest_time, sent.time)
            sent.body_bytes = (
                1 + varint_bytes(sent.time - self.first_time) + varint_bytes(number) + varint_bytes(sent.key_bytes)
                + max(sent.key_bytes, 0) + varint_bytes(sent.value_bytes) + max(sent.value_bytes, 0)
                + (sent.header_bytes if sent.headers != NULL else 1)
            )
            self.size += varint_bytes(sent.body_bytes) + sent.body_bytes

    cdef void write(self, uint8_t *at) noexcept nogil:
        cdef int64_t number
        cdef Sent *sent
        for number in range(self.count):
            sent = &self.found[number]
            at = put_varint(at, sent.body_bytes)
            at[0] = 0  # attributes
            at = put_varint(at + 1, sent.time - self.first_time)
            at = put_varint(at, number)
            at = put_bytes(put_varint(at, sent.key_bytes), sent.key, sent.key_bytes)
            at = put_bytes(put_varint(at, sent.value_bytes), sent.value, sent.value_bytes)
            if sent.headers == NULL:
                at[0] = 0
                at += 1
            else:
                at = put_bytes(at, sent.headers, sent.header_bytes)


def record_batch(runs, double clock_s, int attributes, producer, encode_headers, compress, /):
    """Return a record batch; see `kafka011.record_encode`, which encodes the same in Python.

    Args:
        encode_headers: Returns count and headers of a record as bytes.
        compress: Returns records compressed; None for records that are not.
    """
    cdef uint8_t *at
    cdef uint8_t *body
    cdef int64_t size, producer_id
    cdef int epoch
    cdef int32_t sequence
    records = Records()
    if not records.find(runs, clock_s, encode_headers):
        return None
    producer_id, epoch, sequence = producer[0], producer[1], producer[2]
    inside = None
    size = records.size
    if compress is not None:
        plain = PyBytes_FromStringAndSize(NULL, size)
        at = <uint8_t *>PyBytes_AS_STRING(plain)
        with nogil:
            records.write(at)
        inside = compress(plain)
        size = len(inside)
        body = <uint8_t *>PyBytes_AS_STRING(inside)
    data = PyBytes_FromStringAndSize(NULL, HEAD_BYTES + size)
    at = <uint8_t *>PyBytes_AS_STRING(data)
    with nogil:
        put_big(at, 0, 8)
        put_big(at + 8, HEAD_BYTES - OVERHEAD + size, 4)
        put_big(at + 12, <uint64_t>NO_LEADER_EPOCH, 4)
        at[MAGIC_AT] = WRITTEN_MAGIC
        put_big(at + 21, attributes, 2)
        put_big(at + 23, records.count - 1, 4)
        put_big(at + 27, records.first_time, 8)
        put_big(at + 35, records.newest_time, 8)
        put_big(at + 43, producer_id, 8)
        put_big(at + 51, <uint64_t>epoch, 2)
        put_big(at + 53, <uint64_t>sequence, 4)
        put_big(at + 57, records.count, 4)
        if compress is None:
            records.write(at + HEAD_BYTES)
        else:
            memcpy(at + HEAD_BYTES, body, size)
        put_big(at + CRC_AT, crc32c_checksum(at + CRC_BODY_AT, HEAD_BYTES - CRC_BODY_AT + size, 0), 4)
    return data


# -- message sets ------------------------------------------------------------------------------------------------------

cdef Sent *found_pairs(list rows, int64_t overhead, int64_t *size) except? NULL:
    """Find keys and values of rows, and what their entries take; NULL if one has another form."""
    cdef Py_ssize_t index, count = len(rows)
    cdef Sent *found
    size[0] = 0
    if not 0 < count <= MOST_ROWS:
        return NULL
    found = <Sent *>PyMem_RawMalloc(count * sizeof(Sent))
    if found == NULL:
        raise MemoryError
    for index in range(count):
        row = rows[index]
        if not find_pair(row, &found[index]) or PyTuple_CheckExact(row) and PyTuple_GET_SIZE(row) != 2:
            size[0] = -1
            break
        found[index].body_bytes = overhead + max(found[index].key_bytes, 0) + max(found[index].value_bytes, 0)
        size[0] += found[index].body_bytes
    if not 0 <= size[0] <= MOST_BYTES:
        PyMem_RawFree(found)
        return NULL
    return found


cdef uint8_t *put_entry(uint8_t *at, Sent *sent, int64_t offset, int magic, int64_t time_ms) noexcept nogil:
    """Write a plain entry of `body_bytes` bytes; return the byte after it."""
    cdef uint8_t *end
    put_big(at, offset, 8)
    put_big(at + 8, sent.body_bytes - 12, 4)
    end = put_big(at + ENTRY_HEAD_BYTES, magic, 1)
    end = put_big(end, 0, 1)
    if magic == 1:
        end = put_big(end, time_ms, 8)
    end = put_bytes(put_big(end, sent.key_bytes, 4), sent.key, sent.key_bytes)
    end = put_bytes(put_big(end, sent.value_bytes, 4), sent.value, sent.value_bytes)
    put_big(at + 12, crc32_checksum(at + ENTRY_HEAD_BYTES, end - at - ENTRY_HEAD_BYTES, 0), 4)
    return end


def timed_message_set(runs, double clock_s, /):
    """Return plain entries of magic 1 with offsets from 0, and the newest time; see `kafka011.record_encode`."""
    cdef int64_t index, size = 0
    cdef uint8_t *at
    cdef Sent *sent
    records = Records()
    if not records.find(runs, clock_s, None):
        return None
    for index in range(records.count):
        sent = &records.found[index]
        sent.body_bytes = ENTRY_HEAD_BYTES + 18 + max(sent.key_bytes, 0) + max(sent.value_bytes, 0)
        size += sent.body_bytes
    if size > MOST_BYTES:
        return None
    data = PyBytes_FromStringAndSize(NULL, size)
    at = <uint8_t *>PyBytes_AS_STRING(data)
    with nogil:
        for index in range(records.count):
            at = put_entry(at, &records.found[index], index, 1, records.found[index].time)
    return data, records.newest_time


def message_set(list rows, int magic, int64_t first_offset, int64_t time_ms, /):
    """Return plain entries of magic 0 or 1 with offsets that count on; see `kafka08.message_encode`.

    Nothing but this call may have the list.
    """
    cdef Py_ssize_t index, count = len(rows)
    cdef int64_t size
    cdef uint8_t *at
    cdef int head = 10 if magic == 0 else 18  # magic, attributes, maybe the time, and both sizes
    cdef Sent *found = found_pairs(rows, ENTRY_HEAD_BYTES + head, &size)
    if found == NULL:
        return None
    try:
        data = PyBytes_FromStringAndSize(NULL, size)
        at = <uint8_t *>PyBytes_AS_STRING(data)
        with nogil:
            for index in range(count):
                at = put_entry(at, &found[index], first_offset + index, magic, time_ms)
    finally:
        PyMem_RawFree(found)
    return data


def message_set_07(list rows, int magic, /):
    """Return plain entries of Kafka 0.7; see `kafka07.message_encode`. Nothing but this call may have the list."""
    cdef Py_ssize_t index, count = len(rows)
    cdef int64_t size
    cdef uint8_t *at
    cdef uint32_t checksum
    cdef int head = 5 + magic  # magic, maybe attributes, and the checksum
    cdef Sent *found = found_pairs(rows, 4 + head, &size)
    if found == NULL:
        return None
    try:
        for index in range(count):
            if found[index].key_bytes >= 0 or found[index].value_bytes < 0:
                return None
        data = PyBytes_FromStringAndSize(NULL, size)
        at = <uint8_t *>PyBytes_AS_STRING(data)
        with nogil:
            for index in range(count):
                at = put_big(at, found[index].body_bytes - 4, 4)
                at = put_big(at, magic, 1)
                if magic == 1:
                    at = put_big(at, 0, 1)
                checksum = crc32_checksum(found[index].value, found[index].value_bytes, 0)
                at = put_bytes(put_big(at, checksum, 4), found[index].value, found[index].value_bytes)
    finally:
        PyMem_RawFree(found)
    return data


# -- hashes ------------------------------------------------------------------------------------------------------------

cdef enum:
    MURMUR_SEED = 0x9747B28C
    MURMUR_FACTOR = 0x5BD1E995


cdef uint32_t murmur2_of(const uint8_t *at, Py_ssize_t left) noexcept nogil:
    cdef uint32_t word, factor = <uint32_t>MURMUR_FACTOR, value = <uint32_t>MURMUR_SEED ^ <uint32_t>left
    while left >= 4:
        word = (at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24) * factor
        value = value * factor ^ (word ^ word >> 24) * factor
        at += 4
        left -= 4
    if left:
        word = 0
        while left:
            left -= 1
            word = word << 8 | at[left]
        value = (value ^ word) * factor
    value = (value ^ value >> 13) * factor
    return value ^ value >> 15


def murmur2(data, /):
    """Return Kafka's 32 bits of murmur2, unsigned."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return murmur2_of(<const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def array_hash(data, /):
    """Return `java.util.Arrays.hashCode(byte[])`, unsigned."""
    cdef Py_buffer view
    cdef Py_ssize_t index
    cdef uint32_t value = 1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        for index in range(view.len):
            value = 31 * value + <uint32_t><int32_t>(<const signed char *>view.buf)[index]
        return value
    finally:
        PyBuffer_Release(&view)


def string_hash(units, /):
    """Return `String.hashCode()` of UTF-16 units, the high byte first; unsigned."""
    cdef Py_buffer view
    cdef Py_ssize_t index
    cdef uint32_t value = 0
    PyObject_GetBuffer(units, &view, PyBUF_SIMPLE)
    try:
        for index in range(view.len // 2):
            value = 31 * value + big16(<const uint8_t *>view.buf + 2 * index)
        return value
    finally:
        PyBuffer_Release(&view)
