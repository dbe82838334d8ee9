"""Where in words: a window as an example, with the times at which it fires and expires."""

from datetime import UTC, datetime

from headrace.model.accumulation import How
from headrace.model.time import END_OF_CALENDAR, Duration, Instant, instant, render, render_duration
from headrace.model.watermarks import BoundedOutOfOrderness, Monotonic, WatermarkStrategy
from headrace.model.windows import WindowFn, window_at

_EXAMPLE = instant(datetime(2026, 1, 1, tzinfo=UTC))


def life(where: WindowFn, how: How, watermarks: list[WatermarkStrategy]) -> list[str]:
    """When an example of the windows is on time, and when it expires."""
    window = window_at(where, _EXAMPLE)
    if window is None:
        return []
    lines = [f"example: [{render(window.start)}, {render(window.end)})"]
    on_time = f"on time when the watermark passes {render(window.end)}"
    bound = _bound(watermarks)
    if bound is not None:
        on_time += f": once a record of {render(Instant(window.end + bound))} or later has been read"
    lines.append(f"  {on_time}")
    if how.allowed_lateness is None:
        return [*lines, "  never expires: its state is kept for good"]
    if window.end + how.allowed_lateness > END_OF_CALENDAR:
        return [*lines, f"  expires {render_duration(how.allowed_lateness)} after that"]
    end = render(Instant(window.end + how.allowed_lateness))
    return [*lines, f"  expires when the watermark passes {end}; what comes for it after that is dropped as late"]


def _bound(watermarks: list[WatermarkStrategy]) -> Duration | None:
    """How far the watermark is behind the newest record, if it is the only one and that is all that it follows."""
    match watermarks:
        case [BoundedOutOfOrderness() as strategy]:
            return strategy.bound
        case [Monotonic()]:
            return Duration(0)
    return None
