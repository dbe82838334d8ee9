"""Final rows go to a function that cannot take them back: each at least once, and nothing goes back below them."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headrace as hr
from headrace.errors import DeliveredError, NeverFinalError, PipelineError, RefusedError, RetryError, SinkFailedError
from headrace.ext.sinks import ChangeSource, FinalRows, SinkRefusedError
from headrace.testing.connectors.worlds import SinkDeployment, order
from tests.sinks.worlds import DeltaWorld

SentRows = list[tuple[str, str, int, int]]


class Mailing(ModuleType):
    """A module of the user's that keeps what it got. ``fails_at``: the row at which it raises."""

    def __init__(self) -> None:
        super().__init__("mailing")
        self.sent_rows: SentRows = []
        self.fails_at: int | None = None
        self.error: BaseException = OSError("the mail server is down")

    def send(self, rows: FinalRows) -> None:
        """Send each row."""
        assert len(rows) == rows.number
        for number, row in enumerate(rows):
            if number == self.fails_at:
                raise self.error
            self.sent_rows.append((row["_id"], row["user"], row["window_end"].hour, row["spent"]))


@pytest.fixture
def mailing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailing]:
    module = Mailing()
    monkeypatch.setitem(sys.modules, "mailing", module)
    yield module


@pytest.fixture
def deployment(tmp_path: Path) -> SinkDeployment:
    return SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path)


def billed_sales(deployment: SinkDeployment, **parts: Any) -> hr.Pipeline:
    """Sales by user and hour, which are final as soon as the watermark has passed the hour."""
    return deployment.sales(sinks=(hr.final_rows("mailing:send"),), how=hr.retracting(), **parts)


def run(deployment: SinkDeployment, pipeline: hr.Pipeline, name: str, *records: dict[str, Any]) -> str:
    deployment.land(name, *records)
    return str(deployment.handle(pipeline).run().snapshot)


def refs(deployment: SinkDeployment) -> dict[str, str]:
    head = hr.open(deployment.folder.as_uri())["sales"].catalog.head()
    return {ref: snapshot for ref, snapshot in head.refs.items() if "deliver" in ref}


def test_each_row_comes_once_it_is_final(deployment: SinkDeployment, mailing: Mailing) -> None:
    sales = billed_sales(deployment)
    assert deployment.deliver(sales).source is None
    run(deployment, sales, "1", order("ann", 5, 10), order("bob", 10, 20), order("ann", 65, 30))
    assert deployment.deliver(sales).written == 0  # the watermark stands at 00:55
    assert refs(deployment) == {}
    second = run(deployment, sales, "2", order("ann", 6, 1), order("ann", 75, 1))
    delivery = deployment.deliver(sales)
    assert (delivery.source, delivery.written, delivery.after) == (ChangeSource.FINAL_ROWS, 2, second)
    assert "cannot take back" in delivery.describe()
    assert [row[1:] for row in mailing.sent_rows] == [("ann", 1, 11), ("bob", 1, 20)]
    assert deployment.deliver(sales).source is None
    third = run(deployment, sales, "3", order("bob", 140, 5))
    assert deployment.deliver(sales).written == 1
    assert [row[1:] for row in mailing.sent_rows[2:]] == [("ann", 2, 31)]
    assert len({row[0] for row in mailing.sent_rows}) == 3
    assert refs(deployment) == {"delivering/send": third, "delivered/send": third}


@pytest.mark.parametrize("error", [OSError("the mail server is down"), KeyboardInterrupt()])
def test_a_delivery_that_breaks_off_comes_again_with_the_same_ids(
    deployment: SinkDeployment, mailing: Mailing, error: BaseException
) -> None:
    sales = billed_sales(deployment)
    first = run(deployment, sales, "1", order("ann", 5), order("bob", 10), order("ann", 75))
    mailing.fails_at, mailing.error = 1, error
    with pytest.raises((SinkFailedError, KeyboardInterrupt)):
        deployment.deliver(sales)
    assert refs(deployment) == {"delivering/send": first}
    with pytest.raises(RefusedError, match=r"sink send, which cannot take them back.*--give-up-delivered"):
        deployment.handle(sales).rollback(to="beginning", message="all of it")
    mailing.fails_at = None
    run(deployment, sales, "2", order("bob", 140))
    assert deployment.deliver(sales).written == 3
    assert mailing.sent_rows[0] == mailing.sent_rows[1]
    assert [row[1] for row in mailing.sent_rows] == ["ann", "ann", "bob", "ann"]


