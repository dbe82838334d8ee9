"""Land seeded data for the pipelines of ``jobs/pipelines/scenarios``: to each the shape that its scenario is about.

What belongs here: one generator per scenario, a function of the seed to records in their order of arrival, and cutting
them into files. The same name, seed and number of files give the same bytes. What each shape is, its function says.
"""

import argparse
import io
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import FixConfigError
from headrace_snapshots.store import ObjectExistsError, open_store

FILES = 12
START = datetime(2026, 3, 2, 18, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Record = Mapping[str, Any]
Arrival = tuple[datetime, Record]


def word_count(rng: random.Random) -> list[Record]:
    """Words of a text: a few are most of it, capitals at the start of sentences, and a record without a word."""
    vocabulary = "the of and a to in is stream snapshot barrier state window pane epoch channel task source sink"
    terms = vocabulary.split()
    weights = [1 / rank for rank in range(1, len(terms) + 1)]
    words: list[str | None] = list(rng.choices(terms, weights, k=1500))
    for start in range(0, len(words), 9):
        words[start] = str(words[start]).capitalize()
    words[700] = None
    return [{"word": word} for word in words]


def video_billing(rng: random.Random) -> list[Record]:
    """Ads that 40 viewers watched in evenings, past midnight, of three days. A tenth of the evenings was offline and is
    reported up to three days later; a tenth of the ads is reported twice."""
    arrivals: list[Arrival] = []
    repeat_rng = random.Random(1)  # of its own: what is reported twice decides nothing else
    for viewer in range(40):
        for day in range(3):
            moment = START + timedelta(days=day, minutes=rng.randrange(300))
            offline = timedelta(minutes=rng.randrange(60, 3 * 24 * 60)) if rng.random() < 0.1 else timedelta(0)
            for _ in range(rng.randrange(2, 9)):
                advertiser = rng.choice(("acme", "bolt", "cola"))
                record = _ad_view(f"ad{len(arrivals)}", f"viewer{viewer:02}", advertiser, moment, rng.randrange(5, 61))
                arrives = moment + offline + timedelta(seconds=rng.randrange(60, 600))
                arrivals.append((arrives, record))
                if repeat_rng.random() < 0.1:
                    arrivals.append((arrives + timedelta(seconds=repeat_rng.randrange(30, 20_000)), record))
                moment += timedelta(seconds=rng.randrange(60, 45 * 60))
    return _by_arrival(arrivals)


def video_correction(rng: random.Random) -> list[Record]:
    """A correction as large as the live data of ``video_billing`` with the same seed, and landed beside it. It has the
    ads of 30 viewers whose region had not been reported, and more ads between those that viewers 0 to 9 had watched.
    Each ad of viewers 30 to 34, who were robots, is taken back by a record of negative seconds.
    """
    correction = []
    for record in video_billing(rng):
        viewer, advertiser, moment = record["viewer"], record["advertiser"], datetime.fromisoformat(record["at"])
        number = int(viewer.removeprefix("viewer"))
        if number < 30:
            name = f"region-{record['id']}"
            correction.append(_ad_view(name, f"region{number:02}", advertiser, moment, record["seconds"]))
        elif number < 35:
            correction.append(_ad_view(f"robot-{record['id']}", viewer, advertiser, moment, -record["seconds"]))
        if number < 10:
            extra_moment = moment + timedelta(minutes=rng.randrange(5, 40))
            correction.append(_ad_view(f"more-{record['id']}", viewer, advertiser, extra_moment, rng.randrange(5, 61)))
    rng.shuffle(correction)
    return correction


def _ad_view(name: str, viewer: str, advertiser: str, moment: datetime, seconds: int) -> Record:
    return {"id": name, "viewer": viewer, "advertiser": advertiser, "at": moment.isoformat(), "seconds": seconds}


def latency_statistics(rng: random.Random) -> list[Record]:
    """Requests of two data centres in two hours. Most logs arrive within seconds, one in fifty up to 40 minutes behind,
    a few after two hours. Then the quiet of the night: a request of each centre, hours later.
    """
    arrivals = []
    for number in range(1600):
        moment = START + timedelta(seconds=number * 4.5)
        late = timedelta(minutes=120 if number % 400 == 399 else rng.randrange(5, 38) if number % 50 == 49 else 0)
        slow = rng.random() < 0.02
        record = {
            "service": rng.choice(("cart", "login", "search")),
            "centre": ("east", "west")[number % 2],
            "at": moment,
            "milliseconds": rng.randrange(800, 3000) if slow else rng.randrange(20, 300),
        }
        arrivals.append((moment + late + timedelta(seconds=rng.randrange(5, 20)), record))
    night = START + timedelta(hours=4)
    quiet: Record = {"service": "cart", "at": night, "milliseconds": 50}
    arrivals += [(night + MINUTE, {**quiet, "centre": centre}) for centre in ("east", "west")]
    return _by_arrival(arrivals)


def recommendations(rng: random.Random) -> list[Record]:
    """Bursts of activity of 25 users within six hours; a fifth of the bursts was on a telephone without a network. It
    reports all of it in one go, last view first, up to three hours later.
    """
    arrivals = []
    for user in range(25):
        for _ in range(rng.randrange(2, 6)):
            moment = START + timedelta(minutes=rng.randrange(360))
            online = moment + timedelta(minutes=rng.randrange(30, 180)) if rng.random() < 0.2 else None
            for step in range(rng.randrange(2, 12)):
                record = {"user": f"user{user:02}", "video": f"video{rng.randrange(30):02}", "at": moment.isoformat()}
                seconds = timedelta(seconds=rng.randrange(5, 90))
                arrivals.append((online - timedelta(milliseconds=step) if online else moment + seconds, record))
                moment += timedelta(seconds=rng.randrange(30, 900))
    return _by_arrival(arrivals)


def anomalies(rng: random.Random) -> list[Record]:
    """Reports of three log servers on six queries, each every minute for two hours. "eclipse" bursts to ten times
    its usual searches for 35 minutes; "goal" does for one minute, which looks like a trend and is none. One server is
    cut off from minute 40 to 60 and reports that later. Two hours after, an ordinary report of each server."""
    arrivals = []
    for minute in range(120):
        moment = START + minute * MINUTE
        for server in range(3):
            for query in ("eclipse", "goal", "maps", "news", "recipes", "weather"):
                trend = query == "eclipse" and 34 <= minute < 69
                blip = query == "goal" and minute == 80
                searches = rng.randrange(17, 24) if trend or blip else rng.randrange(0, 5)
                delay = START + 75 * MINUTE - moment if server == 2 and 40 <= minute < 60 else timedelta(0)
                arrivals.append(
                    (
                        moment + delay + timedelta(seconds=rng.randrange(5, 120)),
                        _report(query, server, moment, searches),
                    )
                )
    night = START + timedelta(hours=4)
    arrivals += [(night + MINUTE, _report("news", server, night, 2)) for server in range(3)]
    return _by_arrival(arrivals)


def _report(query: str, server: int, moment: datetime, searches: int) -> Record:
    return {"query": query, "server": f"log{server}", "at": moment.isoformat(), "searches": searches, "usual": 2}


def _by_arrival(arrivals: Iterable[Arrival]) -> list[Record]:
    return [record for _, record in sorted(arrivals, key=lambda arrival: arrival[0])]


def json_lines(records: Sequence[Record]) -> bytes:
    """A file of JSON lines."""
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def parquet(records: Sequence[Record]) -> bytes:
    """A Parquet file, timestamps in microseconds UTC."""
    table, file = pa.Table.from_pylist([dict(record) for record in records]), io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


@dataclass(frozen=True)
class Scenario:
    """A generator, the folder in which its data lands, and the files' names before and after their number."""

    records: Callable[[random.Random], list[Record]]
    folder: str
    prefix: str = "part-"
    suffix: str = "jsonl"
    encode: Callable[[Sequence[Record]], bytes] = json_lines


SCENARIOS = {
    "word_count": Scenario(word_count, "landing/words"),
    "video_billing": Scenario(video_billing, "landing/ad_views"),
    "video_correction": Scenario(video_correction, "landing/ad_views", "part-correction-"),
    "latency_statistics": Scenario(latency_statistics, "landing/requests", suffix="parquet", encode=parquet),
    "recommendations": Scenario(recommendations, "landing/activity"),
    "anomalies": Scenario(anomalies, "landing/searches"),
}


def parts(name: str, files: int = FILES, seed: int = 0) -> list[list[Record]]:
    """The records of a scenario in their order of arrival, cut into ``files`` runs, as equal as can be."""
    records = SCENARIOS[name].records(random.Random(seed))
    if not 1 <= files <= len(records):
        raise FixConfigError(f"{name} has {len(records)} records, which cannot be cut into {files} files")
    cuts = [len(records) * number // files for number in range(files + 1)]
    return [records[start:end] for start, end in pairwise(cuts)]


def land(name: str, root: str, files: int = FILES, seed: int = 0) -> list[str]:
    """Land a scenario's data under the root URI and return the paths of its files. Landing the same again changes
    nothing; raises FixConfigError where other files are in the way: what has landed never changes."""
    store, scenario = open_store(root), SCENARIOS[name]
    paths = []
    for number, records in enumerate(parts(name, files, seed), start=1):
        path, data = f"{scenario.folder}/{scenario.prefix}{number:06d}.{scenario.suffix}", scenario.encode(records)
        try:
            store.create(path, data)
        except ObjectExistsError:
            if store.read(path) != data:
                raise FixConfigError(
                    f"{path} was landed with another seed or number of files; name a new root"
                ) from None
        paths.append(path)
    return paths


def main(arguments: Sequence[str] | None = None) -> None:
    """``land_scenarios.py NAME --root URI [--files N] [--seed S]``."""
    parser = argparse.ArgumentParser(description="Land seeded data for a pipeline of jobs/pipelines/scenarios.")
    parser.add_argument("name", choices=SCENARIOS, help="the scenario; video_correction is for video_billing")
    parser.add_argument("--root", required=True, help="file:///folder or s3://bucket/prefix")
    parser.add_argument("--files", type=int, default=FILES, help=f"number of files (default {FILES})")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other data (default 0)")
    options = parser.parse_args(arguments)
    paths = land(options.name, options.root, options.files, options.seed)
    print(f"landed {len(paths)} files: {paths[0]} to {paths[-1]}")


if __name__ == "__main__":
    main()
