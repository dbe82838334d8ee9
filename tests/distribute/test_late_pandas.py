"""Arrow without pandas until somebody imports it: then all is as in a process where Headrace never was."""

import json
import subprocess
import sys
from collections.abc import Mapping
from textwrap import indent

import pytest

LATE = "from headrace.distribute.process import import_pandas_late\nimport_pandas_late()\n"
VALUES = "pa.array([1, 2], pa.int64()), pa.scalar('x', pa.string())\nassert 'pandas' not in sys.modules\n"

USES: Mapping[str, str] = {
    "a series": """\
import pandas as pd
show(pa.array(pd.Series([1.5, None])), pa.array(pd.Index([1.5, None])), pa.scalar(pd.NaT, from_pandas=True))""",
    "lists of times and NA": """\
import pandas as pd
show(pa.array([pd.Timestamp('2026-01-01 00:00:00.000000001')]), pa.array([pd.Timedelta(1)]))
show(pa.array([pd.NA, 'x'], from_pandas=True), pa.array([pd.NaT], pa.timestamp('us'), from_pandas=True))""",
    "categories": """\
import pandas as pd
show(pa.array(pd.Categorical(['a', 'b', 'a'])))""",
    "frames": """\
import pandas as pd
show(pa.Table.from_pandas(pd.DataFrame({'a': [1.0, float('nan')]})), pa.table(pd.DataFrame({'a': [1]})))""",
    "without its name": """\
show(pa.array([1.0, float('nan')], from_pandas=True), pa.infer_type([1.0, None], from_pandas=True))""",
    "to_pandas": """\
show(pa.table({'at': pa.array([0], pa.timestamp('us', 'UTC'))}).to_pandas().dtypes)""",
    "a dtype": """\
show(pa.timestamp('us', 'UTC').to_pandas_dtype())""",
    "nanoseconds": """\
show(pa.array([1], pa.timestamp('ns', 'Europe/Berlin')).to_pylist(), pa.scalar(1, pa.duration('ns')).as_py())""",
    "numpy": """\
show(pa.array(np.array(['2026-01-01', 'NaT'], 'datetime64[D]')), pa.array(np.array([1.5, np.nan])))""",
    "a thread": """\
import threading
def use():
    import pandas as pd
    show(pa.array(pd.Series([None, 2.5])))
thread = threading.Thread(target=use)
thread.start()
thread.join()""",
    "the module": """\
import inspect
from importlib.resources import files
import pandas
show(type(pandas.__spec__.loader), type(pandas.__loader__), len(inspect.getsource(pandas)), files(pandas).is_dir())""",
}
SHOW = """\
import sys
import numpy as np
import pyarrow as pa
def show(*values):
    print(*(repr((v.type, v.to_pylist()) if isinstance(v, pa.Array) else v) for v in values))
"""


def output_of(program: str) -> str:
    """What a process of its own prints; its warnings are errors."""
    result = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.fixture(scope="module")
def plain() -> Mapping[str, str]:
    """What each use prints where nobody has told Arrow to wait."""
    uses = "".join(
        f"with contextlib.redirect_stdout(io.StringIO()) as shown[{name!r}]:\n{indent(use, '    ')}\n"
        for name, use in USES.items()
    )
    texts = "print(json.dumps({name: text.getvalue() for name, text in shown.items()}))"
    document: Mapping[str, str] = json.loads(
        output_of(f"import contextlib, io, json\n{SHOW}shown = {{}}\n{uses}{texts}")
    )
    return document


@pytest.mark.parametrize("use", USES)
def test_users_find_arrow_as_it_is_without_headrace(use: str, plain: Mapping[str, str]) -> None:
    assert output_of(f"{SHOW}{LATE}{VALUES}{USES[use]}") == plain[use]
    assert plain[use]


@pytest.mark.parametrize("first_line", ["import pandas", "import pyarrow as pa\npa.array([1])", LATE])
def test_what_is_there_stays(first_line: str) -> None:
    program = f"import sys\n{first_line}\nfinders = [*sys.meta_path]\n{LATE}print(finders == sys.meta_path)"
    assert output_of(program) == "True\n"


