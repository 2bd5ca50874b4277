# Messages out of record batches (magic 2).

cdef extern from *:
    """
    #define added_overflows(a, b, to) __builtin_add_overflow((int64_t)(a), (int64_t)(b), (int64_t *)(to))
    """
    bint added_overflows(int64_t a, int64_t b, int64_t *to) nogil

cdef enum:
    HEAD_BYTES = 61
    MAGIC_AT = 16
    CRC_AT = 17
    CRC_BODY_AT = 21
    OVERHEAD = 12
    SMALLEST_RECORD = 6  # without its length
    CODEC_OR_CONTROL = 7 | 32
    LOG_APPEND_TIME = 8
    IS_TRANSACTIONAL = 16
    MOST_HEADERS = 64  # records with more are read by the decoder in Python, with its limits

cdef int64_t LARGEST = 1 << 62
"""Base offsets and times from there on are left to the decoder in Python, as sums of them may not fit into 64 bits."""


cdef struct Fields:
    int64_t delta
    int64_t stamp
    int64_t key_bytes
    int64_t value_bytes
    int64_t headers
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers_at
    const uint8_t *end


cdef bint read_fields(const uint8_t *at, const uint8_t *batch_end, Fields *record) noexcept nogil:
    """Read where the fields of a record are; False if it is wrong or must be read exactly. Headers are not checked."""
    cdef int64_t size
    if not read_varint(&at, batch_end, &size) or size < SMALLEST_RECORD or size > batch_end - at:
        return False
    cdef const uint8_t *end = at + size
    record.end = end
    at += 1  # attributes, which mean nothing so far
    if at[0] < 0x80:
        record.stamp = (at[0] >> 1) ^ -<int64_t>(at[0] & 1)
        at += 1
    elif not read_long(&at, end, 64, &record.stamp):
        return False
    if not read_varint(&at, end, &record.delta) or not read_varint(&at, end, &record.key_bytes):
        return False
    record.key = at
    if record.key_bytes > 0:
        if record.key_bytes > end - at:
            return False
        at += record.key_bytes
    elif record.key_bytes < -1:
        return False
    if not read_varint(&at, end, &record.value_bytes):
        return False
    record.value = at
    if record.value_bytes > 0:
        if record.value_bytes > end - at:
            return False
        at += record.value_bytes
    elif record.value_bytes < -1:
        return False
    if not read_varint(&at, end, &record.headers):
        return False
    record.headers_at = at
    return at == end if record.headers == 0 else 0 < record.headers <= MOST_HEADERS


cdef tuple read_headers(const uint8_t *at, const uint8_t *end, int64_t count):
    """Return the headers of a record; None if they are wrong."""
    cdef int64_t size
    cdef const uint8_t *key
    cdef int64_t key_bytes
    headers = []
    for _ in range(count):
        if not read_varint(&at, end, &key_bytes) or key_bytes < 0 or key_bytes > end - at:
            return None
        key = at
        at += key_bytes
        if not read_varint(&at, end, &size) or size < -1 or size > end - at:
            return None
        headers.append((key[:key_bytes].decode("utf-8", "replace"), bytes_or_none(at, size)))
        if size > 0:
            at += size
    return tuple(headers) if at == end else None


