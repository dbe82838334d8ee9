"""PySpark's daemon with what tasks need imported already: the workers that it forks begin with it."""

from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
