"""Lines of JSON files, without their line breaks."""

import json
from typing import Any

from tests.corpus import T_MICROS, Line, T, accepted, rejected


def record(**values: Any) -> str:
    """A record, with ``values`` beside its event time and key (or in their place)."""
    return json.dumps({"time": T, "user": "u", **values})


def written(column: str, text: str) -> str:
    """A record whose ``column`` is written as ``text``."""
    return record(**{column: "@"}).replace('"@"', text)


def user(value: bytes) -> bytes:
    """A record whose user is written as these bytes."""
    return record(user="@").encode().replace(b"@", value)


NOT_AN_OBJECT = "not a JSON object"
NOT_UTF8 = "not UTF-8"
LONE = "a lone surrogate"
OUTSIDE = "event time is outside the years 1900 to 9998"

STRUCTURE = [
    accepted("columns that nobody asked for", record(other={"a": {"b": [{}]}}, more=10**400), user="u"),
    accepted("the last of a repeated name", written("user", '"u", "user": "v"'), user="v"),
    accepted("the last of a repeated name, looked at twice", written("user", '"u", "user": "7"'), user="7"),
    accepted("blanks around it", f"  {record()} \t\r", user="u"),
    accepted("an escaped name", record(user="v").replace('"user"', r'"us\u0065r"'), user="v"),
    rejected("torn", record()[:-5], NOT_AN_OBJECT),
    rejected("two on a line", record() + record(), NOT_AN_OBJECT),
    rejected("two with a comma", f"{record()},{record()}", NOT_AN_OBJECT),
    rejected("two with a blank", f"{record()} {record()}", NOT_AN_OBJECT),
    rejected("something after it", f"{record()} x", NOT_AN_OBJECT),
    rejected("null after it", f"{record()},null", NOT_AN_OBJECT),
    rejected("array", f"[{record()}]", NOT_AN_OBJECT),
    rejected("null", "null", NOT_AN_OBJECT),
    rejected("number", "17", NOT_AN_OBJECT),
    rejected("string", '"x"', NOT_AN_OBJECT),
    rejected("single quotes", record().replace('"', "'"), NOT_AN_OBJECT),
    rejected("trailing comma", record().replace('"u"', '"u",'), NOT_AN_OBJECT),
    rejected("bare NaN", written("x", "NaN"), NOT_AN_OBJECT),
    rejected("control characters", "\x00\x01", NOT_AN_OBJECT),
    rejected("other white space", "\x0c", NOT_AN_OBJECT),
    rejected("a comment", f"{record()} // x", NOT_AN_OBJECT),
    rejected("an unknown escape", written("user", r'"\x"'), NOT_AN_OBJECT),
    rejected("a tab in a string", written("user", '"a\tb"'), NOT_AN_OBJECT),
    rejected("no JSON where nobody looks", written("other", "NaN"), NOT_AN_OBJECT),
    accepted("nested deep", written("other", "[" * 500 + "]" * 500), user="u"),
    rejected("nested too deep", written("other", "[" * 2000 + "]" * 2000), NOT_AN_OBJECT),
    accepted("a repeated name, first of another type", written("n", '"x", "n": 1'), n=1),
    accepted("another case is another name", record(User="v"), user="u"),
    rejected("no event time", json.dumps({"user": "u"}), "event time is null"),
    rejected("null event time", record(time=None), "event time is null"),
    rejected("no key", json.dumps({"time": T}), "key is null: user"),
    rejected("an empty object", "{}", "event time is null"),
]

VALUES = [
    accepted("null everywhere else", record(n=None, x=None, ok=None), n=None, x=None),
    accepted("int for float", record(x=2), x=2.0),
    accepted("more than a double holds", written("x", "1e400"), x=float("inf")),
    accepted("less than a double holds", written("x", "1e-400"), x=0.0),
    accepted("400 digits", written("x", "9" * 400), x=float("inf")),
    accepted("400 digits behind a minus", written("x", "-" + "9" * 400), x=float("-inf")),
    accepted("more digits than Python reads", written("x", "9" * 5000), x=float("inf")),
    accepted("more digits than Python reads where nobody looks", written("other", "9" * 5000), user="u"),
    rejected("400 digits in int", written("n", "9" * 400), "column n: not an int"),
    rejected("more digits than Python reads in int", written("n", "9" * 5000), "column n: not an int"),
    accepted("a zero with a minus", written("n", "-0"), n=0),
    rejected("zeros in front", written("n", "007"), NOT_AN_OBJECT),
    rejected("a point without digits", written("x", ".5"), NOT_AN_OBJECT),
    accepted("the least int", record(n=-(2**63)), n=-(2**63)),
    accepted("the largest int", record(n=2**63 - 1), n=2**63 - 1),
    rejected("fraction in int", record(n=3.5), "column n: not an int"),
    rejected("3.0 in int", record(n=3.0), "column n: not an int"),
    rejected("exponent in int", written("n", "1e3"), "column n: not an int"),
    rejected("more than 64 bits", record(n=2**63), "column n: not an int"),
    rejected("string in int", record(n="3"), "column n: not an int"),
    rejected("bool in int", record(n=True), "column n: not an int"),
    rejected("string in float", record(x="2.5"), "column x: not a float"),
    rejected("NaN string in float", record(x="NaN"), "column x: not a float"),
    rejected("empty string in float", record(x=""), "column x: not a float"),
    rejected("string in bool", record(ok="true"), "column ok: not a bool"),
    rejected("number in bool", record(ok=1), "column ok: not a bool"),
    rejected("two wrong columns: the first declared", record(n="1", x="1"), "column n: not an int"),
]

