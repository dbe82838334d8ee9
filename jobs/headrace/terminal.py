"""Text that a terminal shows and does not obey."""


def visible(text: str) -> str:
    """``text``, in which what is no character to look at (ESC, NUL, marks that turn the direction of text round, halves
    of surrogate pairs) is written as Python writes it. Ends of lines and tabs stay.
    """
    return _written(text, kept="\n\t")


def in_one_line(text: str) -> str:
    """``visible``, and ends of lines and tabs are written as Python writes them, too."""
    return _written(text, kept="")


def _written(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in kept else repr(each)[1:-1] for each in text)
