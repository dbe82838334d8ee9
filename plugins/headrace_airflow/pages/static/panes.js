// Panes of one key as the Dataflow paper draws them: event time across, processing time upwards (each step is an epoch).
// A rectangle is a pane: over its window, from the pane before it (or the first elements) to the epoch that emitted it.
import { COLORS } from "./charts.js";
import { OutputChoice, outputOf } from "./outputs.js";
import { Answer, C, Rows, count, h, moment, query, several, useAnswer, useState, written } from "./ui.js";

const MUTED = "var(--chakra-colors-fg-muted)";
const BORDER = "var(--chakra-colors-border)";
const color = (name, fallback) => `var(--chakra-colors-${name}, ${fallback})`;
const TIMINGS = {
  EARLY: { name: "early", fill: color("blue-subtle", "#dfe9f5"), edge: color("blue-emphasized", "#7b9cc4"), dash: "4 3" },
  ON_TIME: { name: "on time", fill: color("blue-emphasized", "#a9c6e6"), edge: color("blue-fg", "#2f5f98") },
  LATE: { name: "late", fill: color("orange-muted", "#f8d9ae"), edge: color("orange-fg", "#c9781a"), dash: "1 2" },
};
// Text stays readable where the watermark crosses it.
const HALO = { paintOrder: "stroke", stroke: "var(--chakra-colors-bg)", strokeWidth: "3px", strokeLinejoin: "round" };
const RED = color("red-fg", "#c0292b");
const [WIDTH, LEFT, RIGHT, GAP, LINE, CALM] = [900, 190, 16, 26, 15, 5];
const EPOCHS = [50, 200, 500];

export function Panes({ dagId, summary, params, setParams }) {
  const epochs = EPOCHS.includes(Number(params.get("epochs"))) ? Number(params.get("epochs")) : EPOCHS[0];
  const output = outputOf(summary, params);
  const keys = useAnswer(`dags/${dagId}/panes/keys${query({ epochs, output })}`);
  // The only key is shown unasked. The address stays: keys that come late must not call back someone who has gone to another tab.
  const key = params.get("key") || (keys.answer?.keys.length === 1 ? keys.answer.keys[0].key : "");
  const panes = useAnswer(key && `dags/${dagId}/panes${query({ epochs, key, output })}`);
  const ask = (more) => setParams({ view: "panes", epochs, ...(key ? { key } : {}), ...(output ? { output } : {}), ...more });
  return h(
    C.Box,
    null,
    h(C.Text, { my: 3, color: "fg.muted" }, "When did each pane of a key come out, over which window, and where stood the watermark?"),
    h(OutputChoice, { summary, params, setParams }),
    h(C.HStack, { mb: 3 }, h(C.Text, null, "Newest epochs"), EPOCHS.map((number) => h(C.Button, { key: number, size: "xs", variant: number === epochs ? "solid" : "outline", "aria-pressed": number === epochs, onClick: () => ask({ epochs: number }) }, number))),
    h(Answer, { of: keys, isEmpty: (known) => !known?.keys.length, empty: withoutKeys(summary, keys.answer, epochs) }, (known) =>
      h(C.Box, null, h(Choice, { known, chosen: key, choose: (chosen) => ask({ key: chosen }) }), key ? h(Answer, { of: panes, isEmpty: (found) => !found?.panes.length, empty: `The last ${epochs} epochs have emitted no pane of this key. Look further back.` }, (found) => h(Drawn, { found, name: known.keys.find((one) => isKey(one, key))?.label ?? key })) : h(C.Text, { color: "fg.muted" }, "Choose a key.")),
    ),
  );
}

function withoutKeys(summary, known, epochs) {
  if (summary.epoch === null) return "There is no epoch yet.";
  // Columns of a key there are before any pane: without them an output gives rows.
  if (known && !known.columns.length) return "Rows have no key. The view panes has them, as they were given and withdrawn, and Compare those that differ.";
  return `The last ${epochs} epochs have emitted no pane. Look further back, or see under Explain what a window waits for.`;
}

