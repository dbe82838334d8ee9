"""Moves and joins modules of a checkout by plans: ``python -m scripts.rehouse`` (docs/design/0021-house.md).

A plan is a file of ``plans/``, one a room. No statement changes. Imports, strings with names of modules, paths in
documents and contracts follow. A plan that would make a circle, or in which names collide, is refused before it writes.

* ``python -m scripts.rehouse [ROOM ...]`` runs the plans, all in order of their names or those of some rooms.
* ``--dry`` prints what each file would hold; ``--force`` goes on in spite of circles and problems.
* ``python -m scripts.rehouse --patches BEFORE`` makes the patches of ``tests/additions`` again (``patches``).
* ``python -m scripts.rehouse --transplant BEFORE AFTER`` takes a branch over (``patches``).

What it does not do: a name with leading dots (the house has none), ``import a.b`` where ``a.b`` gets another name and
no alias (only the text follows), a module's name that is put together at run time. Fixes of a plan are for these.
"""
