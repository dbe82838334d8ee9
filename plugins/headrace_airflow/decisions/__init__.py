"""What people decide about pipelines in Airflow: one DAG for each kind of decision, with the pipeline as a field."""
