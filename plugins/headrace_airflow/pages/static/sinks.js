// Sinks of a pipeline: what each held when it was delivered to last, as the root has it. Nobody connects to one for this.
import { C, Link, Rows, Section, ago, count, h, moment } from "./ui.js";
import { sections } from "./words.js";

const PALETTE = { current: "green", behind: "yellow", failed: "red", "never delivered": "gray", "not declared": "gray" };

export function Sinks({ of, words, pipeline }) {
  const declared = words ? declaredIn(words) : of;
  const rows = [...declared, ...of.filter((one) => !declared.some((each) => isSame(one, each)))].map((one) => ({ ...one, ...of.find((each) => isSame(one, each)), isDeclared: declared.some((each) => isSame(one, each)) }));
  if (!rows.length) return null;
  return h(
    Section,
    { title: "Sinks", about: "What each held after its last delivery. A sink that was changed by others is known to be so once it is delivered to again." },
    h(Rows, { caption: "Sinks", columns: columns(rows.some((one) => one.output)), rows, keyOf: (one) => `${one.output} ${one.sink}` }),
    h(C.Text, { mt: 2, fontSize: "sm" }, h(Link, { to: `/dags/headrace_${pipeline}_deliver` }, "Deliveries")),
  );
}

const isSame = (one, other) => one.output === other.output && one.sink === other.sink;

// The sinks that the pipeline declares, by its words: "sinks", or "sinks of output NAME", and a line for each.
function declaredIn(words) {
  const headings = Object.entries(sections(words)).filter(([heading]) => heading === "sinks" || heading.startsWith("sinks of output "));
  return headings.flatMap(([heading, lines]) => lines.map((line) => ({ output: heading.slice("sinks of output ".length), sink: line.slice(0, line.indexOf(": ")) })));
}

function stateOf(one) {
  if (!one.isDeclared) return "not declared";
  if (one.error_code) return "failed";
  if (!one.delivered_at) return "never delivered";
  return one.is_current ? "current" : "behind";
}

const columns = (hasOutputs) => [
  ["State", (one) => h(C.Badge, { colorPalette: PALETTE[stateOf(one)] }, stateOf(one))],
  ["Sink", (one) => one.sink],
  ...(hasOutputs ? [["Output", (one) => one.output]] : []),
  ["Holds", (one) => (one.snapshot ? h(Link, { to: `?view=history&snapshot=${one.snapshot}` }, `epoch ${one.epoch}`) : one.delivered_at ? "nothing" : "-")],
  ["Delivered", (one) => h("span", { title: moment(one.delivered_at) }, ago(one.delivered_at))],
  ["Rows written", (one) => count(one.written), "end"],
  ["Rows removed", (one) => count(one.removed), "end"],
  ["Last failure", (one) => (one.error_code ? `${one.error_code}, ${ago(one.failed_at)}` : "-")],
];
