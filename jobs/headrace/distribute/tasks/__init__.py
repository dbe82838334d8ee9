"""An epoch as tasks that pass Arrow tables on, wherever they run: no Spark, no order of arrival.

The map side reads shares of the input. Then each stage, and duplicates before them, has a task for each part of the
keys. Between two of these levels all that one task says to another crosses an exchange (``exchange``).
"""
