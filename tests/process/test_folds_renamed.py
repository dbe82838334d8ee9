"""What is folded of a definition's past has the columns of today, and readers find them."""

from pathlib import Path

from headrace import Pipeline, col, count
from headrace_lab.sizes import set_sizes
from tests.process.clicks import CLICKS, land, truth
from tests.process.executors import LOCAL
from tests.reading import read


@set_sizes(fanout=4)
def test_layers_of_another_definition_alone_are_not_folded(tmp_path: Path) -> None:
    for number in range(4):
        land(tmp_path, number, number + 1)
        LOCAL.run(CLICKS, tmp_path.as_uri(), publish=False)
    aggregation = CLICKS.stages[0].aggregation
    visits = Pipeline(
        CLICKS.name,
        CLICKS.inputs[0],
        key={"user": col("user")},
        where=aggregation.where,
        when=aggregation.when,
        how=aggregation.how,
        what={"visits": count(), "spent": col("price").sum()},
        renamed={"clicks": "visits"},
    )
    for number in range(4, 7):
        land(tmp_path, number, number + 1)
        LOCAL.run(visits, tmp_path.as_uri(), publish=False)
        rows = read(visits, tmp_path.as_uri(), "current", "main").to_pylist()
        found_rows = {(row["user"], row["window_start"]): (row["visits"], row["spent"]) for row in rows}
        assert found_rows == truth(number + 1)
