"""Sources that cannot give their records again: these are landed as files first, and read from there.

A run's first act is to claim what is new as a *range*, by a conditional put (``_ranges/{n}.json``), and to write its
files, which are named by it. The ranges of an input are one chain: each begins where the one before it ended, and none
is claimed before all files of the one before it are there. So only the newest may lack files, and the next lander
writes those before anything else. Each file is put once, whole; of two who write the same one counts. Readers take
files in the order of their names, as far as ranges are whole. A range that is whole is sealed: its seal
(``_ranges/{n}.seal.json``) has the claim again, and what each file is held against when it is read.

From there on it is files: a replay, a backfill, a recovery and both executors read the same bytes. They expire with the
snapshots that would read them again (``runs/maintenance``).
"""