const isKey = (one, text) => one.key === text || one.label === text;

// Which key: one of the list, or another if the list has not all.
function Choice({ known, chosen, choose }) {
  const listed = known.keys.find((one) => isKey(one, chosen));
  const [text, setText] = useState(listed ? "" : chosen);
  const label = known.columns.length ? `Key (${known.columns.join(", ")})` : "Key";
  return h(
    C.HStack,
    { align: "end", mb: 3, wrap: "wrap", gap: 4 },
    h(
      C.Field.Root,
      { maxW: "320px" },
      h(C.Field.Label, null, label),
      h(
        C.NativeSelect.Root,
        { size: "sm" },
        h(C.NativeSelect.Field, { value: listed?.key ?? "", onChange: (event) => event.target.value && choose(event.target.value) }, h("option", { value: "" }, "Choose…"), known.keys.map((one) => h("option", { key: one.key, value: one.key }, one.label))),
        h(C.NativeSelect.Indicator),
      ),
    ),
    known.has_more
      ? h(
          "form",
          { onSubmit: (event) => { event.preventDefault(); if (text) choose(text); } },
          h(C.HStack, { align: "end" }, h(C.Field.Root, { maxW: "320px" }, h(C.Field.Label, null, `Another key: there are more than these ${count(known.keys.length)}`), h(C.Input, { size: "sm", placeholder: 'a value, or JSON such as {"shop": "a"}', value: text, onChange: (event) => setText(event.target.value) })), h(C.Button, { size: "sm", type: "submit", variant: "outline" }, "Show")),
        )
      : null,
  );
}

function Drawn({ found, name }) {
  const [shown, setShown] = useState(found.columns[0]);
  const value = found.columns.includes(shown) ? shown : found.columns[0];
  return h(
    C.Box,
    null,
    found.columns.length > 1 ? h(C.HStack, { mb: 3, wrap: "wrap" }, h(C.Text, null, "Value"), found.columns.map((one) => h(C.Button, { key: one, size: "xs", variant: one === value ? "solid" : "outline", "aria-pressed": one === value, onClick: () => setShown(one) }, one))) : null,
    found.has_more ? h(C.Text, { role: "note", mb: 2 }, `These are the newest windows, with ${count(found.panes.length)} panes and retractions; older ones are left out.`) : null,
    h(Picture, { found, value, name }),
    h(Legend),
    h(C.Box, { as: "details", mt: 3 }, h("summary", { style: { cursor: "pointer" } }, "The same as a table"), h(Rows, { caption: `Panes of ${name}`, columns: columns(found), rows: [...found.panes].reverse() })),
  );
}

const columns = (found) => [
  ["Window", (one) => `${at(one.window_start)} to ${at(one.window_end)}`],
  ["Epoch", (one) => one.epoch, "end"],
  ["Processing time", (one) => moment(found.epochs.find((epoch) => epoch.epoch === one.epoch)?.processing_time)],
  ["Timing", (one) => TIMINGS[one.timing]?.name ?? one.timing],
  ["What", (one) => (one.is_retraction ? "retraction" : `pane ${one.pane_index}`)],
  ...found.columns.map((name) => [name, (one) => written(one.values[name]), "end"]),
];
const at = (time) => (time === null ? "ever" : moment(time));

function Legend() {
  const item = (label, drawing) => h(C.HStack, { key: label, gap: 1 }, h("svg", { width: 28, height: 16, "aria-hidden": true }, drawing), h(C.Text, { fontSize: "sm" }, label));
  return h(
    C.HStack,
    { wrap: "wrap", gap: 4, mt: 2 },
    Object.values(TIMINGS).map(({ name, fill, edge, dash }) => item(`${name} pane`, h("rect", { x: 1, y: 1, width: 26, height: 14, fill, stroke: edge, strokeDasharray: dash }))),
    item("retraction", h("line", { x1: 1, x2: 27, y1: 8, y2: 8, stroke: RED, strokeWidth: 3 })),
    item("watermark", h("line", { x1: 1, x2: 27, y1: 8, y2: 8, stroke: COLORS.watermark, strokeWidth: 2, strokeDasharray: "5 3" })),
  );
}

