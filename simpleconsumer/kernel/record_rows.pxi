# Messages out of record batches (magic 2).

cdef extern from *:
    """
    #define added_overflows(a, b, to) __builtin_add_overflow((int64_t)(a), (int64_t)(b), (int64_t *)(to))
    """
    bint added_overflows(int64_t a, int64_t b, int64_t *to) nogil

cdef enum:
    HEAD_BYTES = 61
    EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    CRC_BODY_AT = 21
    OVERHEAD = 12
    SMALLEST_RECORD = 6  # without its length
    HEADER_BYTES = 2  # of the lengths of key and value
    CODEC_OR_CONTROL = 7 | 32
    LOG_APPEND_TIME = 8
    IS_TRANSACTIONAL = 16
    MOST_HEADERS = 64  # records with more are read by the decoder in Python, with its limits

cdef int64_t LARGEST = 1 << 62
"""Base offsets and times from there on are left to the decoder in Python, as sums of them may not fit into 64 bits."""


cdef bint read_record(const uint8_t *at, const uint8_t *batch_end, Row *row) noexcept nogil:
    """Read the fields of a record, difference of offsets and of times as found; False if it must be read exactly."""
    cdef int64_t size
    if not read_varint(&at, batch_end, &size) or size < SMALLEST_RECORD or size > batch_end - at:
        return False
    cdef const uint8_t *end = at + size
    row.end = end
    at += 1  # attributes, which mean nothing so far
    if at[0] < 0x80:
        row.time = (at[0] >> 1) ^ -<int64_t>(at[0] & 1)
        at += 1
    elif not read_long(&at, end, 64, &row.time):
        return False
    if not read_varint(&at, end, &row.offset):
        return False
    if not read_bytes(&at, end, &row.key, &row.key_bytes) or not read_bytes(&at, end, &row.value, &row.value_bytes):
        return False
    if not read_varint(&at, end, &row.headers):
        return False
    row.headers_at, row.header_bytes = at, 0
    return at == end if row.headers == 0 else 0 < row.headers <= MOST_HEADERS


cdef inline bint read_bytes(
    const uint8_t **at, const uint8_t *end, const uint8_t **found, int64_t *size
) noexcept nogil:
    """Read a length and find the bytes after it; False if they do not fit. Null has the length -1."""
    if not read_varint(at, end, size) or size[0] < -1 or size[0] > end - at[0]:
        return False
    found[0] = at[0]
    if size[0] > 0:
        at[0] += size[0]
    return True


cdef bint are_sound_headers(Row *row, bint are_ascii) noexcept nogil:
    """Return whether headers fill their record, have keys and, if that is asked for, keys of ASCII alone."""
    cdef const uint8_t *at = row.headers_at
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef int64_t key_bytes, value_bytes, number
    for number in range(row.headers):
        if not read_bytes(&at, row.end, &key, &key_bytes) or key_bytes < 0:
            return False
        if not read_bytes(&at, row.end, &value, &value_bytes):
            return False
        row.header_bytes += HEADER_BYTES + key_bytes + (value_bytes if value_bytes > 0 else 0)
        while are_ascii and key_bytes > 0:
            key_bytes -= 1
            if key[key_bytes] >= 0x80:
                return False
    return at == row.end


cdef tuple headers_of(const Row *row):
    """Return sound headers as a message has them."""
    cdef const uint8_t *at = row.headers_at
    cdef const uint8_t *key = NULL
    cdef const uint8_t *value = NULL
    cdef int64_t key_bytes = 0, value_bytes = 0
    headers = []
    for _ in range(row.headers):
        read_bytes(&at, row.end, &key, &key_bytes)
        read_bytes(&at, row.end, &value, &value_bytes)
        headers.append((key[:key_bytes].decode("utf-8", "replace"), bytes_or_none(value, value_bytes)))
    return tuple(headers)


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
    cdef int64_t base, floor, last_delta, base_time, append_time, limit
    cdef int64_t index, count, headers_left, most_headers
    cdef bint has_append_time, is_plain, has_no_aborted, has_moved
    cdef int32_t epoch

    def __init__(self, reading, batch, topic, partition, int64_t start_offset):
        self.buffer_end = self.open(batch.data, batch.position, topic, partition)
        self.reading, self.batch = reading, batch
        self.end = self.start + <Py_ssize_t>batch.end
        if self.end > self.buffer_end:
            raise ValueError(f"the batch ends at {batch.end}, the buffer at {self.view.len}")
        self.base, self.floor, self.last_delta = batch.base, batch.floor, batch.last_delta
        self.index, self.count = batch.index, batch.count
        self.headers_left, self.most_headers = batch.headers_left, reading.most_headers
        self.base_time, self.epoch = batch.base_time, batch.leader_epoch
        append_time = batch.append_time
        self.has_append_time = append_time is not None
        if self.has_append_time:
            self.append_time = append_time
        self.is_plain = not batch.is_inflated
        self.has_no_aborted = reading.has_no_aborted()
        self.start_offset = start_offset
        self.limit = min(reading.level.limit, LARGEST)

    cdef bint next_row(self, Row *row) noexcept nogil:
        while True:
            if self.index >= self.count or self.at >= self.end:
                if self.index == self.count and self.at == self.end and self.is_plain and self.move_on():
                    continue
                return False
            if not read_record(self.at, self.end, row) or not self.floor <= row.offset <= self.last_delta:
                return False
            if row.headers > self.headers_left or (row.headers and not are_sound_headers(row, self.ascii_headers)):
                return False
            if added_overflows(self.base_time, row.time, &row.time):
                return False
            self.at = row.end
            self.index += 1
            self.headers_left -= row.headers
            self.floor = row.offset + 1
            row.offset += self.base
            if row.offset < self.start_offset:
                continue
            row.next_offset = row.offset + 1
            if self.has_append_time:
                row.time = self.append_time
            row.time_type = -1 if row.time == -1 else self.has_append_time
            return True

    cdef object message(self, const Row *row):
        if not row.headers:
            return Run.message(self, row)
        message = filled(
            HEADER_MESSAGE, self.topic, self.partition, row.offset, row.next_offset,
            bytes_or_none(row.key, row.key_bytes), bytes_or_none(row.value, row.value_bytes),
            None if row.time_type < 0 else row.time,
        )
        fill_slot(message, HEADERS_AT, headers_of(row))
        return message

    cdef bint move_on(self) noexcept nogil:
        """Move to the next batch if it is plain, sound, and follows on this one; else BatchReading looks at it."""
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
            # After a hole, the next entry must agree.
            if base < floor or self.buffer_end - end < OVERHEAD or not base + last_delta < big64(end) < self.limit:
                return False
        if crc32c_checksum(head + CRC_BODY_AT, end - head - CRC_BODY_AT, 0) != <uint32_t>big32(head + CRC_AT):
            return False
        self.has_append_time = (attributes & LOG_APPEND_TIME) != 0
        self.append_time, self.epoch = big64(head + 35), big32(head + EPOCH_AT)
        self.base, self.last_delta, self.base_time, self.count = base, last_delta, base_time, count
        self.at, self.end = head + HEAD_BYTES, end
        self.index = self.floor = 0
        self.headers_left = self.most_headers
        self.has_moved = True
        return True

    cdef leave(self):
        batch = self.batch
        if self.has_moved:
            self.reading.move_to(
                self.end - self.start, self.base, self.last_delta, self.count, self.base_time,
                self.append_time if self.has_append_time else None, self.epoch,
            )
        batch.position = self.at - self.start
        batch.index, batch.floor, batch.headers_left = self.index, self.floor, self.headers_left
