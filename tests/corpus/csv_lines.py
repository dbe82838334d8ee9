"""Lines of a CSV file with the header ``HEADER``, without the line breaks behind them; ``UNCLOSED`` are last in a file,
since all that follows is part of them.
"""

from tests.corpus import T_MICROS, Line, T, accepted, rejected

HEADER = "time,user,n,x,ok"
FIELDS = "not 5 fields, as the header has"
ODD, OPEN = "a quote is not closed on its line", "a quote is not closed before the file ends"
LOOSE = "quotes with a line break in them do not enclose their field"

LINES: list[Line] = [
    accepted("plain", f"{T},u,1,2.5,true", time=T_MICROS, user="u", n=1, x=2.5),
    accepted("quotes and commas in quotes", f'{T},"w, ""q""",1,2,true', user='w, "q"'),
    accepted("quoted values of every type", f'"{T}","u","1","2","true"', time=T_MICROS, n=1, x=2.0),
    accepted("empty fields are NULL", f"{T},u,,,", n=None, x=None),
    accepted("signs and exponents", f"{T},u,+1,-1e3,N", n=1, x=-1000.0),
    accepted("a carriage return behind it", f"{T},v,1,2,true\r", user="v"),
    accepted("quotes inside a field", f'{T},a"b"c,1,2,true', user='a"b"c'),
    accepted("quotes around the beginning of a field", f'{T},"a, "b,1,2,true', user='"a, "b'),
    accepted("quotes around the end of a field", f'{T},a "b",1,2,true', user='a "b"'),
    accepted("blanks behind quotes", f'{T},"a" ,1,2,true', user="a"),
    accepted("two quotes inside a field", f'{T},a"b",1,2,true', user='a"b"'),
    accepted("a line break in quotes", f'{T},"a\nb",1,2,true', user="a\nb"),
    accepted("every line break there is", f'"{T}","a\r\nb\rc\n\n d\n",1,2,true', user="a\r\nb\rc\n\n d\n"),
    accepted("what looks like a record", f'{T},"a\n{T},v,1,2,true\n",1,2,true', user=f"a\n{T},v,1,2,true\n"),
    accepted("what looks like the header", f'{T},"a\n{HEADER}\n",1,2,true', user=f"a\n{HEADER}\n"),
    accepted("quotes before and behind a line break", f'{T},"""\n""",1,2,true', user='"\n"'),
    accepted("a quoted comma before a line break", f'{T},"a,"",\n,",1,2,true', user='a,",\n,'),
    accepted("line breaks in two fields", f'{T},"a\nb","1\n",2,"\ntrue"', user="a\nb", n=1),
    accepted("a line break, and blanks behind quotes", f'{T},"a\nb" \t,1,2,true', user="a\nb"),
    rejected("a line break, and a field too many", f'{T},"a\nb",1,2,true,x', FIELDS),
    rejected("a line break, and text behind quotes", f'{T},"a\nb"c,1,2,true', LOOSE),
    rejected("a line break, and another kind", f'{T},"a\nb","1\n3",2,true', "column n: not an int"),
    rejected(
        "bytes that are no UTF-8 behind a line break",
        f'{T},"a\n@",1,2,true'.encode().replace(b"@", b"\xff"),
        "not UTF-8",
    ),
    rejected("a quote inside a field opens nothing", f'{T},a"b,1,2,true', ODD),
    rejected("a quote behind a blank opens nothing", f'{T}, "b,1,2,true', ODD),
    accepted("blanks are kept in strings, not in others", f" {T} , u , 1 , 2 , true ", user=" u ", n=1, time=T_MICROS),
    accepted("more than a double holds", f"{T},u,1,1e400,true", x=float("inf")),
    accepted("a byte order mark that begins no file", f"{T},\ufeffu,1,2,true", user="\ufeffu"),
    rejected("a byte order mark before a line", f"\ufeff{T},u,1,2,true", "column time: not a timestamp"),
    accepted("a backslash", f"{T},a\\,1,2,true", user="a\\"),
    accepted("a text like any other", f"{T},null,1,2,true", user="null"),
    rejected("a backslash is no escape", f'{T},"a\\"b",1,2,true', ODD),
    rejected("an empty field in quotes is NULL too", f'{T},"",1,2,true', "key is null: user"),
    rejected("a field too few", f"{T},u,1", FIELDS),
    rejected("a field too many", f"{T},u,1,2,true,x", FIELDS),
    rejected("3.0 in int", f"{T},u,3.0,2,true", "column n: not an int"),
    rejected("more than 64 bits", f"{T},u,{2**63},2,true", "column n: not an int"),
    rejected("a suffix of Java", f"{T},u,1,2d,true", "column x: not a float"),
    rejected("no bool", f"{T},u,1,2,maybe", "column ok: not a bool"),
    rejected("time of day in timestamp", "05:00,u,1,2,true", "column time: not a timestamp"),
    rejected("no event time", ",u,1,2,true", "event time is null"),
    rejected("no key", f"{T},,1,2,true", "key is null: user"),
    rejected("nothing at all", ",,,,", "event time is null"),
    rejected("bytes that are no UTF-8", f"{T},@,1,2,true".encode().replace(b"@", b"a\xffb"), "not UTF-8"),
    rejected("other bytes that are no UTF-8", f"{T},@,1,2,true".encode().replace(b"@", b"a\xfeb"), "not UTF-8"),
]

UNCLOSED: list[Line] = [
    rejected("an open quote", f'{T},u,1,2,"true', OPEN),
    rejected("one behind a quote inside a field", f'{T},a"b,1,2,"true', OPEN),
    rejected("an open quote and records", f'{T},u,1,2,"true\n{T},u,1,2,true\n{T},u,1,2,true', OPEN),
    rejected("a doubled quote and records", f'{T},u,1,2,"tr""\n{T},u,1,2,true', OPEN),
    rejected("an open quote and a blank line", f'{T},u,1,2,"\n\n \n{HEADER}', OPEN),
]
