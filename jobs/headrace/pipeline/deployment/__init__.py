"""How pipelines run in Airflow: nothing here changes what they compute, nor a fingerprint."""
