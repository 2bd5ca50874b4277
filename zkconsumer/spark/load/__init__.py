"""The batch load as a job: topics to files, each message once, however often and wherever a run is killed.

    manifest.py   P  what a run leaves behind, and from where the next goes on
    planning.py   P  what a run has to read
    audit.py      P  whether the files hold what was asked for
    storage.py       the folder, on any file system of Hadoop's
    table.py         the table, where rows are to be in one: delta.py, iceberg.py
    job.py           one run, from plan to publication
"""
