"""Lines of JSON files, without their line breaks."""

import json
from typing import Any

from tests.corpus import T_MICROS, Line, T, bad_line, good_line


def record(**values: Any) -> str:
    """A record, with ``values`` beside its event time and key (or in their place)."""
    return json.dumps({"time": T, "user": "u", **values})


def record_with(column: str, text: str) -> str:
    """A record whose ``column`` is written as ``text``."""
    return record(**{column: "@"}).replace('"@"', text)


def user(value: bytes) -> bytes:
    """A record whose user is written as these bytes."""
    return record(user="@").encode().replace(b"@", value)


NOT_AN_OBJECT = "not a JSON object"
NOT_UTF8 = "not UTF-8"
LONE = "a lone surrogate"
OUT_OF_RANGE = "event time is outside the years 1900 to 9998"

STRUCTURE = [
    good_line("columns that nobody asked for", record(other={"a": {"b": [{}]}}, more=10**400), user="u"),
    good_line("the last of a repeated name", record_with("user", '"u", "user": "v"'), user="v"),
    good_line("the last of a repeated name, looked at twice", record_with("user", '"u", "user": "7"'), user="7"),
    good_line("blanks around it", f"  {record()} \t\r", user="u"),
    good_line("an escaped name", record(user="v").replace('"user"', r'"us\u0065r"'), user="v"),
    bad_line("torn", record()[:-5], NOT_AN_OBJECT),
    bad_line("two on a line", record() + record(), NOT_AN_OBJECT),
    bad_line("two with a comma", f"{record()},{record()}", NOT_AN_OBJECT),
    bad_line("two with a blank", f"{record()} {record()}", NOT_AN_OBJECT),
    bad_line("something after it", f"{record()} x", NOT_AN_OBJECT),
    bad_line("null after it", f"{record()},null", NOT_AN_OBJECT),
    bad_line("array", f"[{record()}]", NOT_AN_OBJECT),
    bad_line("null", "null", NOT_AN_OBJECT),
    bad_line("number", "17", NOT_AN_OBJECT),
    bad_line("string", '"x"', NOT_AN_OBJECT),
    bad_line("single quotes", record().replace('"', "'"), NOT_AN_OBJECT),
    bad_line("trailing comma", record().replace('"u"', '"u",'), NOT_AN_OBJECT),
    bad_line("bare NaN", record_with("x", "NaN"), NOT_AN_OBJECT),
    bad_line("control characters", "\x00\x01", NOT_AN_OBJECT),
    bad_line("other white space", "\x0c", NOT_AN_OBJECT),
    bad_line("a comment", f"{record()} // x", NOT_AN_OBJECT),
    bad_line("an unknown escape", record_with("user", r'"\x"'), NOT_AN_OBJECT),
    bad_line("a tab in a string", record_with("user", '"a\tb"'), NOT_AN_OBJECT),
    bad_line("no JSON where nobody looks", record_with("other", "NaN"), NOT_AN_OBJECT),
    good_line("nested deep", record_with("other", "[" * 500 + "]" * 500), user="u"),
    bad_line("nested too deep", record_with("other", "[" * 2000 + "]" * 2000), NOT_AN_OBJECT),
    good_line("a repeated name, first of another type", record_with("n", '"x", "n": 1'), n=1),
    good_line("another case is another name", record(User="v"), user="u"),
    bad_line("no event time", json.dumps({"user": "u"}), "event time is null"),
    bad_line("null event time", record(time=None), "event time is null"),
    bad_line("no key", json.dumps({"time": T}), "key is null: user"),
    bad_line("an empty object", "{}", "event time is null"),
]

VALUES = [
    good_line("null everywhere else", record(n=None, x=None, ok=None), n=None, x=None),
    good_line("int for float", record(x=2), x=2.0),
    good_line("more than a double holds", record_with("x", "1e400"), x=float("inf")),
    good_line("less than a double holds", record_with("x", "1e-400"), x=0.0),
    good_line("400 digits", record_with("x", "9" * 400), x=float("inf")),
    good_line("400 digits behind a minus", record_with("x", "-" + "9" * 400), x=float("-inf")),
    good_line("more digits than Python reads", record_with("x", "9" * 5000), x=float("inf")),
    good_line("more digits than Python reads where nobody looks", record_with("other", "9" * 5000), user="u"),
    bad_line("400 digits in int", record_with("n", "9" * 400), "column n: not an int"),
    bad_line("more digits than Python reads in int", record_with("n", "9" * 5000), "column n: not an int"),
    good_line("a zero with a minus", record_with("n", "-0"), n=0),
    bad_line("zeros in front", record_with("n", "007"), NOT_AN_OBJECT),
    bad_line("a point without digits", record_with("x", ".5"), NOT_AN_OBJECT),
    good_line("the least int", record(n=-(2**63)), n=-(2**63)),
    good_line("the largest int", record(n=2**63 - 1), n=2**63 - 1),
    bad_line("fraction in int", record(n=3.5), "column n: not an int"),
    bad_line("3.0 in int", record(n=3.0), "column n: not an int"),
    bad_line("exponent in int", record_with("n", "1e3"), "column n: not an int"),
    bad_line("more than 64 bits", record(n=2**63), "column n: not an int"),
    bad_line("string in int", record(n="3"), "column n: not an int"),
    bad_line("bool in int", record(n=True), "column n: not an int"),
    bad_line("string in float", record(x="2.5"), "column x: not a float"),
    bad_line("NaN string in float", record(x="NaN"), "column x: not a float"),
    bad_line("empty string in float", record(x=""), "column x: not a float"),
    bad_line("string in bool", record(ok="true"), "column ok: not a bool"),
    bad_line("number in bool", record(ok=1), "column ok: not a bool"),
    bad_line("two wrong columns: the first declared", record(n="1", x="1"), "column n: not an int"),
]

