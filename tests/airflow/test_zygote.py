"""Scripts that are forked from one process have nothing of each other."""

from pathlib import Path

import pytest

from tests.airflow.zygote import run_script

FIRST = "import os, sys; sys.own = os.environ['OWN'] = 'mine'; print('told'); sys.exit(3)"
SECOND = """
import os, sys, module_of_mine
print(hasattr(sys, "own"), sorted(os.environ), "airflow" in sys.modules, "headrace" in sys.modules)
raise ValueError("of mine")
"""


@pytest.mark.slow
def test_a_script_has_its_environment_and_nothing_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "module_of_mine.py").touch()
    first = run_script(FIRST, {"PATH": "/nowhere"})
    assert (first.returncode, first.stdout, first.stderr) == (3, "told\n", "")
    second = run_script(SECOND, {"OTHER": "1", "PYTHONPATH": str(tmp_path)})
    assert (second.returncode, second.stdout) == (1, "False ['OTHER', 'PYTHONPATH'] False False\n")
    assert "ValueError: of mine" in second.stderr