// Event time to a place across. Between windows that lie far apart the axis is cut: `breaks` are these places.
export function across(windows) {
  const known = windows.filter(([start, end]) => start !== null && end !== null).map((one) => one.map(Date.parse)).sort((a, b) => a[0] - b[0]);
  const spans = [];
  const longest = Math.max(1, ...known.map(([start, end]) => end - start));
  for (const [start, end] of known) {
    const last = spans[spans.length - 1];
    if (last && start - last[1] <= longest) last[1] = Math.max(last[1], end);
    else spans.push([start, end]);
  }
  const free = WIDTH - LEFT - RIGHT - GAP * Math.max(0, spans.length - 1);
  const total = spans.reduce((sum, [start, end]) => sum + end - start, 0);
  let from = LEFT;
  const places = spans.map(([start, end]) => {
    const to = from + (free * (end - start)) / total;
    const place = { start, end, from, to };
    from = to + GAP;
    return place;
  });
  const x = (time) => {
    const place = places.find((one) => time <= one.end);
    if (!place) return WIDTH - RIGHT;
    if (time >= place.start) return place.from + ((place.to - place.from) * (time - place.start)) / (place.end - place.start);
    const before = places[places.indexOf(place) - 1];
    return before ? before.to + (GAP * (time - before.end)) / (place.start - before.end) : LEFT;
  };
  return { x, places, breaks: places.slice(1).map((place) => place.from - GAP / 2) };
}

// Epochs to heights: one that emitted something has room for what is written in it, the others are thin.
function upwards(found) {
  const lines = new Map();
  for (const pane of found.panes) {
    const place = `${pane.epoch} ${pane.window_start} ${pane.window_end}`;
    lines.set(place, (lines.get(place) ?? 0) + 1);
  }
  const room = new Map();
  for (const [place, number] of lines) {
    const epoch = Number(place.split(" ")[0]);
    room.set(epoch, Math.max(room.get(epoch) ?? 0, number));
  }
  const first = Math.min(...found.panes.map((one) => one.after + 1));
  const epochs = found.epochs.filter((one) => one.epoch >= first);
  const tall = (one) => (room.has(one.epoch) ? 10 + LINE * room.get(one.epoch) : CALM);
  const height = 44 + epochs.reduce((sum, one) => sum + tall(one), 0);
  const tops = new Map();
  let up = height - 30;
  for (const one of epochs) tops.set(one.epoch, (up -= tall(one)));
  return { epochs, height, room, top: (epoch) => tops.get(epoch) ?? height - 30 };
}

