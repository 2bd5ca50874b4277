# What all runs share: numbers in bytes, and messages that are made without a call of their constructor.

from cpython.bytes cimport PyBytes_FromStringAndSize

from simpleconsumer.types import EntryMessage, HeaderMessage, Message

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030C0000
    #include <structmember.h>
    #endif

    /* Where instances of a class keep the value of one of its slots. */
    static Py_ssize_t slot_at(PyObject *descriptor) {
        if (!PyObject_TypeCheck(descriptor, &PyMemberDescr_Type)) {
            PyErr_Format(PyExc_TypeError, "%R is no slot", descriptor);
            return -1;
        }
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }

    static inline PyObject *new_object(PyObject *kind) {
        return PyType_GenericAlloc((PyTypeObject *)kind, 0);
    }

    /* Fills a slot of a new object, which is empty. */
    static inline void fill_slot(PyObject *object, Py_ssize_t at, PyObject *value) {
        Py_INCREF(value);
        *(PyObject **)((char *)object + at) = value;
    }
    """
    Py_ssize_t slot_at(object) except -1
    void fill_slot(object, Py_ssize_t, object)
    object new_object(object)

cdef object MESSAGE = Message
cdef object ENTRY_MESSAGE = EntryMessage
cdef object HEADER_MESSAGE = HeaderMessage
cdef Py_ssize_t TOPIC_AT = slot_at(Message.topic)
cdef Py_ssize_t PARTITION_AT = slot_at(Message.partition)
cdef Py_ssize_t OFFSET_AT = slot_at(Message.offset)
cdef Py_ssize_t NEXT_OFFSET_AT = slot_at(Message.next_offset)
cdef Py_ssize_t KEY_AT = slot_at(Message.key)
cdef Py_ssize_t VALUE_AT = slot_at(Message.value)
cdef Py_ssize_t TIMESTAMP_AT = slot_at(Message.timestamp_ms)
cdef Py_ssize_t INDEX_AT = slot_at(EntryMessage.index)
cdef Py_ssize_t HEADERS_AT = slot_at(HeaderMessage.headers)


cdef inline object filled(object kind, object topic, object partition, object offset, object next_offset, object key,
                          object value, object timestamp_ms):
    """Return a message of a class with the slots of Message."""
    message = new_object(kind)
    fill_slot(message, TOPIC_AT, topic)
    fill_slot(message, PARTITION_AT, partition)
    fill_slot(message, OFFSET_AT, offset)
    fill_slot(message, NEXT_OFFSET_AT, next_offset)
    fill_slot(message, KEY_AT, key)
    fill_slot(message, VALUE_AT, value)
    fill_slot(message, TIMESTAMP_AT, timestamp_ms)
    return message


cdef inline object bytes_or_none(const uint8_t *at, int64_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *>at, size)


cdef inline uint16_t big16(const uint8_t *at) noexcept nogil:
    return <uint16_t>(at[0] << 8 | at[1])


cdef inline int32_t big32(const uint8_t *at) noexcept nogil:
    return <int32_t>(<uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3])


cdef inline int64_t big64(const uint8_t *at) noexcept nogil:
    return <int64_t>(<uint64_t><uint32_t>big32(at) << 32 | <uint32_t>big32(at + 4))


cdef bint read_long(const uint8_t **at, const uint8_t *end, int bits, int64_t *number) noexcept nogil:
    """Read a zigzag varint of up to 32 or 64 bits and move behind it; False if it does not fit, or ends behind `end`."""
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


cdef class Run:
    """A run of messages out of a buffer.

    Threads: One at a time. The decoder that reads from it is a generator, which lets in one thread only.
    """

    cdef Py_buffer view
    cdef bint has_view
    cdef const uint8_t *start
    cdef const uint8_t *at
    cdef object topic, partition

    cdef const uint8_t *open(self, data, Py_ssize_t position, topic, partition) except NULL:
        """Hold a buffer from now on, and start at a position of it; return where it ends."""
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.has_view = True
        self.start = <const uint8_t *>self.view.buf
        if not 0 <= position <= self.view.len:
            raise ValueError(f"position {position} is not within the {self.view.len} bytes")
        self.at = self.start + position
        self.topic, self.partition = topic, partition
        return self.start + self.view.len

    cdef void close(self):
        if self.has_view:
            self.has_view = False
            PyBuffer_Release(&self.view)

    def __dealloc__(self):
        self.close()

    def __iter__(self):
        return self
