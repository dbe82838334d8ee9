"""Messages of JSON that were recorded are read by the rules that they were read by, as lines of files are."""

from datetime import UTC, datetime

import headrace as hr
from headrace.connectors.kafka.offsets import SCHEMA
from headrace.connectors.kafka.source import RULES, TopicReader
from headrace.formats.file_format import RequiredColumns
from headrace.formats.json_lines import JSON

COLUMNS = {"at": datetime}
MESSAGES = [b'{"at": "20130101T050000Z"}', b'{"at": "2013-01-01T05:00:00Z"}']


def test_a_replay_reads_messages_as_they_were_recorded() -> None:
    reader = TopicReader(hr.kafka("events", COLUMNS, connection="events"))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {"partition": 0, "offset": number, "timestamp": moment, "key": None, "value": value, "headers": []}
        for number, value in enumerate(MESSAGES)
    ]
    table = SCHEMA.empty_table().from_pylist(rows, SCHEMA)

    def judge_messages(rules: int | None) -> list[str | None]:
        return list(reader.by_rules(rules).scanned(table, RequiredColumns(), "events/0/0-2").unparsed.to_pylist())

    assert reader.rules == RULES == JSON.rules
    assert judge_messages(None) == judge_messages(RULES) == [None, None]
    assert judge_messages(0) == ["column at: not a timestamp", None]