def test_nothing_goes_below_what_was_handed_over_unless_it_is_given_up(
    deployment: SinkDeployment, mailing: Mailing
) -> None:
    sales = billed_sales(deployment)
    handle = deployment.handle(sales)
    first = run(deployment, sales, "1", order("ann", 5, 10), order("ann", 75))
    second = run(deployment, sales, "2", order("bob", 76), order("ann", 140))
    deployment.deliver(sales)
    run(deployment, sales, "3", order("bob", 141))
    handle.rollback(to=second, message="not below")
    for attempt in (
        lambda: handle.rollback(to=first, message="below"),
        lambda: handle.rollback(to="beginning", dry_run=True),
        lambda: handle.recover(first),
    ):
        with pytest.raises(RefusedError, match="--give-up-delivered"):
            attempt()
    with pytest.raises(DeliveredError, match="--give-up-delivered"):
        handle.backfill(promote=True)
    assert handle.show("main").snapshot_id == second

    told_lines = handle.rollback(to=first, give_up_delivered=True, dry_run=True).told
    assert [line for line in told_lines if "sink send" in line]
    handle.rollback(to=first, message="below", give_up_delivered=True)
    assert refs(deployment) == {"delivered/send": first, "delivering/send": first}
    handle.run()
    assert deployment.deliver(sales).written == 2  # those that are final again; the one of first stays delivered
    assert mailing.sent_rows[1:3] == mailing.sent_rows[3:5]

    handle.backfill(branch="again")
    (refusal,) = handle.promote("again", dry_run=True).refusals
    assert isinstance(refusal, DeliveredError)
    assert handle.promote("again", dry_run=True, give_up_delivered=True).refusals == ()
    with pytest.raises(DeliveredError, match="--give-up-delivered"):
        handle.promote("again")
    handle.promote("again", give_up_delivered=True)
    assert refs(deployment) == {}
    assert deployment.deliver(sales).written == 3
    assert {row[0] for row in mailing.sent_rows[5:]} == {row[0] for row in mailing.sent_rows[:5]}


def test_an_output_is_not_computed_again_behind_what_was_handed_over(
    deployment: SinkDeployment, mailing: Mailing
) -> None:
    def with_outputs(**options: Any) -> hr.Pipeline:
        made_sales = deployment.sales()
        of_users = {
            "key": made_sales.key,
            "what": made_sales.what,
            "where": made_sales.where,
            "when": made_sales.when,
            "how": hr.retracting(),
        }
        outputs = {
            "mailed": hr.Output(**of_users, sinks=[hr.final_rows("mailing:send")], **options),
            "counted": hr.Output(**of_users),
        }
        return hr.Pipeline("sales", made_sales.input, outputs=outputs, executor="local")

    sales = with_outputs()
    run(deployment, sales, "1", order("ann", 5, 10), order("bob", 10, 20), order("ann", 75, 30))
    (delivery,) = deployment.handle(sales).deliver(output="mailed")
    assert delivery.written == 2
    changed_sales = with_outputs(filter=hr.col("price") > 15)
    handle = deployment.handle(changed_sales)
    handle.run()
    with pytest.raises(DeliveredError, match=r"sink send, .*promote sales\.mailed BRANCH --give-up-delivered"):
        handle.backfill(output="mailed", promote=True)
    handle.backfill(output="mailed", branch="again")
    (refusal,) = handle.promote("again", output="mailed", dry_run=True).refusals
    assert handle.promote("again", output="mailed", dry_run=True, give_up_delivered=True).refusals == ()
    with pytest.raises(DeliveredError, match=re.escape(str(refusal))):
        handle.promote("again", output="mailed")
    handle.promote("again", output="mailed", give_up_delivered=True)
    handle.run()
    (delivery,) = handle.deliver(output="mailed")
    assert delivery.written == 0, "the one that is left was sent"
    assert [row[1] for row in mailing.sent_rows] == ["ann", "bob"]


@pytest.mark.parametrize("promotes", [False, True], ids=["on main", "on a branch"])
def test_a_row_has_the_same_id_whatever_its_output_is_called(
    deployment: SinkDeployment, mailing: Mailing, promotes: bool
) -> None:
    """It has no name at first, then one, then another one; from the beginning all come again with the ids they had."""
    plain = billed_sales(deployment)
    of_users = {"key": plain.key, "what": plain.what, "where": plain.where, "when": plain.when, "how": plain.how}

    def sales_with_output(name: str, formerly: str) -> hr.Pipeline:
        output = hr.Output(**of_users, sinks=plain.sinks, formerly=formerly)
        return hr.Pipeline("sales", plain.input, outputs={name: output}, executor="local")

    run(deployment, plain, "1", order("ann", 5, 10), order("ann", 75))
    assert deployment.deliver(plain).written == 1
    for number, pipeline in enumerate((sales_with_output("hourly", ""), sales_with_output("hours", "hourly")), start=2):
        assert deployment.deliver(pipeline).written == 0, "no run has given it its name"
        deployment.land(str(number), order("ann", 60 * number + 15))
        if promotes:
            deployment.handle(pipeline).fork("main", "other")
            deployment.handle(pipeline).run(branch="other")
            deployment.handle(pipeline).promote("other")
        else:
            deployment.handle(pipeline).run()
        assert deployment.deliver(pipeline).written == 1
    assert {*refs(deployment)} == {"delivering/hours/send", "delivered/hours/send"}
    rows_of_first_run = [*mailing.sent_rows]
    assert [row[2] for row in rows_of_first_run] == [1, 2, 3]
    deployment.handle(pipeline).rollback(to="beginning", message="all of it", give_up_delivered=True)
    deployment.handle(pipeline).run()
    assert deployment.deliver(pipeline).written == 3
    assert mailing.sent_rows == [*rows_of_first_run, *rows_of_first_run]


