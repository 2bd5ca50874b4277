# A message that is added to an open batch of a producer.

from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_Append, PyList_GET_SIZE, PyList_SetSlice

cdef extern from *:
    """
    /* The value of a slot, borrowed; NULL if it is empty. */
    static inline PyObject *slot_of(PyObject *object, Py_ssize_t at) {
        return *(PyObject **)((char *)object + at);
    }

    static inline void replace_slot(PyObject *object, Py_ssize_t at, PyObject *value) {
        PyObject *before = slot_of(object, at);
        Py_INCREF(value);
        *(PyObject **)((char *)object + at) = value;
        Py_XDECREF(before);
    }
    """
    PyObject *slot_of(object, Py_ssize_t)
    void replace_slot(object, Py_ssize_t, object)


cdef class Appender:
    """Adds values to the batches that are open for messages without a key; see `zkconsumer.producer.sending.sending.delivery`.

    It adds a message only where that is all there is to do. Everything that allocates an object that a collection knows
    is done before the lock is taken: a collection may run any code.
    """

    cdef object queues, turns, acquire, release, clock, batch_type, future_type
    cdef dict open, sticky
    cdef int64_t queue_messages, queue_bytes, batch_messages, batch_bytes, value_bytes, overhead
    cdef Py_ssize_t messages_at, size_at
    cdef Py_ssize_t batch_name, batch_pairs, batch_times, batch_size, batch_closed, batch_outcome
    cdef Py_ssize_t future_outcome, future_index

    def __init__(self, queues, turns, lock, clock, limits, int64_t value_bytes, int64_t overhead, batch_type,
                 future_type):
        kind = type(queues)
        self.queues, self.turns, self.clock = queues, turns, clock
        self.open, self.sticky = queues.open, queues.layout.sticky
        self.acquire, self.release = lock.acquire, lock.release
        self.queue_messages, self.queue_bytes = limits.queue_messages, limits.queue_bytes
        self.batch_messages, self.batch_bytes = limits.batch_messages, limits.batch_bytes
        self.value_bytes, self.overhead = value_bytes, overhead
        self.messages_at, self.size_at = slot_at(kind.messages), slot_at(kind.size)
        self.batch_type, self.future_type = batch_type, future_type
        self.batch_name, self.batch_pairs = slot_at(batch_type.name), slot_at(batch_type.pairs)
        self.batch_times, self.batch_size = slot_at(batch_type.times), slot_at(batch_type.size)
        self.batch_closed, self.batch_outcome = slot_at(batch_type.is_closed), slot_at(batch_type.outcome)
        self.future_outcome, self.future_index = slot_at(future_type._outcome), slot_at(future_type._index)

    def add(self, topic, value, /):
        """Return the future of a message without a key, or None if it has to be added in Python."""
        if type(value) is not bytes or type(topic) is not str or PyBytes_GET_SIZE(value) > self.value_bytes:
            return None
        pair = (None, value)
        future = new_object(self.future_type)
        if not self.acquire(False):
            return None
        try:
            return self.added(topic, pair, PyBytes_GET_SIZE(value) + self.overhead, future)
        finally:
            self.release()

    cdef object added(self, topic, tuple pair, int64_t size, future):
        cdef int64_t messages, queue_bytes, batch_bytes, count
        cdef PyObject *outcome
        cdef PyObject *chosen = PyDict_GetItem(self.sticky, topic)
        cdef PyObject *found = PyDict_GetItem(self.open, topic)
        if chosen == NULL or found == NULL or len(self.turns):
            return None
        batch = <object>found
        if type(batch) is not self.batch_type or <object>slot_of(batch, self.batch_closed) is not False:
            return None
        outcome = slot_of(batch, self.batch_outcome)
        if outcome == NULL or outcome == <PyObject *>None:
            return None
        if PyTuple_GET_ITEM(<object>slot_of(batch, self.batch_name), 1) != chosen:
            return None
        pairs, times = <list?><object>slot_of(batch, self.batch_pairs), <list?><object>slot_of(batch, self.batch_times)
        count = PyList_GET_SIZE(pairs)
        if count == 0 or count != PyList_GET_SIZE(times) or count + 1 >= self.batch_messages:
            return None  # the first and the last one wake a thread
        messages = <object>slot_of(self.queues, self.messages_at)
        queue_bytes = <object>slot_of(self.queues, self.size_at)
        batch_bytes = <object>slot_of(batch, self.batch_size)
        if messages >= self.queue_messages or queue_bytes + size > self.queue_bytes:
            return None
        if batch_bytes + size > self.batch_bytes:
            return None
        fill_slot(future, self.future_outcome, <object>outcome)
        fill_slot(future, self.future_index, count)
        new_messages, new_queue, new_batch = messages + 1, queue_bytes + size, batch_bytes + size
        PyList_Append(times, self.clock())
        try:
            PyList_Append(pairs, pair)
        except MemoryError:
            PyList_SetSlice(times, count, count + 1, [])
            raise
        replace_slot(self.queues, self.messages_at, new_messages)
        replace_slot(self.queues, self.size_at, new_queue)
        replace_slot(batch, self.batch_size, new_batch)
        return future
