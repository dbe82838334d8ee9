"""How processes of Airflow reach the store of the root: what an Airflow connection says, and who gets it."""
