# Numbers in bytes.

cdef inline uint16_t big16(const uint8_t *at) noexcept nogil:
    return <uint16_t>(at[0] << 8 | at[1])


cdef inline int32_t big32(const uint8_t *at) noexcept nogil:
    return <int32_t>(<uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3])


cdef inline int64_t big64(const uint8_t *at) noexcept nogil:
    return <int64_t>(<uint64_t><uint32_t>big32(at) << 32 | <uint32_t>big32(at + 4))


cdef bint read_long(const uint8_t **at, const uint8_t *end, int bits, int64_t *number) noexcept nogil:
    """Read a zigzag varint of up to 32 or 64 bits and move past it; False if it does not fit, or ends after `end`."""
    cdef uint64_t found = 0
    cdef int shift = 0
    cdef const uint8_t *here = at[0]
    while here < end and shift < bits:
        if shift == 63 and here[0] > 1 or shift == 28 and bits == 32 and here[0] > 15:
            return False
        found |= <uint64_t>(here[0] & 0x7F) << shift
        if here[0] < 0x80:
            at[0] = here + 1
            number[0] = <int64_t>(found >> 1) ^ -<int64_t>(found & 1)
            return True
        shift += 7
        here += 1
    return False


cdef inline bint read_varint(const uint8_t **at, const uint8_t *end, int64_t *number) noexcept nogil:
    if at[0] < end and at[0][0] < 0x80:
        number[0] = (at[0][0] >> 1) ^ -<int64_t>(at[0][0] & 1)
        at[0] += 1
        return True
    return read_long(at, end, 32, number)