function Picture({ found, value, name }) {
  const { x, places, breaks } = across(found.panes.map((one) => [one.window_start, one.window_end]));
  const { epochs, height, room, top } = upwards(found);
  const side = (time, end) => (time === null ? end : x(Date.parse(time)));
  const mark = (text) => (text === "-inf" ? LEFT : text === "+inf" ? WIDTH - RIGHT : x(Date.parse(text)));
  let path = "";
  for (const one of epochs) path += `${path ? `V${top(one.epoch)}` : `M${mark(one.watermark)},${top(one.epoch)}`}H${mark(one.watermark)}`;
  const used = new Map();
  const boxes = found.panes.filter((one) => !one.is_retraction);
  const retracted = found.panes.filter((one) => one.is_retraction).length;
  return h(
    C.Box,
    { overflowX: "auto", tabIndex: 0, role: "region", "aria-label": `Picture of the panes of ${name}` },
    h(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `Panes of ${name}: ${several(boxes.length, "pane")} and ${several(retracted, "retraction")} in ${several(epochs.length, "epoch")}, event time across, processing time upwards`, style: { width: "100%", minWidth: "640px", maxWidth: `${WIDTH}px`, height: "auto" } },
      epochs.filter((one) => room.has(one.epoch)).map((one) => h("g", { key: `epoch${one.epoch}` }, h("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: top(one.epoch), y2: top(one.epoch), stroke: BORDER, strokeDasharray: "2 4" }), h("text", { x: LEFT - 8, y: top(one.epoch) + 12, style: { fontSize: "11px" }, fill: MUTED, textAnchor: "end" }, `${one.epoch} · ${moment(one.processing_time)}`))),
      boxes.map((one) => h(Pane, { key: `${one.window_start} ${one.window_end} ${one.pane_index}`, one, left: side(one.window_start, LEFT), right: side(one.window_end, WIDTH - RIGHT), up: top(one.epoch), down: top(one.after), value })),
      h("path", { d: path, fill: "none", stroke: COLORS.watermark, strokeWidth: 2, strokeDasharray: "5 3", "data-line": "watermark" }),
      found.panes.map((one, number) => {
        const place = `${one.epoch} ${one.window_start} ${one.window_end}`;
        const line = used.get(place) ?? 0;
        used.set(place, line + 1);
        return h(Value, { key: number, one, left: side(one.window_start, LEFT), right: side(one.window_end, WIDTH - RIGHT), y: top(one.epoch) + 5 + LINE * (line + 1), value });
      }),
      h("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: height - 30, y2: height - 30, stroke: MUTED }),
      breaks.map((place) => h("path", { key: place, d: `M${place - 5},${height - 25}l4,-10M${place + 1},${height - 25}l4,-10`, stroke: MUTED, fill: "none" })),
      ticks(places).map(([place, label, anchor]) => h("text", { key: `${place}${anchor}`, x: place, y: height - 12, style: { fontSize: "11px" }, fill: MUTED, textAnchor: anchor }, label)),
    ),
  );
}

// The ends of the stretches of event time, as far as there is room to write them.
function ticks(places) {
  const label = (time) => moment(new Date(time).toISOString());
  const found = [];
  let free = LEFT;
  for (const { start, end, from, to } of places) {
    if (from >= free) {
      found.push([from, label(start), "start"]);
      free = from + 130;
    }
    if (to - 130 >= free) {
      found.push([to, label(end), "end"]);
      free = to + 10;
    }
  }
  return found;
}

function Pane({ one, left, right, up, down, value }) {
  const { name, fill, edge, dash } = TIMINGS[one.timing] ?? TIMINGS.ON_TIME;
  return h(
    "g",
    { "data-pane": one.timing },
    h("title", null, `${at(one.window_start)} to ${at(one.window_end)}: pane ${one.pane_index}, ${name}, epoch ${one.epoch}: ${written(one.values[value])}`),
    h("rect", { x: left, y: up, width: Math.max(3, right - left), height: Math.max(3, down - up), fill, stroke: edge, strokeDasharray: dash, fillOpacity: 0.75 }),
    h("line", { x1: left, x2: Math.max(left + 3, right), y1: up + 1.5, y2: up + 1.5, stroke: edge, strokeWidth: 3 }),
  );
}

// The value in its rectangle, as long as it fits; a retraction with a minus, in red, struck through.
function Value({ one, left, right, y, value }) {
  const text = `${one.is_retraction ? "\u2212" : ""}${written(one.values[value])}`;
  const most = Math.floor((right - left - 6) / 8);
  if (most < 1) return null;
  const shown = text.length > most ? `${text.slice(0, Math.max(0, most - 1))}…` : text;
  const timing = TIMINGS[one.timing]?.name;
  const style = one.is_retraction ? { fill: RED, textDecoration: "line-through" } : { fill: "currentColor", fontWeight: 600, ...HALO };
  const aside = !one.is_retraction && right - left > (shown.length + timing.length) * 8 + 16;
  return h("text", { x: (left + right) / 2, y, textAnchor: "middle", "data-value": one.is_retraction ? "retraction" : "pane", style: { fontSize: "13px", ...style } }, shown, aside ? h("tspan", { dx: 6, style: { fontSize: "10px", fontWeight: 400, fontStyle: "italic" } }, timing) : null);
}
