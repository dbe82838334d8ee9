"""The landing script, and the year of flights, read once."""

from types import ModuleType

import pandas as pd
import pytest

from scripts import land_flights as script


@pytest.fixture(scope="session")
def land_flights() -> ModuleType:
    """``scripts/land_flights.py``."""
    return script


@pytest.fixture(scope="session")
def year() -> pd.DataFrame:
    """Every flight in order of arrival; copy before changing."""
    return script.flights()
