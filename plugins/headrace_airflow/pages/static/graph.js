// The graph of a pipeline: from its inputs to what readers see, each step with its figures and its words. The boxes are
// a list for screen readers; the lines between them are decoration.
import { Answer, C, Link, Section, bytes, count, h, moment, several, useAnswer } from "./ui.js";
import { parkedWords } from "./outputs.js";
import { layers, wordsOf } from "./words.js";

const LINE = "var(--chakra-colors-fg-subtle, currentColor)";

export function Graph({ dagId, summary, words }) {
  const found = useAnswer(`dags/${dagId}/graph`, 15);
  const steps = words ? layers(words) : [];
  if (!steps.length) return null;
  return h(
    Section,
    { title: "Graph", about: "From inputs to what readers see. Counts are those of main: of its last epoch, and of its newest epochs together." },
    h(Answer, { of: found }, (figures) =>
      h(
        C.Box,
        { as: "ol", "aria-label": "Steps of the pipeline, from inputs to views", listStyleType: "none", m: 0, p: 0, overflowX: "auto" },
        steps.map((layer, at) =>
          h(
            C.Box,
            { as: "li", key: at, minW: `${layer.length * 220}px` },
            at ? h(Lines, { from: steps[at - 1].length, to: layer.length }) : null,
            h(
              C.Box,
              { display: "grid", gap: 3, gridTemplateColumns: `repeat(${layer.length}, minmax(0, 1fr))` },
              layer.map((step) => h(Step, { key: step.title, step, figures, summary, isOnly: steps[0].length === 1 })),
            ),
          ),
        ),
        levels(figures?.outputs ?? []).map((level, at, all) =>
          h(
            C.Box,
            { as: "li", key: `outputs${at}`, minW: `${level.length * 220}px` },
            h(Lines, { from: (all[at - 1] ?? steps[steps.length - 1]).length, to: level.length, pairs: at ? edges(all[at - 1], level) : undefined }),
            h(C.Box, { display: "grid", gap: 3, gridTemplateColumns: `repeat(${level.length}, minmax(0, 1fr))` }, level.map((one) => h(OutputStep, { key: one.name, one, figures, summary, words }))),
          ),
        ),
      ),
    ),
  );
}

// Outputs in levels: first those of records, then those of panes of outputs above.
function levels(outputs) {
  const depth = new Map();
  const of = (name) => {
    const one = outputs.find((each) => each.name === name);
    if (!depth.has(name)) depth.set(name, one?.of.length ? 1 + Math.max(...one.of.map(of)) : 0);
    return depth.get(name);
  };
  const found = [];
  for (const one of outputs) (found[of(one.name)] ??= []).push(one);
  return found;
}

const edges = (above, below) => below.flatMap((one, to) => above.flatMap((each, from) => (one.of.includes(each.name) ? [[from, to]] : [])));

// One of several outputs: its aggregations, and what its readers see.
function OutputStep({ one, figures, summary, words }) {
  const line = summary.outputs.find((each) => each.name === one.name);
  const totals = Object.fromEntries(Object.entries(summary.totals).filter(([name]) => name.startsWith(`${one.name}/`)).map(([name, number]) => [name.slice(one.name.length + 1), number]));
  const told = {
    facts: [
      ...(one.of.length ? [`reads panes of ${one.of.join(" and ")}`] : []),
      ...(line?.parked ? [parkedWords(line)] : []),
      ...one.stages.map((stage, at) => `${one.stages.length > 1 ? `aggregation ${at + 1}: ` : ""}state ${held(stage)}; output watermark ${moment(stage.watermark)}`),
      `current: ${live(one.current)}`,
      `${several(one.logs.panes, "pane")} and retractions`,
      ...(line ? [`readers see ${line.published_epoch === null ? "nothing yet" : `epoch ${line.published_epoch}`}`] : []),
    ],
    counts: [...LATE, ...PANES],
    rows: [["current", "rows of current"], ["panes", "rows of panes"], ...(one.logs.late ? [["late", `all ${count(one.logs.late)} late rows`]] : [])],
  };
  return h(Box, { title: `Output ${one.name}`, told, last: one.counts, totals, epoch: figures.epoch, epochs: summary.epochs.length, words: words ? wordsOf(words, one.name) : [], output: one.name });
}

// Lines from each of `from` boxes to each of `to` below them, or for the `pairs` alone.
function Lines({ from, to, pairs = Array.from({ length: from * to }, (_, at) => [at % from, Math.floor(at / from)]) }) {
  const middle = (at, of) => ((at + 0.5) / of) * 100;
  return h(
    "svg",
    { viewBox: "0 0 100 26", preserveAspectRatio: "none", "aria-hidden": true, style: { width: "100%", height: "26px", display: "block" } },
    pairs.map(([above, below]) => h("path", { key: `${above} ${below}`, d: `M${middle(above, from)},0 C${middle(above, from)},16 ${middle(below, to)},8 ${middle(below, to)},26`, fill: "none", stroke: LINE, strokeWidth: 2, vectorEffect: "non-scaling-stroke" })),
  );
}

function Step({ step, figures, summary, isOnly }) {
  const told = figures ? said(step, figures, isOnly) : { facts: [], counts: [] };
  return h(Box, { title: step.title, about: step.about, told, last: figures?.counts ?? {}, totals: summary.totals, epoch: figures?.epoch, epochs: summary.epochs.length, words: step.words });
}