cdef class RecordRows(Run):
    """The messages of an open batch, and of the plain batches that follow on it.

    Args:
        reading: The `BatchReading`; its place is set when the run ends.
        batch: The batch that is open there, as is its place.
        start_offset: Messages before it are passed by.
    """

    cdef object reading, batch
    cdef const uint8_t *end
    cdef const uint8_t *buffer_end
    cdef int64_t base, floor, last_delta, base_time, append_time, start_offset, limit
    cdef int64_t index, count
    cdef bint has_append_time, is_plain, has_no_aborted, has_moved

    def __init__(self, reading, batch, topic, partition, int64_t start_offset):
        self.buffer_end = self.open(batch.data, batch.position, topic, partition)
        self.reading, self.batch = reading, batch
        self.end = self.start + <Py_ssize_t>batch.end
        if self.end > self.buffer_end:
            raise ValueError(f"the batch ends at {batch.end}, the buffer at {self.view.len}")
        self.base, self.floor, self.last_delta = batch.base, batch.floor, batch.last_delta
        self.index, self.count = batch.index, batch.count
        self.base_time = batch.base_time
        append_time = batch.append_time
        self.has_append_time = append_time is not None
        if self.has_append_time:
            self.append_time = append_time
        self.is_plain = not batch.is_inflated
        self.has_no_aborted = reading.has_no_aborted()
        self.start_offset = start_offset
        self.limit = min(reading.level.limit, LARGEST)
        self.has_moved = False

    def __next__(self):
        cdef Fields record
        cdef int64_t offset, time
        cdef tuple headers
        if not self.has_view:
            raise StopIteration
        while True:
            if self.index >= self.count or self.at >= self.end:
                if self.index == self.count and self.at == self.end and self.is_plain and self.move_on():
                    continue
                break
            if not read_fields(self.at, self.end, &record):
                break
            if not self.floor <= record.delta <= self.last_delta:
                break
            if added_overflows(self.base_time, record.stamp, &time):
                break
            if self.has_append_time:
                time = self.append_time
            headers = None
            offset = self.base + record.delta
            if record.headers and offset >= self.start_offset:
                headers = read_headers(record.headers_at, record.end, record.headers)
                if headers is None:
                    break
            elif record.headers:
                break  # headers before the first message that is wanted have to be checked, too
            self.at = record.end
            self.index += 1
            self.floor = record.delta + 1
            if offset >= self.start_offset:
                return self.message(&record, offset, time, headers)
        self.leave()
        raise StopIteration

    cdef object message(self, Fields *record, int64_t offset, int64_t time, tuple headers):
        message = filled(
            MESSAGE if headers is None else HEADER_MESSAGE, self.topic, self.partition, offset, offset + 1,
            bytes_or_none(record.key, record.key_bytes), bytes_or_none(record.value, record.value_bytes),
            None if time == -1 else time,
        )
        if headers is not None:
            fill_slot(message, HEADERS_AT, headers)
        return message

    cdef bint move_on(self):
        """Move to the next batch if it is plain, sound, and follows on this one; the rules are those of BatchReading."""
        cdef const uint8_t *head = self.end
        if self.buffer_end - head < HEAD_BYTES:
            return False
        cdef int64_t base = big64(head), size = big32(head + 8)
        cdef int64_t floor = self.base + self.last_delta + 1
        cdef int attributes = big16(head + 21)
        cdef int64_t last_delta = big32(head + 23), base_time = big64(head + 27), count = big32(head + 57)
        if head[MAGIC_AT] != 2 or size < HEAD_BYTES - OVERHEAD or size > self.buffer_end - head - OVERHEAD:
            return False
        if not 0 < base < LARGEST or not 0 < count <= last_delta + 1 or not -LARGEST < base_time < LARGEST:
            return False
        if attributes & CODEC_OR_CONTROL or (attributes & IS_TRANSACTIONAL and not self.has_no_aborted):
            return False
        cdef const uint8_t *end = head + OVERHEAD + size
        if base != floor:
            # Behind a hole, the entry behind must agree.
            if base < floor or self.buffer_end - end < OVERHEAD or not base + last_delta < big64(end) < self.limit:
                return False
        if crc32c_of(head + CRC_BODY_AT, end - head - CRC_BODY_AT, 0) != <uint32_t>big32(head + CRC_AT):
            return False
        self.has_append_time = (attributes & LOG_APPEND_TIME) != 0
        self.append_time = big64(head + 35)
        self.base, self.last_delta, self.base_time, self.count = base, last_delta, base_time, count
        self.at, self.end = head + HEAD_BYTES, end
        self.index = self.floor = 0
        self.has_moved = True
        return True

    cdef leave(self):
        """Write the place back, and let go of the buffer."""
        batch = self.batch
        if self.has_moved:
            self.reading.move_to(
                self.end - self.start, self.base, self.last_delta, self.count, self.base_time,
                self.append_time if self.has_append_time else None,
            )
        batch.position = self.at - self.start
        batch.index, batch.floor = self.index, self.floor
        self.close()
