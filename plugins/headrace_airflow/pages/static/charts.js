// Pictures in SVG that follow the UI's theme: each says in words what it shows, and has its figures in a table beside.
import { C, h, moment, several } from "./ui.js";

const MUTED = "var(--chakra-colors-fg-muted)";
const BORDER = "var(--chakra-colors-border)";
export const COLORS = { data: "var(--chakra-colors-blue-solid, #3b82f6)", watermark: "var(--chakra-colors-red-solid, #dc2626)", late: "var(--chakra-colors-orange-solid, #ea580c)", rejected: MUTED };

function Picture({ width, height, label, children }) {
  return h("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, style: { width: "100%", maxWidth: `${width}px`, height: "auto", color: "inherit" } }, children);
}

const text = (key, x, y, value, anchor = "start") => h("text", { key, x, y, style: { fontSize: "11px" }, fill: MUTED, textAnchor: anchor }, value);

// Event time against processing time: each epoch is a line, its bar the event times that it took in, the red step the
// watermark after it.
export function EventTimes({ epochs }) {
  const known = (value) => value && !value.includes("inf");
  const times = epochs.flatMap((one) => [one.min_event_time, one.max_event_time, one.watermark]).filter(known).map(Date.parse);
  if (!times.length) return h(C.Text, { color: "fg.muted" }, "No epoch has taken in an element yet.");
  const [low, high] = [Math.min(...times), Math.max(...times)];
  const width = 860;
  const [left, line] = [190, Math.max(8, Math.min(22, 420 / epochs.length))];
  const height = 34 + line * epochs.length;
  const x = (value) => left + ((Date.parse(value) - low) / Math.max(1, high - low)) * (width - left - 20);
  const y = (at) => height - 24 - line * (at + 1);
  const every = Math.ceil(epochs.length / 14);
  let path = "";
  epochs.forEach((one, at) => {
    if (known(one.watermark)) path += `${path ? "V" : `M${x(one.watermark)},`}${y(at) + line}${path ? `H${x(one.watermark)}` : ""}V${y(at)}`;
  });
  return h(
    Picture,
    { width, height, label: `Event time against processing time of ${several(epochs.length, "epoch")}, with the watermark` },
    [
      h("line", { key: "axis", x1: left, x2: width - 20, y1: height - 22, y2: height - 22, stroke: BORDER }),
      text("low", left, height - 6, moment(new Date(low).toISOString())),
      text("high", width - 20, height - 6, moment(new Date(high).toISOString()), "end"),
      ...epochs.map((one, at) =>
        known(one.min_event_time)
          ? h("rect", { key: `bar${one.epoch}`, x: x(one.min_event_time), y: y(at) + 1, height: line - 2, width: Math.max(2, x(one.max_event_time) - x(one.min_event_time)), fill: COLORS.data, opacity: 0.65 }, h("title", null, `epoch ${one.epoch}: ${moment(one.min_event_time)} to ${moment(one.max_event_time)}`))
          : null,
      ),
      ...epochs.map((one, at) => (at % every ? null : text(`e${one.epoch}`, left - 6, y(at) + line - 3, `${one.epoch} · ${moment(one.processing_time)}`, "end"))),
      h("path", { key: "watermark", d: path, fill: "none", stroke: COLORS.watermark, strokeWidth: 2 }),
    ],
  );
}

// Bars of one figure of each epoch.
export function Bars({ epochs, value, label, color = COLORS.data }) {
  const most = Math.max(0, ...epochs.map(value));
  const said = most ? `at most ${most.toLocaleString("en")}` : "none";
  const [width, height] = [420, 90];
  const step = (width - 10) / Math.max(epochs.length, 1);
  return h(
    Picture,
    { width, height, label: `${label} of ${several(epochs.length, "epoch")}, ${said}` },
    [
      text("most", 0, 11, `${label}: ${said}`),
      ...epochs.map((one, at) => {
        const tall = (value(one) / (most || 1)) * (height - 24);
        return h("rect", { key: one.epoch, x: 5 + at * step, width: Math.max(1, step - 1), y: height - 4 - tall, height: Math.max(tall, 0.5), fill: color }, h("title", null, `epoch ${one.epoch}: ${value(one).toLocaleString("en")}`));
      }),
      h("line", { key: "axis", x1: 0, x2: width, y1: height - 3, y2: height - 3, stroke: BORDER }),
    ],
  );
}

// A figure of versions, oldest first, beside what was usual then: a line with a dot for each version, red or orange where
// it is not as usual; the dashed line is the usual.
export function BesideUsual({ points, label, shown }) {
  const [width, height, left] = [420, 110, 60];
  const most = Math.max(...points.flatMap((one) => [one.observed, one.usual ?? 0]), Number.MIN_VALUE) * 1.05;
  const x = (at) => left + (points.length < 2 ? 0 : (at / (points.length - 1)) * (width - left - 10));
  const y = (value) => 18 + (1 - value / most) * (height - 24);
  const line = (of) => points.map((one, at) => [at, of(one)]).filter(([, value]) => value !== null).map(([at, value]) => `${x(at)},${y(value)}`).join(" ");
  const far = points.filter((one) => one.severity).length;
  return h(
    Picture,
    { width, height, label: `${label} of ${several(points.length, "version")} beside the usual; ${far} not as usual` },
    [
      text("label", 0, 11, label),
      text("most", left - 4, y(most) + 8, shown(most), "end"),
      text("none", left - 4, y(0), shown(0), "end"),
      h("line", { key: "axis", x1: left, x2: width, y1: y(0), y2: y(0), stroke: BORDER }),
      h("polyline", { key: "usual", points: line((one) => one.usual), fill: "none", stroke: MUTED, strokeDasharray: "4 3" }),
      h("polyline", { key: "observed", points: line((one) => one.observed), fill: "none", stroke: COLORS.data, strokeWidth: 1.5 }),
      ...points.map((one, at) => h("circle", { key: one.until, cx: x(at), cy: y(one.observed), r: one.severity ? 4 : 2.5, fill: { fail: COLORS.watermark, warn: COLORS.late }[one.severity] ?? COLORS.data }, h("title", null, `${moment(one.finished_at)}: ${one.said}`))),
    ],
  );
}

// Lanes of the branch graph: for each snapshot (newest first) its lane, and the lines to its parent.
export function lanes(snapshots) {
  const open = []; // by lane: the snapshot that is awaited there
  const placed = new Map();
  snapshots.forEach((one, row) => {
    let lane = open.indexOf(one.snapshot);
    if (lane < 0) lane = open.includes(undefined) ? open.indexOf(undefined) : open.length;
    open.forEach((awaited, at) => {
      if (awaited === one.snapshot) open[at] = undefined;
    });
    open[lane] = one.parent ?? undefined;
    placed.set(one.snapshot, { lane, row });
  });
  return { placed, width: Math.max(1, open.length) };
}

export function BranchGraph({ snapshots, chosen, choose }) {
  const { placed, width } = lanes(snapshots);
  const [gap, line, left] = [16, 26, 12];
  const height = line * snapshots.length + 8;
  const textAt = left + gap * width + 8;
  const x = (lane) => left + gap * lane;
  const y = (row) => 16 + line * row;
  return h(
    Picture,
    { width: 900, height, label: `History of ${several(snapshots.length, "snapshot")}, the newest first` },
    [
      ...snapshots.map((one) => {
        const [from, to] = [placed.get(one.snapshot), placed.get(one.parent)];
        if (!one.parent) return null;
        const [endX, endY] = to ? [x(to.lane), y(to.row)] : [x(from.lane), height];
        return h("path", { key: `edge${one.snapshot}`, d: `M${x(from.lane)},${y(from.row)}C${x(from.lane)},${y(from.row) + 18} ${endX},${endY - 18} ${endX},${endY}`, fill: "none", stroke: MUTED });
      }),
      ...snapshots.map((one) => {
        const { lane, row } = placed.get(one.snapshot);
        const names = one.refs.length ? ` · ${one.refs.join(", ")}` : "";
        return h(
          "g",
          { key: one.snapshot, role: "button", tabIndex: 0, "aria-label": `snapshot ${one.snapshot}, epoch ${one.epoch}${names}`, style: { cursor: "pointer" }, onClick: () => choose(one.snapshot), onKeyDown: (event) => event.key === "Enter" && choose(one.snapshot) },
          h("circle", { cx: x(lane), cy: y(row), r: 5, fill: one.reached ? COLORS.data : "none", stroke: one.snapshot === chosen ? COLORS.watermark : COLORS.data, strokeWidth: 2 }),
          h("text", { x: textAt, y: y(row) + 4, style: { fontSize: "12px" }, fill: "currentColor", opacity: one.reached ? 1 : 0.6 }, `${one.epoch} · ${one.branch} · ${one.snapshot} · ${moment(one.at)}${names}`),
        );
      }),
    ],
  );
}
