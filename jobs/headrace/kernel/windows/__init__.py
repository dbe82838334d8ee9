"""Windows on Arrow columns: the windows of each row, and those that become one."""
