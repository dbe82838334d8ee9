"""What pipelines and their outputs may be called: names that are folders, DAGs and parts of an asset's address."""

import re
from typing import Final

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