function Box({ title, about, told, last, totals, epoch, epochs, words, output }) {
  return h(
    C.Box,
    { as: "section", "aria-label": title, borderWidth: "1px", borderRadius: "md", p: 3, maxW: "760px", w: "100%", mx: "auto", bg: "bg.subtle" },
    h(C.Heading, { size: "xs", as: "h4", overflowWrap: "anywhere" }, title),
    about ? h(C.Text, { fontSize: "sm", overflowWrap: "anywhere" }, about) : null,
    told.facts.map((fact) => h(C.Text, { key: fact, fontSize: "sm", overflowWrap: "anywhere" }, fact)),
    told.counts.length ? h(Counts, { title, names: told.counts, last, totals, epoch, epochs }) : null,
    (told.rows ?? []).map(([view, label]) => h(Link, { key: view, to: `?view=records&rows=${view}${output ? `&output=${output}` : ""}`, fontSize: "sm", mr: 3 }, label)),
    words.length ? h(C.Box, { as: "details", mt: 2, fontSize: "sm" }, h("summary", { style: { cursor: "pointer" } }, "In words"), h(C.Box, { as: "pre", whiteSpace: "pre-wrap", fontFamily: "mono", fontSize: "xs", mt: 1 }, words.join("\n"))) : null,
  );
}

function Counts({ title, names, last, totals, epoch, epochs }) {
  const cell = { textAlign: "end", py: 0.5 };
  return h(
    C.Table.Root,
    { size: "sm", "aria-label": `Counts: ${title}`, mt: 1, w: "auto", bg: "transparent" },
    h(C.Table.Header, null, h(C.Table.Row, { bg: "transparent" }, ["Rows", `epoch ${epoch}`, epochs > 1 ? `last ${epochs} epochs` : "in all"].map((heading, at) => h(C.Table.ColumnHeader, { key: heading, ...(at ? cell : { py: 0.5 }) }, heading)))),
    h(
      C.Table.Body,
      null,
      names.map(([name, label]) => h(C.Table.Row, { key: name, bg: "transparent" }, h(C.Table.Cell, { py: 0.5 }, label), h(C.Table.Cell, cell, count(last[name] ?? 0)), h(C.Table.Cell, cell, count(totals[name] ?? 0)))),
    ),
  );
}

const RECORDS = [["records", "records read"], ["rejected", "dead letters"]];
const LATE = [["late_dropped", "late records dropped"], ["closed_dropped", "dropped, window closed"]];
const LATE_PANES = [["late_panes_dropped", "late panes dropped"], ["rejected_panes", "panes rejected"]];
const PANES = [["panes_early", "panes early"], ["panes_on_time", "panes on time"], ["panes_late", "panes late"], ["retractions", "retractions"]];
const SIMPLE = { filter: [["filtered", "filtered out"]], ids: [["duplicates", "duplicates"]] };

// What the figures say of a step: facts in words, names of counts, views to look into.
function said(step, figures, isOnly) {
  const { logs } = figures;
  const letters = logs.rejected ? [["rejected", `all ${count(logs.rejected)} dead letters`]] : [];
  switch (step.kind) {
    case "input":
      return { facts: inputFacts(figures.inputs.find((one) => one.name === step.name)), counts: isOnly ? RECORDS : [], rows: isOnly ? letters : [] };
    case "union":
      return { facts: [`watermark ${moment(slowest(figures.inputs))}`], counts: RECORDS, rows: letters };
    case "ids":
      return { facts: figures.ids ? [`remembers ${size(figures.ids)}`] : [], counts: SIMPLE.ids };
    case "stage": {
      const stage = figures.stages[step.stage];
      const counts = [...(step.stage ? LATE_PANES : LATE), ...(step.isLast ? PANES : [])];
      const late = !step.stage && logs.late ? [["late", `all ${count(logs.late)} late rows`]] : [];
      return { facts: stage ? [`state: ${held(stage)}`, `output watermark ${moment(stage.watermark)}`] : ["the last snapshot does not have this aggregation"], counts, rows: late };
    }
    case "current":
      return { facts: [live(figures.current)], counts: [], rows: [["current", "rows of current"]] };
    case "panes":
      return { facts: [`${several(logs.panes, "pane")} and retractions`], counts: [], rows: [["panes", "rows of panes"]] };
    default:
      return { facts: [], counts: SIMPLE[step.kind] ?? [] };
  }
}

const files = (number, length) => `${several(number, "file")}, ${bytes(length)}`;
const size = (table) => `${several(table.rows, "row")}, ${bytes(table.bytes)}`;
// Rows as they are read; where nobody counted them, what is stored, which has each change of a row.
const held = ({ open_windows: open, state }) => (open === null ? `at most ${size(state)}` : `${several(open, "open window")}, ${bytes(state.bytes)}`);
const live = (table) => (table.live === null ? `at most ${size(table)}` : `${several(table.live, "row")}, ${bytes(table.bytes)}`);
const slowest = (inputs) => inputs.find((one) => one.holds_back)?.watermark ?? "";

function inputFacts(input) {
  if (!input) return ["the last snapshot does not have this input"];
  const splits = input.slowest.map((one) => `${one.split ?? "a split"}: at ${moment(one.mark)}, moved on ${moment(one.since)}`);
  return [
    `${files(input.files, input.bytes)} read in all; ${files(input.last_files, input.last_bytes)} in the last epoch`,
    `watermark ${moment(input.watermark)}${input.holds_back ? "; holds the watermark back" : ""}`,
    ...(input.splits ? [`${several(input.splits, "split")}; the slowest: ${splits.slice(0, 3).join("; ")}`] : []),
  ];
}
