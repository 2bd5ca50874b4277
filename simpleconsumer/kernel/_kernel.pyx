# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled part of decoders and encoders: checksums, messages out of fetched bytes, and bytes of sent messages.

Each class here reads a run: messages one after the other, until one is wrong in any way or of a form that is not read
here. It raises no errors about messages. The Python decoder that started the run reads that
message exactly, as it reads all messages where there is no kernel.

A run writes its place back to the Python objects it was started from when it ends, and not before.
"""

include "checksums.pxi"
include "varints.pxi"
include "columns.pxi"
include "rows.pxi"
include "entry_walk.pxi"
include "record_rows.pxi"
include "disk_entries.pxi"
include "entry_rows.pxi"
include "step.pxi"
include "poll_records.pxi"
include "encoding.pxi"
include "appending.pxi"
