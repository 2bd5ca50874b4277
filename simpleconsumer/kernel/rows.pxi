# The common parts of all runs: numbers in bytes, and messages that are made without a call of their constructor.

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


cdef enum:
    # How `fill` ends.
    AT_END = 0
    IS_FULL = 1
    IS_OVER = 2


cdef class Run:
    """A run of messages out of a buffer.

    Attributes:
        start_offset: Messages before it are passed by.

    Threads: One at a time. The decoder that reads from it is a generator, which lets in one thread only.
    """

    cdef Py_buffer view
    cdef bint has_view, is_held
    cdef const uint8_t *start
    cdef const uint8_t *at
    cdef object topic, partition
    cdef Row held  # a row that did not fit, and comes next
    cdef bint ascii_headers
    cdef readonly int64_t start_offset

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

    cdef bint next_row(self, Row *row) noexcept nogil:
        """Read the next message that is wanted; False at the end of the run."""
        return False

    cdef object message(self, const Row *row):
        """Return a row as a message."""
        return filled(
            MESSAGE, self.topic, self.partition, row.offset, row.next_offset, bytes_or_none(row.key, row.key_bytes),
            bytes_or_none(row.value, row.value_bytes), None if row.time_type < 0 else row.time,
        )

    cdef leave(self):
        """Write the place back."""

    cdef void close(self):
        if self.has_view:
            self.has_view = False
            PyBuffer_Release(&self.view)

    def __dealloc__(self):
        self.close()

    def __iter__(self):
        return self

    def __next__(self):
        cdef Row row
        if self.has_view:
            if self.next_row(&row):
                return self.message(&row)
            self.leave()
            self.close()
        raise StopIteration

    def fill(self, ColumnRows rows, int64_t limit_bytes, int64_t last_offset, /):
        """Add messages to columns; other threads run meanwhile.

        Args:
            limit_bytes: With so many bytes the columns are full, unless one message alone has more.
            last_offset: The last message that is wanted.

        Returns:
            AT_END: The run has ended; its place is written back.
            IS_FULL: The next message does not fit.
            IS_OVER: All that is wanted was read; the place is not written back.
        """
        cdef int how = AT_END
        if not self.has_view:
            return AT_END
        self.ascii_headers = rows.wants_headers
        with nogil:
            rows.expect(min(limit_bytes, self.view.len - (self.at - self.start)))
            how = self.filled(rows, limit_bytes, last_offset)
        if how < 0:
            raise MemoryError
        if how == AT_END:
            self.leave()
            self.close()
        return how

    cdef int filled(self, ColumnRows rows, int64_t limit_bytes, int64_t last_offset) noexcept nogil:
        cdef Row row
        while True:
            if self.is_held:
                row, self.is_held = self.held, False
            elif not self.next_row(&row):
                return AT_END
            if row.offset > last_offset:
                return IS_OVER
            if rows.size_bytes and rows.size_bytes + rows.size_of(&row) > limit_bytes:
                self.held, self.is_held = row, True
                return IS_FULL
            if not rows.push_row(&row):
                return -1
            if row.offset == last_offset:
                return IS_OVER
