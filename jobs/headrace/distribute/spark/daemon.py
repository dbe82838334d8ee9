"""PySpark's daemon with what tasks need imported already: the workers that it forks begin with it."""

import gc

from headrace.this_process import collect_seldom, without_collection

with without_collection():
    import numpy as np
    import pyarrow as pa
    from pyspark.daemon import manager

    from headrace.distribute.process import import_pandas_late
    from headrace.distribute.spark import engine
    from headrace.ext.formats import FORMATS
    from headrace.ext.sources import SOURCES
    from headrace.formats import file_format

    import_pandas_late()
    PRELOADED_PARTS = (engine, file_format, *(FORMATS[name] for name in FORMATS.built_in), SOURCES["files"])
    """The tasks, with all that they import; the formats of files, and the source that reads them."""
    pa.array(np.zeros(1))  # its first array of numpy's has pyarrow import more

if __name__ == "__main__":
    gc.freeze()  # what is there already no worker looks for garbage in, which would copy its pages
    collect_seldom()
    manager()
