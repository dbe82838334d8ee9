"""Methods of every expression, by what it is: a number, a text, a time, or what is aggregated."""
