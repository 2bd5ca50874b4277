# The records of a poll, out of the rows of record batches, or out of messages.

from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.ref cimport Py_INCREF

cdef extern from *:
    """
    static inline PyObject *new_tuple(PyObject *kind, Py_ssize_t size) {
        return ((PyTypeObject *)kind)->tp_alloc((PyTypeObject *)kind, size);
    }

    /* The value of a slot of an object, which is filled. */
    static inline PyObject *slot_value(PyObject *object, Py_ssize_t at) {
        PyObject *value = *(PyObject **)((char *)object + at);
        Py_INCREF(value);
        return value;
    }

    /* A record of bytes, numbers and texts is in no cycle: the collector need not look at thousands of them again and
       again while a poll goes on. */
    static inline void leave_to_counting(PyObject *record) {
        PyObject_GC_UnTrack(record);
    }
    """
    object new_tuple(object, Py_ssize_t)
    object slot_value(object, Py_ssize_t)
    void leave_to_counting(object)

cdef enum:
    RECORD_FIELDS = 11

cdef object NULL_SIZE = -1


cdef inline void set_field(object record, Py_ssize_t at, object value):
    Py_INCREF(value)
    PyTuple_SET_ITEM(record, at, value)


cdef inline object record_of(object kind, object topic, object partition, object offset, object timestamp, object time_type,
                             object key, object value, object headers, object epoch, object key_size, object value_size):
    record = new_tuple(kind, RECORD_FIELDS)
    leave_to_counting(record)
    set_field(record, 0, topic)
    set_field(record, 1, partition)
    set_field(record, 2, offset)
    set_field(record, 3, timestamp)
    set_field(record, 4, time_type)
    set_field(record, 5, key)
    set_field(record, 6, value)
    set_field(record, 7, headers)
    set_field(record, 8, epoch)
    set_field(record, 9, key_size)
    set_field(record, 10, value_size)
    return record


def add_records_of_run(RecordRows run, list records, Py_ssize_t most, kind, tuple time_types, /):
    """Add the records of a run to a list: tuples of a class with the fields of ConsumerRecord.

    Args:
        most: How many at most.
        time_types: The type of time that a record shows, by that type and 1.

    Returns:
        Whether the run has ended; its place is written back then.
    """
    cdef Row row
    cdef int64_t time = 0, key_bytes = -1, value_bytes = -1
    cdef int32_t epoch_number = -1
    # A record mostly has the same values as the one before it.
    time_object = 0
    key_size = value_size = NULL_SIZE
    epoch = None
    for _ in range(most):
        if not run.has_view:
            return True
        if not run.next_row(&row):
            run.leave()
            run.close()
            return True
        if row.time != time:
            time, time_object = row.time, row.time
        if row.key_bytes != key_bytes:
            key_bytes, key_size = row.key_bytes, row.key_bytes
        if row.value_bytes != value_bytes:
            value_bytes, value_size = row.value_bytes, row.value_bytes
        if run.epoch != epoch_number:
            epoch_number = run.epoch
            epoch = None if epoch_number < 0 else epoch_number
        records.append(record_of(
            kind, run.topic, run.partition, row.offset, None if row.time_type < 0 else time_object,
            time_types[row.time_type + 1], bytes_or_none(row.key, row.key_bytes),
            bytes_or_none(row.value, row.value_bytes), headers_of(&row) if row.headers else (), epoch, key_size, value_size,
        ))
    return False


def add_records(kind, list messages, list records, epoch, time_type, no_time_type, /):
    """Add the records of messages to a list: tuples of a class with the fields of ConsumerRecord."""
    for message in messages:
        time, key, value = slot_value(message, TIMESTAMP_AT), slot_value(message, KEY_AT), slot_value(message, VALUE_AT)
        records.append(record_of(
            kind, slot_value(message, TOPIC_AT), slot_value(message, PARTITION_AT), slot_value(message, OFFSET_AT), time,
            no_time_type if time is None else time_type, key, value,
            slot_value(message, HEADERS_AT) if type(message) is HEADER_MESSAGE else (), epoch,
            NULL_SIZE if key is None else len(key), NULL_SIZE if value is None else len(value),
        ))
