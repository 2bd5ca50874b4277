"""The batch load: topics into files or a table, each message once, however often and whenever a run is killed.

manifest.py   P  what a run has written, and where the next one starts
planning.py   P  what a run has to read
audit.py      P  whether the files contain what was planned
storage.py       the folder, on any file system of Hadoop
table.py         the table, if rows are appended to one: delta.py, iceberg.py
run_writer.py    writes and counts the rows of a run
job.py           one run, from plan to publication
"""
