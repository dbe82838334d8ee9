"""Windows that fire: the program of a trigger over the rows of an epoch, and the panes that follow."""
