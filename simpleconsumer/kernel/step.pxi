# The step from one message of a stream to the next.

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

cdef extern from "Python.h":
    PyObject *PyIter_Next(object) except? NULL
    unsigned long PyThread_get_thread_ident() nogil


cdef class Runs:
    """The messages of an iterator of runs, one after the other. It is over after any error, as a generator is.

    `itertools.chain` is not safe here: while one thread reads the runs, the error of a second one frees them.
    """

    cdef object _runs, _run
    cdef bint _is_executing

    def __init__(self, runs):
        self._runs = runs

    def __iter__(self):
        return self

    def __next__(self):
        cdef PyObject *found
        if self._is_executing:
            raise ValueError("the decoder is already executing")
        self._is_executing = True
        try:
            while self._runs is not None:
                if self._run is not None:
                    found = PyIter_Next(self._run)
                    if found != NULL:
                        message = <object>found
                        Py_DECREF(message)
                        return message
                    self._run = None
                found = PyIter_Next(self._runs)
                if found == NULL:
                    self._runs = None
                    break
                run = <object>found
                Py_DECREF(run)
                self._run = iter(run)
        except BaseException:
            self._runs = self._run = None
            raise
        finally:
            self._is_executing = False
        raise StopIteration


cdef class Step:
    """The work of a stream for each message; see `zkconsumer.streams.cursor`, which does the same in Python."""

    cdef public object handed, _source, _queue, _reader, _decode, _lease, _clock
    cdef object _thread
    cdef unsigned long _thread_number

    def __iter__(self):
        return self

    def __next__(self):
        cdef PyObject *found
        cdef unsigned long thread
        message = trouble = None
        try:
            found = PyIter_Next(self._source)
            if found != NULL:
                message = <object>found
                Py_DECREF(message)
                queue = self._queue
                queue.in_hand = message  # store, then check (zkconsumer.fetching.partition_queue)
                thread = PyThread_get_thread_ident()
                if self._thread is None or thread != self._thread_number:
                    self._thread_number, self._thread = thread, thread
                self._reader = self._thread
                if self._decode is not None:
                    self._decode(message)
                if queue.is_live and self._clock() < self._lease.until:
                    self.handed = message
                    return message
        except BaseException as error:
            if not self._is_trouble(error):
                self._interrupted(message, error)
                raise
            trouble = error
        return self._next_slowly(message, trouble, None)
