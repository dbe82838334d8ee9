"""The roots that Airflow serves: what names their pipelines, how their stores are reached, and by whom."""
