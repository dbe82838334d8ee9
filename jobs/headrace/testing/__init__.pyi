"""What type checkers know of headrace.testing: written by ``python -m scripts.stubs --write``."""

from headrace.testing.deployment import TemporaryDeployment as TemporaryDeployment
from headrace.testing.pipeline_run import fingerprint as fingerprint
from headrace.testing.pipeline_run import run as run
from headrace.testing.results import PaneRow as PaneRow
from headrace.testing.results import Panes as Panes
from headrace.testing.results import Result as Result
from headrace.testing.results import StepResults as StepResults
from headrace.testing.results import assert_current as assert_current
from headrace.testing.results import assert_late as assert_late
from headrace.testing.results import assert_panes as assert_panes
from headrace.testing.results import assert_rejected as assert_rejected
from headrace.testing.steps import Step as Step
from headrace.testing.steps import UnitTestError as UnitTestError
from headrace.testing.steps import at as at
from headrace.testing.steps import end as end
from headrace.testing.steps import processing_time as processing_time
from headrace.testing.steps import rows as rows
from headrace.testing.steps import signal as signal
from headrace.testing.steps import together as together
from headrace.testing.steps import watermark as watermark
from headrace.testing.suite import load as load

__all__: list[str]
