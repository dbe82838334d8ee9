"""Lands the events of an auction house as JSON lines: persons who register, auctions that they open, bids. Beside them
it lands a table of reference, as CSV.

The numbers are the public ones of the NEXMark suite: of 50 events one is a person, three are auctions, 46 are bids, in
this order; half of the bids go to one hot auction, three of four come from one hot bidder, half through four hot
channels; prices spread over six decimal places. An event is a function of its number, its time and the seed.

Events arrive out of order: nearly all within four seconds (``DISORDER``), one of fifty up to a minute late.
"""

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROUND = ("persons", *3 * ("auctions",), *46 * ("bids",))
FIRST_ID = 1000
CATEGORIES = range(10, 15)
ACTIVE_PERSONS = 1000
OPEN_AUCTIONS = 100
HOT_EVERY = 100
"""One of so many persons, or auctions, is hot while it is among the newest."""
HOT_AUCTIONS, HOT_SELLERS, HOT_BIDDERS, HOT_CHANNELS = 1 / 2, 3 / 4, 3 / 4, 1 / 2
CHANNELS = 10_000
SIDE_INPUT = range(10_000)
DISORDER = timedelta(seconds=4)
LATEST = timedelta(minutes=1)
LATE = 1 / 50
START = datetime(2026, 5, 1, 23, 59, tzinfo=UTC)

CITIES = {"AZ": "Phoenix", "CA": "Sacramento", "ID": "Boise", "OR": "Portland", "WA": "Olympia", "WY": "Cheyenne"}
NAMES = ("Ada", "Blaise", "Carl", "Daniel", "Emmy", "Felix", "Grace")
Event = dict[str, int | str]


def make_event(number: int, at: datetime, draw: random.Random) -> Event:
    """The event of a number, which happens ``at``."""
    rounds, place = divmod(number, len(ROUND))
    newest_person = rounds
    newest_auction = max(3 * rounds + min(place, 3) - 1, 0)
    event: Event = {"date_time": at.isoformat(timespec="milliseconds"), "extra": _letters(draw, 20, 60)}
    match ROUND[place]:
        case "persons":
            return {"id": FIRST_ID + newest_person, **_person(draw), **event}
        case "auctions":
            seller = _hot_or_recent(draw, newest_person, HOT_SELLERS, ACTIVE_PERSONS)
            return {"id": FIRST_ID + newest_auction, **_auction(draw, at), "seller": FIRST_ID + seller, **event}
        case _:
            auction = _hot_or_recent(draw, newest_auction, HOT_AUCTIONS, OPEN_AUCTIONS)
            bidder = _hot_or_recent(draw, newest_person, HOT_BIDDERS, ACTIVE_PERSONS)
            return {
                "auction": FIRST_ID + auction,
                "bidder": FIRST_ID + bidder,
                "price": _price(draw),
                **_channel(draw),
                **event,
            }


def _person(draw: random.Random) -> Event:
    name, state = f"{draw.choice(NAMES)} {_letters(draw, 4, 8).title()}", draw.choice(sorted(CITIES))
    card = " ".join(f"{draw.randrange(10_000):04}" for _ in range(4))
    mail = f"{name.replace(' ', '.').lower()}@mail.example"
    return {"name": name, "email_address": mail, "credit_card": card, "city": CITIES[state], "state": state}


def _auction(draw: random.Random, at: datetime) -> Event:
    initial = _price(draw)
    return {
        "item_name": _letters(draw, 5, 20),
        "description": _letters(draw, 20, 100),
        "initial_bid": initial,
        "reserve": initial + _price(draw),
        "expires": (at + timedelta(seconds=draw.uniform(1, 20))).isoformat(timespec="milliseconds"),
        "category": draw.choice(CATEGORIES),
    }


def _channel(draw: random.Random) -> Event:
    url = "https://auctions.example/" + "/".join(_letters(draw, 3, 6) for _ in range(3)) + "/item.htm?query=1"
    if draw.random() < HOT_CHANNELS:
        return {"channel": draw.choice(("Apple", "Google", "Facebook", "Baidu")), "url": url}
    number = draw.randrange(CHANNELS)
    has_id = number % 10 > 0
    return {"channel": f"channel-{number}", "url": f"{url}&channel_id={number * 7919 % CHANNELS}" if has_id else url}


def _hot_or_recent(draw: random.Random, newest: int, hot: float, recent: int) -> int:
    """The hot one of the newest hundred with probability ``hot``, else any of the ``recent``."""
    if draw.random() < hot:
        return newest // HOT_EVERY * HOT_EVERY
    return draw.randint(max(newest - recent + 1, 0), newest)


def _price(draw: random.Random) -> int:
    """A price in cents, from 1 to a million, each power of ten as likely as another."""
    return round(100 * 10 ** draw.uniform(0, 6))


def _letters(draw: random.Random, fewest: int, most: int) -> str:
    return "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(fewest, most)))


def arriving(numbers: Iterable[int], start: datetime, rate: float = 100, seed: int = 1) -> Iterator[tuple[str, Event]]:
    """The events of ``numbers`` as they arrive, each with its stream: ``rate`` happen in a second, from ``start``."""
    arrivals = []
    for place, number in enumerate(numbers):
        draw = random.Random(f"{seed} {number}")
        at = start + timedelta(seconds=place / rate)
        event = make_event(number, at, draw)
        delay = draw.uniform(0, 1) * (LATEST if draw.random() < LATE else DISORDER)
        arrivals.append((at + delay, number, event))
    for _, number, event in sorted(arrivals, key=lambda arrival: arrival[:2]):
        yield ROUND[number % len(ROUND)], event


def land(
    root: Path, numbers: range, start: datetime, *, rate: float = 100, seed: int = 1, per_file: int = 1000
) -> None:
    """Land the events of ``numbers`` below ``root``: a file of each stream for each ``per_file`` of them. More events
    can be landed later.
    """
    events = [*arriving(numbers, start, rate, seed)]
    for first in range(0, len(events), per_file):
        lines: defaultdict[str, list[str]] = defaultdict(list)
        for stream, event in events[first : first + per_file]:
            lines[stream].append(json.dumps(event))
        for stream, records in lines.items():
            folder = root / "landing" / stream
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{numbers.start + first:09}.json").write_text("\n".join(records) + "\n")


def land_side_input(root: Path) -> None:
    """Land the table of reference: a value for each key, which has always held."""
    folder = root / "landing" / "side_input"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["key,value,since", *(f"{key},value {key * 7919 % 10_000},1970-01-01T00:00:00Z" for key in SIDE_INPUT)]
    (folder / "values.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Land events of NEXMark below a folder.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first event")
    parser.add_argument("--start", type=datetime.fromisoformat, default=START, help="when event 0 happens")
    parser.add_argument("--rate", type=float, default=100, help="events in a second of event time")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    numbers = range(given.first, given.first + given.events)
    start = given.start + timedelta(seconds=given.first / given.rate)
    land(given.root, numbers, start, rate=given.rate, seed=given.seed)
    land_side_input(given.root)
