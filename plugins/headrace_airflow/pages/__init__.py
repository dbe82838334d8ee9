"""Headrace in Airflow's UI: an app that answers from catalogs, and the React pages that ask it."""