def test_without_pandas_arrow_does_what_it_does_without() -> None:
    absent = (
        "import sys\nclass Absent:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pandas':\n            raise ModuleNotFoundError(name)\nsys.meta_path.insert(0, Absent())\n"
    )
    use = "print(pa.array([1000], pa.timestamp('ns')).to_pylist(), pa.array([1.5, None]).null_count)"
    assert output_of(f"{absent}import pyarrow as pa\n{LATE}{use}") == output_of(f"{absent}import pyarrow as pa\n{use}")


def test_a_pandas_that_is_too_old_for_arrow_is_there_for_others() -> None:
    old = (
        "import sys, warnings\nfrom importlib.machinery import ModuleSpec\n"
        "class Loader:\n    def create_module(self, spec):\n        return None\n"
        "    def exec_module(self, module):\n        module.__version__ = '1.0.0'\n"
        "class Old:\n    def find_spec(self, name, path=None, target=None):\n"
        "        return ModuleSpec(name, Loader()) if name == 'pandas' else None\nsys.meta_path.insert(0, Old())\n"
    )
    use = (
        "with warnings.catch_warnings(record=True) as caught:\n    warnings.simplefilter('always')\n    import pandas\n"
        "print(pandas.__version__, ['requires pandas' in str(w.message) for w in caught])"
    )
    assert output_of(f"{old}{LATE}{use}") == "1.0.0 [True]\n"


def test_threads_that_import_pandas_meanwhile_find_it() -> None:
    """It is hidden from one thread alone: none of the others misses it, and Arrow learns of it."""
    program = """\
import threading
import pyarrow as pa
from headrace.distribute.process import import_pandas_late
start, counts = threading.Barrier(9), []
def use():
    start.wait()
    import pandas as pd
    counts.append(pa.array(pd.Series([1.5, None])).null_count)
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
start.wait()
import_pandas_late()
for thread in threads:
    thread.join()
print(counts)"""
    assert output_of(program) == f"{[1] * 8}\n"


def test_a_file_of_the_cache_is_written_without_pandas() -> None:
    program = """\
import sys, tempfile
from pathlib import Path
import numpy as np
import pyarrow as pa
from headrace.program import columns as c
from headrace.state.file_cache import PREFIX_ROWS, open_run, write_run
from headrace.state.sorted_file import SortedFile
hashes = pa.array(np.arange(PREFIX_ROWS.value, dtype=np.uint64) << np.uint64(48))
rows = pa.RecordBatch.from_arrays([hashes], names=[c.HASH])
with tempfile.TemporaryDirectory() as folder:
    write_run(Path(folder, 'run'), SortedFile(rows), {})
    run, _ = open_run(Path(folder, 'run'), rows.schema)
print(run.prefixes is None, 'pandas' in sys.modules)"""
    assert output_of(f"{LATE}{program}") == "False False\n"


EXPRESSIONS: Mapping[str, str] = {
    "a rest": "col('i') % 100",
    "a quotient": "col('f') / col('i')",
    "a text as a number": "col('s').cast(int)",
    "a text as a truth": "col('s').cast(bool)",
    "a text as an instant": "col('s').cast(datetime)",
    "an instant as a text": "col('t').cast(str)",
    "a number as a truth": "col('i').cast(bool)",
    "a root": "col('f').sqrt()",
    "one of some floats": "col('f').is_in([1.5, 2.5])",
}


def test_expressions_do_without_pandas() -> None:
    """Each worker of Spark would import it anew: half a second of CPU before its first row."""
    steps = "".join(
        f"evaluate({expression}, columns)\nseen.append(({name!r}, 'pandas' in sys.modules))\n"
        for name, expression in EXPRESSIONS.items()
    )
    program = f"""\
import sys
from datetime import datetime
import pyarrow as pa
from headrace import col
from headrace.kernel.expressions.evaluation import evaluate
{LATE}
times = pa.array([0, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
columns = {{"i": pa.array([7, None], pa.int64()), "f": pa.array([1.5, None], pa.float64()), "t": times}}
columns["s"] = pa.array(["12", None], pa.string())
seen = []
{steps}
print(next((name for name, is_there in seen if is_there), "none"))"""
    assert output_of(program) == "none\n"