def test_sinks_of_two_outputs_are_called_otherwise(deployment: SinkDeployment) -> None:
    plain = billed_sales(deployment)
    output = hr.Output(key="user", what=plain.what, where=plain.where, when=plain.when, sinks=plain.sinks)
    with pytest.raises(PipelineError, match=r"ids of their rows; give one of them a name="):
        hr.Pipeline("sales", plain.input, outputs={"a": output, "b": output})


def test_expiry_keeps_what_the_next_delivery_goes_out_from(deployment: SinkDeployment, mailing: Mailing) -> None:
    sales = billed_sales(deployment)
    handle = deployment.handle(sales)
    run(deployment, sales, "1", order("ann", 5), order("ann", 75))
    deployment.deliver(sales)
    for number in range(2, 5):
        run(deployment, sales, str(number), order("ann", 60 * number + 20))
        handle.expire(keep_last=1)
        handle.expire(keep_last=1)
    assert deployment.deliver(sales).written == 3
    assert [row[2] for row in mailing.sent_rows] == [1, 2, 3, 4]


def test_a_row_that_is_patched_comes_with_the_id_that_it_had(deployment: SinkDeployment, mailing: Mailing) -> None:
    sales = billed_sales(deployment)
    handle = deployment.handle(sales)
    run(deployment, sales, "1", order("ann", 5, 10), order("bob", 6, 20), order("ann", 75))
    deployment.deliver(sales)
    run(deployment, sales, "2", order("ann", 7, 1), order("ann", 76))  # the first one is late
    assert deployment.deliver(sales).source is None
    handle.run(mode="batch", branch="whole")
    handle.promote("whole", patch=True)
    assert deployment.deliver(sales).written == 1
    ann, bob, patched_row = mailing.sent_rows
    assert (ann[1:], bob[1:], patched_row[1:]) == (("ann", 1, 10), ("bob", 1, 20), ("ann", 1, 11))
    assert patched_row[0] == ann[0] != bob[0]


def test_a_sink_that_is_gone_is_dropped(deployment: SinkDeployment, mailing: Mailing) -> None:
    sales = billed_sales(deployment)
    handle = deployment.handle(sales)
    run(deployment, sales, "1", order("ann", 5), order("ann", 75))
    deployment.deliver(sales)
    for ref in ("delivering/send", "delivered/send"):
        assert handle.drop(ref).branch is None
    handle.rollback(to="beginning", message="nobody has it any more")
    assert refs(deployment) == {}


def test_what_is_never_final_and_what_cannot_be_imported(deployment: SinkDeployment, mailing: Mailing) -> None:
    sales = deployment.sales(sinks=(hr.final_rows("mailing:send"),), how=hr.retracting(allowed_lateness=None))
    run(deployment, sales, "1", order("ann", 5))
    with pytest.raises(NeverFinalError, match="allowed_lateness"):
        deployment.deliver(sales)
    wrong = {"mailing:nothing": "module mailing has no function nothing", "nowhere:send": "cannot be imported"}
    for function, message in wrong.items():
        with pytest.raises(SinkRefusedError, match=message):
            deployment.deliver(deployment.sales(sinks=(hr.final_rows(function),)))
    with pytest.raises(PipelineError, match="module:function"):
        hr.final_rows("send")


def test_a_delivery_that_another_one_overtook_says_so(deployment: SinkDeployment, mailing: Mailing) -> None:
    sales = billed_sales(deployment)
    run(deployment, sales, "1", order("ann", 5), order("ann", 75))
    inner: list[hr.types.Delivery] = []
    send = mailing.send

    def overtaken(rows: FinalRows) -> None:
        mailing.send = send  # type: ignore[method-assign]
        run(deployment, sales, "2", order("ann", 140))
        inner.append(deployment.deliver(sales))
        send(rows)

    mailing.send = overtaken  # type: ignore[method-assign]
    with pytest.raises(RetryError):
        deployment.deliver(sales)
    assert inner[0].written == 2
    assert deployment.deliver(sales).source is None
