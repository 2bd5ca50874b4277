# Messages out of the message sets of Kafka 0.7, and of those of magic 0 and 1.

cdef enum:
    ENTRY_OVERHEAD = 12
    SMALLEST_OF_MAGIC_0 = 14
    SMALLEST_OF_MAGIC_1 = 22
    CODEC = 7
    ENTRY_OVERHEAD_07 = 4
    CRC_BYTES = 4


cdef class EntryRows(Run):
    """The uncompressed messages of a message set of magic 0 and 1.

    Args:
        level: The `Level`; its place is set when the run ends.
    """

    cdef object level
    cdef const uint8_t *end
    cdef int64_t base, floor, limit, append_time
    cdef bint has_append_time
    cdef int magic

    def __init__(self, level, topic, partition):
        base, floor = level.base, level.floor
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

    def __next__(self):
        cdef const uint8_t *at = self.at
        cdef const uint8_t *end
        cdef const uint8_t *key
        cdef const uint8_t *value
        cdef int64_t offset, size, key_bytes, value_bytes, time = -1
        cdef int magic
        if not self.has_view:
            raise StopIteration
        while self.end - at >= ENTRY_OVERHEAD:  # once: to leave from anywhere
            offset, size = big64(at), big32(at + 8)
            if size < SMALLEST_OF_MAGIC_0 or size > self.end - at - ENTRY_OVERHEAD:
                break
            end = at + ENTRY_OVERHEAD + size
            magic = at[16]
            if magic > 1 or self.magic not in (-1, magic) or at[17] & CODEC:
                break
            if offset + self.base < 0:
                break
            if offset != self.floor:
                # Behind a hole, the entry behind must agree.
                if self.end - end < ENTRY_OVERHEAD or not self.floor < offset < big64(end) < self.limit:
                    break
            if magic == 1 and (offset >= self.limit or size < SMALLEST_OF_MAGIC_1):
                break
            if crc32_of(at + 16, end - at - 16, 0) != <uint32_t>big32(at + 12):
                break
            key = at + 18
            if magic == 1:
                time = self.append_time if self.has_append_time else big64(key)
                key += 8
            key_bytes = big32(key)
            key += 4
            if key_bytes < -1 or key_bytes > end - key - 4:
                break
            value = key + key_bytes if key_bytes > 0 else key
            if end - value < 4:
                break
            value_bytes = big32(value)
            value += 4
            if value_bytes < -1 or (value_bytes if value_bytes > 0 else 0) != end - value:
                break
            self.at = end
            self.floor = offset + 1
            offset += self.base
            return filled(
                MESSAGE, self.topic, self.partition, offset, offset + 1, bytes_or_none(key, key_bytes),
                bytes_or_none(value, value_bytes), None if time == -1 else time,
            )
        self.level.position, self.level.floor = self.at - self.start, self.floor
        self.close()
        raise StopIteration


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


cdef inline bint is_sound_07(const uint8_t *at, int64_t head, int64_t size):
    """Return whether the payload of a message has the checksum that its head names."""
    cdef const uint8_t *payload = at + ENTRY_OVERHEAD_07 + head
    return crc32_of(payload, size - head, 0) == <uint32_t>big32(payload - CRC_BYTES)


cdef class EntryRows07(Run):
    """The uncompressed messages of a set of Kafka 0.7.

    Args:
        level: The outermost `Level`; its place is set when the run ends.
        base: Position of the first byte of the buffer in the log.
    """

    cdef object level
    cdef const uint8_t *end
    cdef int64_t base

    def __init__(self, level, int64_t base, topic, partition):
        self.end = self.open(level.buffer, level.position, topic, partition)
        self.level, self.base = level, base

    def __next__(self):
        cdef const uint8_t *at = self.at
        cdef int64_t head, size, offset
        if not self.has_view:
            raise StopIteration
        head = plain_07(at, self.end)
        if head:
            size = big32(at)
            if is_sound_07(at, head, size):
                self.at = at + ENTRY_OVERHEAD_07 + size
                offset = self.base + (at - self.start)
                return filled(
                    MESSAGE, self.topic, self.partition, offset, offset + ENTRY_OVERHEAD_07 + size, None,
                    bytes_or_none(at + ENTRY_OVERHEAD_07 + head, size - head), None,
                )
        self.level.position = self.at - self.start
        self.close()
        raise StopIteration


cdef class InsideRows07(Run):
    """The messages of a compressed entry of Kafka 0.7, all but the last before anything but a plain message.

    Args:
        level: The `Level` of the inside; its place is set when the run ends.
        entry: The outermost entry, an `OpenEntry`, as is the number of its next message.
    """

    cdef object level, entry, place
    cdef const uint8_t *end
    cdef int64_t index

    def __init__(self, level, entry, topic, partition):
        self.end = self.open(level.buffer, level.position, topic, partition)
        self.level, self.entry, self.place, self.index = level, entry, entry.start, entry.index

    def __next__(self):
        cdef const uint8_t *at = self.at
        cdef const uint8_t *behind
        cdef int64_t head, size
        if not self.has_view:
            raise StopIteration
        head = plain_07(at, self.end)
        if head:
            size = big32(at)
            behind = at + ENTRY_OVERHEAD_07 + size
            if is_followed_07(behind, self.end) and is_sound_07(at, head, size):
                message = filled(
                    ENTRY_MESSAGE, self.topic, self.partition, self.place, self.place, None,
                    bytes_or_none(at + ENTRY_OVERHEAD_07 + head, size - head), None,
                )
                fill_slot(message, INDEX_AT, self.index)
                self.at = behind
                self.index += 1
                return message
        self.level.position, self.entry.index = self.at - self.start, self.index
        self.close()
        raise StopIteration


cdef inline bint is_followed_07(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Return whether the head of a plain message stands there; whether that is whole is not looked at."""
    return end - at >= ENTRY_OVERHEAD_07 + 2 and (at[4] == 0 or at[4] == 1 and at[5] == 0)
