"""An epoch as tasks that pass Arrow tables on: what each of them does, wherever it runs. No Spark, no order of arrival.

The map side reads shares of the input; where duplicates are told apart, a task for each part of the ids; then for each
stage a task for each part of its keys. Between two of these levels everything that one task says to another crosses an
exchange (``exchange``).
"""
