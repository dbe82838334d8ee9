"""The only file of this folder that Airflow executes: it makes Headrace known to the UI's list of plugins."""

from airflow.plugins_manager import AirflowPlugin


class HeadracePlugin(AirflowPlugin):
    """Headrace has no pages in the UI yet: its DAGs, forms and asset events are all there is."""

    name = "headrace"
