# The records of a poll, out of messages.

from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.ref cimport Py_INCREF

cdef extern from *:
    """
    static inline PyObject *new_tuple(PyObject *kind, Py_ssize_t size) {
        return ((PyTypeObject *)kind)->tp_alloc((PyTypeObject *)kind, size);
    }
    """
    object new_tuple(object, Py_ssize_t)

cdef enum:
    RECORD_FIELDS = 11

cdef object NULL_SIZE = -1


cdef inline void set_field(object record, Py_ssize_t at, object value):
    Py_INCREF(value)
    PyTuple_SET_ITEM(record, at, value)


def add_records(kind, list messages, list records, epoch, time_type, no_time_type, /):
    """Add the records of messages to a list: tuples of a class with the fields of ConsumerRecord."""
    for message in messages:
        record = new_tuple(kind, RECORD_FIELDS)
        set_field(record, 0, message.topic)
        set_field(record, 1, message.partition)
        set_field(record, 2, message.offset)
        time = message.timestamp_ms
        set_field(record, 3, time)
        set_field(record, 4, no_time_type if time is None else time_type)
        key = message.key
        value = message.value
        set_field(record, 5, key)
        set_field(record, 6, value)
        set_field(record, 7, message.headers)
        set_field(record, 8, epoch)
        set_field(record, 9, NULL_SIZE if key is None else len(key))
        set_field(record, 10, NULL_SIZE if value is None else len(value))
        records.append(record)
