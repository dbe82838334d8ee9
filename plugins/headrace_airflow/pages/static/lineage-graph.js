// Which pipelines read which, over all roots. The drawing is a list for screen readers. Its lines are decoration, and the table
// below has all that they say. The words are those of `headrace lineage`.
import { epochOf } from "./lineage.js";
import { Problems } from "./pipelines.js";
import { ALL, Answer, C, Link, Rows, Section, h, pageOf, several, useAnswer } from "./ui.js";

const EVERY = 15;
const BOX = { width: 200, height: 64, across: 28, down: 52 };
const WELL = "var(--chakra-colors-fg-subtle, currentColor)";
const UNWELL = "var(--chakra-colors-fg-error, currentColor)";

export function LineageGraph() {
  const found = useAnswer("lineage", EVERY);
  return h(
    C.Box,
    { p: 4 },
    h(C.Heading, { size: "md", as: "h1", mb: 1 }, "Which pipelines read which"),
    h(C.Text, { mb: 3, fontSize: "sm" }, h(Link, { to: ALL }, "All pipelines as a list")),
    h(
      Answer,
      { of: found, isEmpty: (answer) => !answer.pipelines.length && !answer.problems.length, empty: "No pipeline has run yet that you may see." },
      (answer) => h(C.Box, null, h(Problems, { of: answer.problems }), h(Summary, answer), h(Drawing, answer), h(Table, answer)),
    ),
  );
}

function Summary({ pipelines, inputs, hidden, age }) {
  const behind = inputs.filter((one) => !one.is_well).length;
  const waiting = pipelines.filter((one) => one.in_flight.length || one.problem).length;
  const said = behind || waiting ? `${several(behind, "input")} behind; ${several(waiting, "pipeline")} with something in flight` : "Nothing is in flight between them";
  return h(
    C.Box,
    null,
    h(C.Text, { fontWeight: "medium" }, said),
    h(C.Text, { color: "fg.muted", fontSize: "sm" }, `One consistent cut, as of ${age} s ago. Files that no run has read are not looked for here. The page of a pipeline says how far readers lag behind its newest file; \`headrace lineage --stuck\` names the files.`),
    hidden ? h(C.Text, { color: "fg.muted", fontSize: "sm" }, `${several(hidden, "pipeline")} more at the other ends, which you may not see`) : null,
  );
}

// Pipelines that read others or are read, each below those that it reads.
function Drawing({ pipelines, inputs }) {
  const { boxes, lines, width, height } = placed(pipelines, inputs);
  if (!boxes.length) return h(C.Text, { my: 4, color: "fg.muted" }, "No pipeline reads another one.");
  return h(
    Section,
    { title: "Graph", about: "A line leads from a pipeline to one that reads it; it is dashed where the reader is behind." },
    h(
      C.Box,
      { overflowX: "auto", tabIndex: 0, role: "region", "aria-label": "Graph of pipelines" },
      h(
        C.Box,
        { position: "relative", width: `${width}px`, height: `${height}px` },
        h("svg", { width, height, "aria-hidden": true, style: { position: "absolute", top: 0, left: 0 } }, lines.map((line) => h("path", { key: line.key, d: line.path, fill: "none", stroke: line.is_well ? WELL : UNWELL, strokeWidth: 2, strokeDasharray: line.is_well ? undefined : "6 4" }))),
        h("ul", { "aria-label": "Pipelines, each after those that it reads", style: { listStyle: "none", margin: 0, padding: 0 } }, boxes.map((box) => h(Box, { key: box.one.pipeline, ...box }))),
      ),
    ),
  );
}

function Box({ one, x, y, reads }) {
  const worst = reads.find((each) => !each.is_well) ?? reads[0];
  return h(
    C.Box,
    { as: "li", position: "absolute", left: `${x}px`, top: `${y}px`, width: `${BOX.width}px`, height: `${BOX.height}px`, borderWidth: "1px", borderRadius: "md", px: 3, py: 2, bg: "bg.subtle" },
    h(C.Box, { truncate: true, fontSize: "sm", fontWeight: "medium", title: one.pipeline }, h(Name, one)),
    h(C.Text, { truncate: true, fontSize: "xs", title: worst?.lag }, [one.epoch === null ? "no snapshot" : `epoch ${one.epoch}`, ...(worst ? [worst.lag] : [])].join(" · ")),
  );
}

