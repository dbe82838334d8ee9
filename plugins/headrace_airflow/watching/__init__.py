"""Runs that start when files land: a watcher in Airflow's triggerer finds work and announces it by an asset event."""
