"""The landing script as a module (scripts/ is no package), and the year of flights, read once."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "land_flights.py"


@pytest.fixture(scope="session")
def land_flights() -> ModuleType:
    """``scripts/land_flights.py``."""
    spec = importlib.util.spec_from_file_location("land_flights", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def year(land_flights: ModuleType) -> pd.DataFrame:
    """Every flight in order of arrival; copy before changing."""
    return land_flights.flights()