STRINGS = [
    good_line("string that looks like a number", record(user="5"), user="5"),
    good_line("string that looks like an object", record(user='{"a":1}'), user='{"a":1}'),
    good_line("string that looks like a bool", record(user="true"), user="true"),
    good_line("braces inside a string", record(user="}{"), user="}{"),
    good_line("brackets behind an escaped quote", record(user="u", other='"' + "[" * 2000), user="u"),
    good_line("brackets behind a backslash", record(user="u", other="\\" + "[" * 2000), user="u"),
    good_line("an empty string is a value", record(user=""), user=""),
    good_line("escaped NUL", record(user="a\0b"), user="a\0b"),
    good_line("surrogates that are a pair", record(user="\U0001f600"), user="\U0001f600"),
    good_line("the same as bytes", user("\U0001f600".encode()), user="\U0001f600"),
    good_line("what only looks like a surrogate", record(user=r"\ud800"), user=r"\ud800"),
    bad_line("number in string", record(user=5), "column user: not a string"),
    bad_line("bool in string", record(user=True), "column user: not a string"),
    bad_line("object in string", record(user={"a": 1}), "column user: not a string"),
    bad_line("array in string", record(user=["a"]), "column user: not a string"),
    bad_line("first half of a character", record(user="\ud800"), LONE),
    bad_line("second half of a character", record(user="a\udc00b"), LONE),
    bad_line("halves in the wrong order", record(user="\udc00\ud83d"), LONE),
    bad_line("half a character where nobody looks", record(other="\udbff"), LONE),
    bad_line("half a character behind a backslash", record(user="\\\ud800"), LONE),
    bad_line("bytes that are no UTF-8", user(b"a\xffb"), NOT_UTF8),
    bad_line("other bytes that are no UTF-8", user(b"a\xfeb"), NOT_UTF8),
    bad_line("a character that was cut off", user(b"\xe2\x82"), NOT_UTF8),
    bad_line("a longer form of a character", user(b"\xc0\xaf"), NOT_UTF8),
    bad_line("half a character as bytes", user(b"\xed\xa0\x80"), NOT_UTF8),
    bad_line("bytes where nobody looks", record(other="@").encode().replace(b"@", b"\xff"), NOT_UTF8),
    bad_line("bytes in a name", record(other=1).encode().replace(b"other", b"\xff"), NOT_UTF8),
    bad_line("bytes that are no JSON either", b'{"time": \xff\xfe}', NOT_UTF8),
]

HOUR = 3_600_000_000
TIMES = [
    good_line("a time", record(), time=T_MICROS),
    good_line("without a zone: UTC", record(time="2013-01-01T05:00:00"), time=T_MICROS),
    good_line("a blank for the T", record(time="2013-01-01 05:00:00Z"), time=T_MICROS),
    good_line("a date", record(time="2013-01-01"), time=T_MICROS - 5 * HOUR),
    good_line("with an offset", record(time="2013-01-01T05:00:00+05:30"), time=T_MICROS - 5 * HOUR - HOUR // 2),
    good_line("to the microsecond", record(time="2013-01-01T05:00:00.000001Z"), time=T_MICROS + 1),
    good_line("cut to the microsecond", record(time="2013-01-01T05:00:00.000001999Z"), time=T_MICROS + 1),
    good_line("an hour alone", record(time="2013-01-01T05"), time=T_MICROS),
    good_line("blanks around a time", record(time="  2013-01-01T05:00:00Z "), time=T_MICROS),
    good_line("the end of a day", record(time="2013-01-01T24:00:00Z"), time=T_MICROS + 19 * HOUR),
    good_line("lower case", record(time="2013-01-01t05:00:00z"), time=T_MICROS),
    good_line("a comma before the fraction", record(time="2013-01-01 05:00:00,001"), time=T_MICROS + 1000),
    good_line("an offset behind a blank", record(time="2013-01-01 06:00:00 +0100"), time=T_MICROS),
    good_line("UTC behind a blank", record(time="2013-01-01 05:00:00 UTC"), time=T_MICROS),
    good_line("without dashes", record(time="20130101T050000Z"), time=T_MICROS),
    bad_line("behind the end of a day", record(time="2013-01-01T24:00:01Z"), "column time: not a timestamp"),
    bad_line("another zone by name", record(time="2013-01-01 05:00:00 CET"), "column time: not a timestamp"),
    bad_line("second 60", record(time="2012-02-29T23:59:60Z"), "column time: not a timestamp"),
    bad_line("one digit for a month", record(time="2013-1-1T05:00:00Z"), "column time: not a timestamp"),
    bad_line("without dashes, with colons", record(time="20130101T05:00:00Z"), "column time: not a timestamp"),
    bad_line("a date without dashes", record(time="20130101"), "column time: not a timestamp"),
    bad_line("number in timestamp", record(time=1357016400), "column time: not a timestamp"),
    bad_line("year in timestamp", record(time="2013"), "column time: not a timestamp"),
    bad_line("time of day in timestamp", record(time="05:00"), "column time: not a timestamp"),
    bad_line("no such day", record(time="2013-02-30T05:00:00Z"), "column time: not a timestamp"),
    bad_line("an empty string in timestamp", record(time=""), "column time: not a timestamp"),
    bad_line("before 1900", record(time="1899-12-31T23:59:59.999999Z"), OUT_OF_RANGE),
    bad_line("for never", record(time="9999-12-31T00:00:00Z"), OUT_OF_RANGE),
    bad_line("after 9999", record(time="+10000-01-01T00:00:00Z"), "column time: not a timestamp"),
]

LINES: list[Line] = [*STRUCTURE, *VALUES, *STRINGS, *TIMES]
