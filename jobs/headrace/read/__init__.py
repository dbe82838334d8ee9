"""Reading what runs have left, without Spark: branches, views, what epochs recorded."""
