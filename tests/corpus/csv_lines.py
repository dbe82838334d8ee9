"""Lines of a CSV file with the header ``HEADER``, without the line breaks behind them; ``UNCLOSED_QUOTES`` are last in
a file, since all that follows is part of them.
"""

from tests.corpus import T_MICROS, Line, T, bad_line, good_line

HEADER = "time,user,n,x,ok"
FIELDS = "not 5 fields, as the header has"
ODD, OPEN = "a quote is not closed on its line", "a quote is not closed before the file ends"
LOOSE = "quotes with a line break in them do not enclose their field"

LINES: list[Line] = [
    good_line("plain", f"{T},u,1,2.5,true", time=T_MICROS, user="u", n=1, x=2.5),
    good_line("quotes and commas in quotes", f'{T},"w, ""q""",1,2,true', user='w, "q"'),
    good_line("quoted values of every type", f'"{T}","u","1","2","true"', time=T_MICROS, n=1, x=2.0),
    good_line("empty fields are NULL", f"{T},u,,,", n=None, x=None),
    good_line("signs and exponents", f"{T},u,+1,-1e3,N", n=1, x=-1000.0),
    good_line("a carriage return behind it", f"{T},v,1,2,true\r", user="v"),
    good_line("quotes inside a field", f'{T},a"b"c,1,2,true', user='a"b"c'),
    good_line("quotes around the beginning of a field", f'{T},"a, "b,1,2,true', user='"a, "b'),
    good_line("quotes around the end of a field", f'{T},a "b",1,2,true', user='a "b"'),
    good_line("blanks behind quotes", f'{T},"a" ,1,2,true', user="a"),
    good_line("two quotes inside a field", f'{T},a"b",1,2,true', user='a"b"'),
    good_line("a line break in quotes", f'{T},"a\nb",1,2,true', user="a\nb"),
    good_line("every line break there is", f'"{T}","a\r\nb\rc\n\n d\n",1,2,true', user="a\r\nb\rc\n\n d\n"),
    good_line("what looks like a record", f'{T},"a\n{T},v,1,2,true\n",1,2,true', user=f"a\n{T},v,1,2,true\n"),
    good_line("what looks like the header", f'{T},"a\n{HEADER}\n",1,2,true', user=f"a\n{HEADER}\n"),
    good_line("quotes before and behind a line break", f'{T},"""\n""",1,2,true', user='"\n"'),
    good_line("a quoted comma before a line break", f'{T},"a,"",\n,",1,2,true', user='a,",\n,'),
    good_line("line breaks in two fields", f'{T},"a\nb","1\n",2,"\ntrue"', user="a\nb", n=1),
    good_line("a line break, and blanks behind quotes", f'{T},"a\nb" \t,1,2,true', user="a\nb"),
    bad_line("a line break, and a field too many", f'{T},"a\nb",1,2,true,x', FIELDS),
    bad_line("a line break, and text behind quotes", f'{T},"a\nb"c,1,2,true', LOOSE),
    bad_line("a line break, and another kind", f'{T},"a\nb","1\n3",2,true', "column n: not an int"),
    bad_line(
        "bytes that are no UTF-8 behind a line break",
        f'{T},"a\n@",1,2,true'.encode().replace(b"@", b"\xff"),
        "not UTF-8",
    ),
    bad_line("a quote inside a field opens nothing", f'{T},a"b,1,2,true', ODD),
    bad_line("a quote behind a blank opens nothing", f'{T}, "b,1,2,true', ODD),
    good_line("blanks are kept in strings, not in others", f" {T} , u , 1 , 2 , true ", user=" u ", n=1, time=T_MICROS),
    good_line("more than a double holds", f"{T},u,1,1e400,true", x=float("inf")),
    good_line("a byte order mark that begins no file", f"{T},\ufeffu,1,2,true", user="\ufeffu"),
    bad_line("a byte order mark before a line", f"\ufeff{T},u,1,2,true", "column time: not a timestamp"),
    good_line("a backslash", f"{T},a\\,1,2,true", user="a\\"),
    good_line("a text like any other", f"{T},null,1,2,true", user="null"),
    bad_line("a backslash is no escape", f'{T},"a\\"b",1,2,true', ODD),
    bad_line("an empty field in quotes is NULL too", f'{T},"",1,2,true', "key is null: user"),
    bad_line("a field too few", f"{T},u,1", FIELDS),
    bad_line("a field too many", f"{T},u,1,2,true,x", FIELDS),
    bad_line("3.0 in int", f"{T},u,3.0,2,true", "column n: not an int"),
    bad_line("more than 64 bits", f"{T},u,{2**63},2,true", "column n: not an int"),
    bad_line("a suffix of Java", f"{T},u,1,2d,true", "column x: not a float"),
    bad_line("no bool", f"{T},u,1,2,maybe", "column ok: not a bool"),
    bad_line("time of day in timestamp", "05:00,u,1,2,true", "column time: not a timestamp"),
    bad_line("no event time", ",u,1,2,true", "event time is null"),
    bad_line("no key", f"{T},,1,2,true", "key is null: user"),
    bad_line("nothing at all", ",,,,", "event time is null"),
    bad_line("bytes that are no UTF-8", f"{T},@,1,2,true".encode().replace(b"@", b"a\xffb"), "not UTF-8"),
    bad_line("other bytes that are no UTF-8", f"{T},@,1,2,true".encode().replace(b"@", b"a\xfeb"), "not UTF-8"),
]

UNCLOSED_QUOTES: list[Line] = [
    bad_line("an open quote", f'{T},u,1,2,"true', OPEN),
    bad_line("one behind a quote inside a field", f'{T},a"b,1,2,"true', OPEN),
    bad_line("an open quote and records", f'{T},u,1,2,"true\n{T},u,1,2,true\n{T},u,1,2,true', OPEN),
    bad_line("a doubled quote and records", f'{T},u,1,2,"tr""\n{T},u,1,2,true', OPEN),
    bad_line("an open quote and a blank line", f'{T},u,1,2,"\n\n \n{HEADER}', OPEN),
]
