"""Pipelines that read a topic of a real broker and deliver to another, with a right password and with a wrong one."""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scripts.airflow_api import AirflowApi
from scripts.kafka import PASSWORD, USER, Kafka, jars
from tests.airflow.runs import first_run
from tests.needed import lacks
from tests.sources.kafka_topics import Topics

_SECONDS: Final = 300
_PIPELINE = """
from datetime import datetime
import headrace as hr

events = hr.kafka("{topic}", {{"shop": str, "at": datetime}}, connection="{source}", land="{land}")
{name} = hr.Pipeline(
    "{name}",
    events.event_time("at", bound="1h"),
    key="shop",
    what={{"n": hr.count()}},
    where=hr.FixedWindows("1d"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="30d"),
    executor="local",
    sinks=[
        hr.kafka_sink("{topic}.told", connection="stream"),
        hr.kafka_sink("{topic}.never_told", connection="refused"),
    ],
)
"""


_READ: Final = "landed"
_NEVER_READ: Final = "kept"
"""A pipeline with the wrong password, which reads a topic where it is."""


@dataclass(frozen=True)
class Streams:
    """Topics of ``broker``: one with a record, and one for each sink."""

    broker: Kafka
    topic: str = field(default_factory=lambda: f"topic.{secrets.token_hex(4)}")
    wrong: str = field(default_factory=lambda: f"wrong/{secrets.token_hex(8)}@%2F")

    @property
    def secrets(self) -> list[str]:
        """The right password and the wrong one."""
        return [PASSWORD, self.wrong]

    def connections(self) -> dict[str, str]:
        """Airflow's: ``stream`` and ``refused``."""
        host, port = self.broker.with_password.split(":")
        reaching_fields = {"conn_type": "kafka", "host": host, "port": int(port), "login": USER}
        return {
            f"AIRFLOW_CONN_{name}": json.dumps(reaching_fields | {"password": password})
            for name, password in (("STREAM", PASSWORD), ("REFUSED", self.wrong))
        }

    def write_pipelines(self, folder: Path) -> None:
        """The pipelines, each in a file."""
        sources = {_READ: ("stream", "always"), _NEVER_READ: ("refused", "never")}
        for name, (source, land) in sources.items():
            text = _PIPELINE.format(topic=self.topic, name=name, source=source, land=land)
            (folder / f"{name}.py").write_text(text)

    def fill(self) -> None:
        """Make the topics, and send a record."""
        topics = Topics(self.broker.address)
        for name in (self.topic, *self._sinks):
            topics.make(name)
        topics.send_json(self.topic, [{"shop": "a", "at": "2026-05-01T00:00:00Z"}])

    def run(self, api: AirflowApi) -> None:
        """Read and deliver: what has the wrong password fails, and says of which connection it is."""
        deliver = f"headrace_{_READ}_deliver"
        api.wait_for_dag(deliver, _SECONDS)
        api.pause(deliver, is_paused=False)
        self._check(api, f"headrace_{_READ}_process", {"process": "success"})
        self._check(api, f"headrace_{_NEVER_READ}_process", {"process": "failed"})
        delivered_states = dict(zip(self._sinks, ("success", "failed"), strict=True))
        self._check(api, deliver, delivered_states, first_run(api, deliver, _SECONDS))

    @property
    def _sinks(self) -> tuple[str, str]:
        return f"{self.topic}.told", f"{self.topic}.never_told"

    @staticmethod
    def _check(api: AirflowApi, dag_id: str, tasks: Mapping[str, str], run_id: str | None = None) -> None:
        api.wait_for_dag(dag_id, _SECONDS)
        ended_run = api.wait_for_run(dag_id, run_id or api.trigger(dag_id), _SECONDS)
        for task, state in tasks.items():
            log = "\n".join(api.log(dag_id, ended_run.run_id, task))
            assert ended_run.tasks[task] == state, log
            assert ("HEADRACE_CONN_REFUSED right" in log) == (state == "failed"), log


@contextmanager
def streams(folder: Path) -> Iterator[Streams]:
    """Topics of a broker of their own."""
    if not jars().is_dir():
        lacks("no jars of Kafka (python -m scripts.kafka path)")
    with Kafka(folder) as broker:
        topic_streams = Streams(broker)
        topic_streams.fill()
        yield topic_streams
