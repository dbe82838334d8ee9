"""What code of others imports to add parts to Headrace: the ports, a module for each role.

A module's docstring is the essay for the author of such a part: what to implement, in which order it is called, what is
guaranteed. Beside ``headrace.ext``, such code needs ``headrace`` and, for its tests, ``headrace.testing``.

What belongs here: a port, the values that cross it, and the errors that it raises. What does not: anything that a part
can do without. Built-in parts import the same ports, so a module of this package imports nothing that lies above it
(``pyproject.toml`` has the contracts). ``stores``, ``sources``, ``sinks`` and ``formats`` stand below all that calls
them. ``executors`` stands directly below runs, ``airflow`` above ``headrace_airflow``.
"""