STRINGS = [
    accepted("string that looks like a number", record(user="5"), user="5"),
    accepted("string that looks like an object", record(user='{"a":1}'), user='{"a":1}'),
    accepted("string that looks like a bool", record(user="true"), user="true"),
    accepted("braces inside a string", record(user="}{"), user="}{"),
    accepted("brackets behind an escaped quote", record(user="u", other='"' + "[" * 2000), user="u"),
    accepted("brackets behind a backslash", record(user="u", other="\\" + "[" * 2000), user="u"),
    accepted("an empty string is a value", record(user=""), user=""),
    accepted("escaped NUL", record(user="a\0b"), user="a\0b"),
    accepted("surrogates that are a pair", record(user="\U0001f600"), user="\U0001f600"),
    accepted("the same as bytes", user("\U0001f600".encode()), user="\U0001f600"),
    accepted("what only looks like a surrogate", record(user=r"\ud800"), user=r"\ud800"),
    rejected("number in string", record(user=5), "column user: not a string"),
    rejected("bool in string", record(user=True), "column user: not a string"),
    rejected("object in string", record(user={"a": 1}), "column user: not a string"),
    rejected("array in string", record(user=["a"]), "column user: not a string"),
    rejected("first half of a character", record(user="\ud800"), LONE),
    rejected("second half of a character", record(user="a\udc00b"), LONE),
    rejected("halves in the wrong order", record(user="\udc00\ud83d"), LONE),
    rejected("half a character where nobody looks", record(other="\udbff"), LONE),
    rejected("half a character behind a backslash", record(user="\\\ud800"), LONE),
    rejected("bytes that are no UTF-8", user(b"a\xffb"), NOT_UTF8),
    rejected("other bytes that are no UTF-8", user(b"a\xfeb"), NOT_UTF8),
    rejected("a character that was cut off", user(b"\xe2\x82"), NOT_UTF8),
    rejected("a longer form of a character", user(b"\xc0\xaf"), NOT_UTF8),
    rejected("half a character as bytes", user(b"\xed\xa0\x80"), NOT_UTF8),
    rejected("bytes where nobody looks", record(other="@").encode().replace(b"@", b"\xff"), NOT_UTF8),
    rejected("bytes in a name", record(other=1).encode().replace(b"other", b"\xff"), NOT_UTF8),
    rejected("bytes that are no JSON either", b'{"time": \xff\xfe}', NOT_UTF8),
]

HOUR = 3_600_000_000
TIMES = [
    accepted("a time", record(), time=T_MICROS),
    accepted("without a zone: UTC", record(time="2013-01-01T05:00:00"), time=T_MICROS),
    accepted("a blank for the T", record(time="2013-01-01 05:00:00Z"), time=T_MICROS),
    accepted("a date", record(time="2013-01-01"), time=T_MICROS - 5 * HOUR),
    accepted("with an offset", record(time="2013-01-01T05:00:00+05:30"), time=T_MICROS - 5 * HOUR - HOUR // 2),
    accepted("to the microsecond", record(time="2013-01-01T05:00:00.000001Z"), time=T_MICROS + 1),
    accepted("cut to the microsecond", record(time="2013-01-01T05:00:00.000001999Z"), time=T_MICROS + 1),
    accepted("an hour alone", record(time="2013-01-01T05"), time=T_MICROS),
    accepted("blanks around a time", record(time="  2013-01-01T05:00:00Z "), time=T_MICROS),
    accepted("the end of a day", record(time="2013-01-01T24:00:00Z"), time=T_MICROS + 19 * HOUR),
    accepted("lower case", record(time="2013-01-01t05:00:00z"), time=T_MICROS),
    accepted("a comma before the fraction", record(time="2013-01-01 05:00:00,001"), time=T_MICROS + 1000),
    accepted("an offset behind a blank", record(time="2013-01-01 06:00:00 +0100"), time=T_MICROS),
    accepted("UTC behind a blank", record(time="2013-01-01 05:00:00 UTC"), time=T_MICROS),
    accepted("without dashes", record(time="20130101T050000Z"), time=T_MICROS),
    rejected("behind the end of a day", record(time="2013-01-01T24:00:01Z"), "column time: not a timestamp"),
    rejected("another zone by name", record(time="2013-01-01 05:00:00 CET"), "column time: not a timestamp"),
    rejected("second 60", record(time="2012-02-29T23:59:60Z"), "column time: not a timestamp"),
    rejected("one digit for a month", record(time="2013-1-1T05:00:00Z"), "column time: not a timestamp"),
    rejected("without dashes, with colons", record(time="20130101T05:00:00Z"), "column time: not a timestamp"),
    rejected("a date without dashes", record(time="20130101"), "column time: not a timestamp"),
    rejected("number in timestamp", record(time=1357016400), "column time: not a timestamp"),
    rejected("year in timestamp", record(time="2013"), "column time: not a timestamp"),
    rejected("time of day in timestamp", record(time="05:00"), "column time: not a timestamp"),
    rejected("no such day", record(time="2013-02-30T05:00:00Z"), "column time: not a timestamp"),
    rejected("an empty string in timestamp", record(time=""), "column time: not a timestamp"),
    rejected("before 1900", record(time="1899-12-31T23:59:59.999999Z"), OUTSIDE),
    rejected("for never", record(time="9999-12-31T00:00:00Z"), OUTSIDE),
    rejected("after 9999", record(time="+10000-01-01T00:00:00Z"), "column time: not a timestamp"),
]

LINES: list[Line] = [*STRUCTURE, *VALUES, *STRINGS, *TIMES]
