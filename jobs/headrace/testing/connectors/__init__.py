"""The conformance kit of connectors, as tests to inherit: what every source must do, and what every sink must do.

::

    class TestMySink(SinkConformance):
        @pytest.fixture
        def world(self, tmp_path):
            return MyWorld(tmp_path)

A source must be read exactly once and again; a sink must hold what readers see. Headrace's own connectors pass the kit;
so do those on the pages "Your own source" and "Your own sink".
"""

from headrace.testing.connectors.sink_conformance import ChangeLogConformance, SinkConformance
from headrace.testing.connectors.source_conformance import SourceConformance, VersionsConformance
from headrace.testing.connectors.worlds import ChangeLogWorld, SinkWorld, SourceWorld, VersionsWorld

__all__ = [
    "ChangeLogConformance",
    "ChangeLogWorld",
    "SinkConformance",
    "SinkWorld",
    "SourceConformance",
    "SourceWorld",
    "VersionsConformance",
    "VersionsWorld",
]
