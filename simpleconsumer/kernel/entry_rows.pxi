# Messages out of the message sets of Kafka 0.7, and of those of magic 0 and 1.

cdef enum:
    ENTRY_OVERHEAD = 12
    SMALLEST_OF_MAGIC_0 = 14
    SMALLEST_OF_MAGIC_1 = 22
    CODEC = 7
    ENTRY_OVERHEAD_07 = 4
    CRC_BYTES = 4

cdef int64_t REACHED = INT64_MIN
"""The start offset once the first message was found."""


cdef class EntryRows(Run):
    """The uncompressed messages of a message set of magic 0 and 1.

    Args:
        level: The `Level`; its place is set when the run ends.
        start_offset: The first message from there on is searched for, and all after it are wanted.

    Attributes:
        has_reached: Whether that message was found.
    """

    cdef object level
    cdef const uint8_t *end
    cdef int64_t base, floor, limit, append_time
    cdef bint has_append_time
    cdef int magic

    def __init__(self, level, topic, partition, start_offset):
        base, floor = level.base, level.floor
        self.start_offset = max(start_offset, REACHED)
        if not -LARGEST < base < LARGEST or not -LARGEST < floor < LARGEST:
            return  # an empty run: sums of them may not fit into 64 bits
        self.end = self.open(level.buffer, level.position, topic, partition)
        self.level = level
        self.base, self.floor, self.limit = base, floor, min(level.limit, LARGEST)
        self.magic = -1 if level.magic is None else level.magic
        append_time = level.timestamp_ms
        self.has_append_time = append_time is not None
        if self.has_append_time:
            self.append_time = append_time

    cdef bint next_row(self, Row *row) noexcept nogil:
        while self.read_entry(row):
            if row.offset >= self.start_offset:
                self.start_offset = REACHED
                return True
        return False

    cdef bint read_entry(self, Row *row) noexcept nogil:
        cdef const uint8_t *at = self.at
        cdef const uint8_t *end
        cdef int64_t offset, size
        cdef int magic, attributes
        if self.end - at < ENTRY_OVERHEAD:
            return False
        offset, size = big64(at), big32(at + 8)
        if size < SMALLEST_OF_MAGIC_0 or size > self.end - at - ENTRY_OVERHEAD:
            return False
        end = at + ENTRY_OVERHEAD + size
        magic, attributes = at[16], at[17]
        if magic > 1 or (self.magic >= 0 and magic != self.magic) or attributes & CODEC:
            return False
        if offset + self.base < 0:
            return False
        if offset != self.floor:
            # After a hole, the next entry must agree.
            if self.end - end < ENTRY_OVERHEAD or not self.floor < offset < big64(end) < self.limit:
                return False
        if magic == 1 and (offset >= self.limit or size < SMALLEST_OF_MAGIC_1):
            return False
        if crc32_checksum(at + 16, end - at - 16, 0) != <uint32_t>big32(at + 12):
            return False
        at += 18
        row.time, row.time_type = -1, -1
        if magic == 1:
            row.time = self.append_time if self.has_append_time else big64(at)
            if row.time != -1:
                row.time_type = self.has_append_time or (attributes & LOG_APPEND_TIME) != 0
            at += 8
        row.key_bytes = big32(at)
        row.key = at + 4
        if row.key_bytes < -1 or row.key_bytes > end - row.key - 4:
            return False
        at = row.key + (row.key_bytes if row.key_bytes > 0 else 0)
        if end - at < 4:
            return False
        row.value_bytes = big32(at)
        row.value = at + 4
        if row.value_bytes < -1 or (row.value_bytes if row.value_bytes > 0 else 0) != end - row.value:
            return False
        row.headers = row.header_bytes = 0
        row.offset = offset + self.base
        row.next_offset = row.offset + 1
        self.at = end
        self.floor = offset + 1
        return True

    @property
    def has_reached(self):
        return self.start_offset == REACHED

    cdef leave(self):
        self.level.position, self.level.floor = self.at - self.start, self.floor


cdef inline int64_t plain_07(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Return the bytes of the head of a whole plain message of Kafka 0.7, without its size; 0 if there is none."""
    cdef int64_t size
    if end - at < ENTRY_OVERHEAD_07 + 2:
        return 0
    size = big32(at)
    if size > end - at - ENTRY_OVERHEAD_07:
        return 0
    if at[4] == 0:
        return 5 if size >= 5 else 0
    return 6 if at[4] == 1 and at[5] == 0 and size >= 6 else 0


cdef bint read_07(const uint8_t *at, const uint8_t *end, Row *row) noexcept nogil:
    """Read the payload of a plain message, and where the message ends; False if it must be read exactly."""
    cdef int64_t head = plain_07(at, end)
    if not head:
        return False
    row.end = at + ENTRY_OVERHEAD_07 + big32(at)
    row.key_bytes = -1
    row.value = at + ENTRY_OVERHEAD_07 + head
    row.value_bytes = row.end - row.value
    row.time_type, row.headers, row.header_bytes = -1, 0, 0
    return crc32_checksum(row.value, row.value_bytes, 0) == <uint32_t>big32(row.value - CRC_BYTES)


cdef class EntryRows07(Run):
    """The uncompressed messages of a set of Kafka 0.7.

    Args:
        level: The outermost `Level`; its place is set when the run ends.
        base: Position of the first byte of the buffer in the log.
    """

    cdef object level
    cdef const uint8_t *end
    cdef int64_t base

    def __init__(self, level, base, topic, partition):
        if base > INT64_MAX:
            return  # no position follows it
        self.end = self.open(level.buffer, level.position, topic, partition)
        self.level, self.base = level, base

    cdef bint next_row(self, Row *row) noexcept nogil:
        if not read_07(self.at, self.end, row):
            return False
        row.offset, row.next_offset = self.base + (self.at - self.start), self.base + (row.end - self.start)
        row.entry_index = 0
        self.at = row.end
        return True

    cdef leave(self):
        self.level.position = self.at - self.start


cdef class InsideRows07(Run):
    """The messages of a compressed entry of Kafka 0.7, all but the last before anything but a plain message.

    Args:
        level: The `Level` of the inside; its place is set when the run ends.
        entry: The outermost entry, an `OpenEntry`, as is the number of its next message.
        first: Messages of the entry with lower numbers are passed by.
    """

    cdef object level, entry
    cdef const uint8_t *end
    cdef int64_t place
    cdef int32_t index, first

    def __init__(self, level, entry, topic, partition, int32_t first):
        self.end = self.open(level.buffer, level.position, topic, partition)
        self.level, self.entry, self.place, self.index = level, entry, entry.start, entry.index
        self.first = first

    cdef bint next_row(self, Row *row) noexcept nogil:
        while read_07(self.at, self.end, row):
            # Whether the next message is whole is not looked at.
            if self.end - row.end < ENTRY_OVERHEAD_07 + 2 or row.end[4] > 1 or (row.end[4] == 1 and row.end[5]):
                return False
            self.at = row.end
            row.offset = row.next_offset = self.place
            row.entry_index = self.index
            self.index += 1
            if row.entry_index >= self.first:
                return True
        return False

    cdef object message(self, const Row *row):
        message = filled(
            ENTRY_MESSAGE, self.topic, self.partition, row.offset, row.next_offset, None,
            bytes_or_none(row.value, row.value_bytes), None,
        )
        fill_slot(message, INDEX_AT, row.entry_index)
        return message

    cdef leave(self):
        self.level.position, self.entry.index = self.at - self.start, self.index