const Name = ({ pipeline, has_page }) => (has_page ? h(Link, { to: pageOf(pipeline) }, pipeline) : pipeline);

// Where boxes stand, and the lines between them: a level for each step away from those that read none; within it, below what they read.
function placed(pipelines, inputs) {
  const depth = depths(inputs);
  const levels = [];
  for (const one of pipelines.filter((each) => depth.has(each.pipeline))) (levels[depth.get(one.pipeline)] ??= []).push(one);
  const left = new Map();
  const boxes = levels.flatMap((level, row) => {
    const reads = new Map(level.map((one) => [one.pipeline, inputs.filter((each) => each.pipeline === one.pipeline)]));
    const above = (one) => mean(reads.get(one.pipeline).map((each) => left.get(each.upstream) ?? 0));
    return [...level].sort((one, other) => above(one) - above(other)).map((one, at) => {
      const x = at * (BOX.width + BOX.across);
      left.set(one.pipeline, x);
      return { one, x, y: row * (BOX.height + BOX.down), reads: reads.get(one.pipeline) };
    });
  });
  const at = new Map(boxes.map((box) => [box.one.pipeline, box]));
  return {
    boxes,
    lines: inputs.filter((one) => at.has(one.upstream) && at.has(one.pipeline)).map((one, number) => ({ key: number, is_well: one.is_well, path: curve(at.get(one.upstream), at.get(one.pipeline)) })),
    width: Math.max(0, ...boxes.map((box) => box.x + BOX.width)),
    height: Math.max(0, ...boxes.map((box) => box.y + BOX.height)),
  };
}

// How many steps each pipeline of `inputs` is from one that reads none.
function depths(inputs) {
  const found = new Map();
  const of = (name, path) => {
    if (path.includes(name)) return 0;
    if (!found.has(name)) found.set(name, Math.max(0, ...inputs.filter((one) => one.pipeline === name).map((one) => 1 + of(one.upstream, [...path, name]))));
    return found.get(name);
  };
  for (const { pipeline, upstream } of inputs) [pipeline, upstream].forEach((name) => of(name, []));
  return found;
}

const mean = (numbers) => (numbers.length ? numbers.reduce((sum, number) => sum + number, 0) / numbers.length : 0);

function curve(from, to) {
  const [x, y, below, end] = [from.x + BOX.width / 2, from.y + BOX.height, to.x + BOX.width / 2, to.y];
  return `M${x},${y} C${x},${y + BOX.down} ${below},${end - BOX.down} ${below},${end}`;
}

// A row for each input that is another pipeline, those furthest behind first; then pipelines that read none.
function Table({ pipelines, inputs }) {
  const known = new Map(pipelines.map((one) => [one.pipeline, one]));
  const reading = new Set(inputs.map((one) => one.pipeline));
  const rows = [...inputs.map((one) => ({ ...known.get(one.pipeline), reads: known.get(one.upstream), input: one })), ...pipelines.filter((one) => !reading.has(one.pipeline))];
  return h(Section, { title: "How far each has come" }, h(Rows, { caption: "Pipelines and what they read", columns: COLUMNS, rows, keyOf: (row) => [row.pipeline, row.reads?.pipeline, row.input?.input].join(" ") }));
}

const COLUMNS = [
  ["Pipeline", (row) => h(C.Box, { overflowWrap: "anywhere" }, h(Name, row))],
  ["Main", (row) => epochOf(row.epoch, row.snapshot)],
  ["Published", (row) => epochOf(row.published_epoch, row.published)],
  ["Reads", ({ reads, input }) => (reads ? h(C.Box, { overflowWrap: "anywhere" }, h(Name, reads), input.output ? `, output ${input.output}` : "") : "-")],
  ["Up to", ({ input }) => (input ? epochOf(input.consumed_epoch, input.consumed) : "-")],
  ["Of", ({ input }) => (input ? epochOf(input.published_epoch, input.published) : "-")],
  ["Lag", ({ input }) => (input ? h(C.Text, input.is_well ? {} : { fontWeight: "medium" }, input.lag) : "-")],
  ["In flight", ({ in_flight: waits, problem }) => [...(problem ? [`it cannot be looked at: ${problem}`] : []), ...waits].join("\n") || "-"],
];
