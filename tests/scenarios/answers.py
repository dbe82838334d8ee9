"""The final answers of the scenarios, computed from landed records in plain Python: no Headrace code takes part.

Each maps a place, the key columns and the start of the window, to the aggregates in the order of the pipeline.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

Records = Sequence[Mapping[str, Any]]
Answer = dict[tuple[Any, ...], tuple[Any, ...]]


def word_count(records: Records) -> Answer:
    times = Counter(record["word"].lower() for record in records if record["word"] is not None)
    return {(word, None): (n,) for word, n in times.items()}


def video_billing(records: Records) -> Answer:
    bills: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    first = {record["id"]: record for record in reversed(records)}
    for (_, advertiser), session in _sessions(first.values(), ("viewer", "advertiser")):
        seconds = sum(record["seconds"] for record in session)
        last_instant = _time_of(session[-1]) + timedelta(minutes=30, microseconds=-1)
        if seconds >= 30:
            bills[advertiser, _floor(last_instant, timedelta(days=1))].append(seconds)
    return {place: (len(b), sum(b), sum(min(s, 180) for s in b)) for place, b in bills.items()}


def latency_statistics(records: Records) -> Answer:
    """Of the windows that end 40 minutes or more before the newest request of the slower data centre."""
    complete = min(max(_time_of(r) for r in records if r["centre"] == centre) for centre in ("east", "west"))
    windows: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for record in records:
        start = _floor(_time_of(record), timedelta(minutes=10))
        if start + timedelta(minutes=10) <= complete - timedelta(minutes=40):
            windows[record["service"], start].append(record["milliseconds"])
    return {place: (len(w), sum(w) / len(w), max(w), sum(ms > 500 for ms in w)) for place, w in windows.items()}


def recommendations(records: Records) -> Answer:
    answer: Answer = {}
    for (user,), session in _sessions(records, ("user",)):
        videos = sorted(record["video"] for record in session)
        latest = max((_time_of(record), record["video"]) for record in session)[1]
        answer[user, _time_of(session[0])] = len(videos), len(set(videos)), latest, videos
    return answer


def anomalies(records: Records) -> Answer:
    searches: Counter[tuple[str, datetime]] = Counter()
    usual: Counter[tuple[str, datetime]] = Counter()
    for record in records:
        place = record["query"], _floor(_time_of(record), timedelta(minutes=10))
        searches[place] += record["searches"]
        usual[place] += record["usual"]
    hours: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for (query, start), n in searches.items():
        if n >= 50 and n > 3 * usual[query, start]:
            hours[query, _floor(start, timedelta(hours=1))].append(n)
    return {place: (len(values), sum(values), max(values)) for place, values in hours.items()}


def _sessions(
    records: Iterable[Mapping[str, Any]], key: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], list[Mapping[str, Any]]]]:
    """Runs of records of one key that are less than 30 minutes apart, in order of time."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for record in sorted(records, key=_time_of):
        place = tuple(record[name] for name in key)
        run = groups[place]
        if run and _time_of(record) - _time_of(run[-1]) >= timedelta(minutes=30):
            yield place, run
            run = groups[place] = []
        run.append(record)
    yield from groups.items()


def _time_of(record: Mapping[str, Any]) -> datetime:
    moment = record["at"]
    return moment if isinstance(moment, datetime) else datetime.fromisoformat(moment)


def _floor(time: datetime, size: timedelta) -> datetime:
    return time - (time - datetime.min.replace(tzinfo=time.tzinfo)) % size
