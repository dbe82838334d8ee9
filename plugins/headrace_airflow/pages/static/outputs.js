// Outputs of a pipeline that has several: how each is, and which one is looked at.
import { C, Rows, Section, State, h, several } from "./ui.js";

// How an output is, in the words of a pipeline's state.
export function stateOf(one) {
  if (one.parked) return "parked";
  if (one.unpublished && one.audit && !one.audit.success) return one.audit.failed.length ? "audit failed" : "limit exceeded";
  return one.unpublished ? "unpublished" : "published";
}

export const parkedWords = ({ name, parked }) => `${name} is parked since epoch ${parked.since}: ${parked.message}`;

const why = (one) => {
  if (one.parked) return `since epoch ${one.parked.since}: ${one.parked.message} (${one.parked.code})`;
  return one.audit && !one.audit.success ? [...one.audit.failed, ...one.audit.exceeded].join("; ") : "";
};

export function Outputs({ of }) {
  if (!of.length) return null;
  return h(Section, { title: "Outputs", about: "Each has readers and audits of its own." }, h(Rows, { caption: "Outputs", columns: COLUMNS, rows: of, keyOf: (one) => one.name }));
}

const COLUMNS = [
  ["State", (one) => h(State, { state: stateOf(one) })],
  ["Output", (one) => one.name],
  ["Why", why],
  ["Readers see", (one) => (one.published_epoch === null ? "nothing yet" : `epoch ${one.published_epoch}`)],
  ["Not published", (one) => several(one.unpublished, "epoch"), "end"],
  ["Audit", (one) => (one.audit ? `${one.audit.success ? "good" : "failed"}, ${several(one.audit.expectations, "expectation")}` : "-")],
];

// The output that is looked at: the one that the address names, else the first; undefined where the only one has no name.
export function outputOf(summary, params) {
  const names = summary.outputs.map((one) => one.name);
  return names.includes(params.get("output")) ? params.get("output") : names[0];
}

export function OutputChoice({ summary, params, setParams }) {
  if (!summary.outputs.length) return null;
  const chosen = outputOf(summary, params);
  const choose = (name) => {
    const next = new URLSearchParams(params);
    next.set("output", name);
    next.delete("key");
    setParams(next);
  };
  return h(C.HStack, { my: 3, wrap: "wrap" }, h(C.Text, null, "Output"), summary.outputs.map(({ name }) => h(C.Button, { key: name, size: "xs", variant: name === chosen ? "solid" : "outline", "aria-pressed": name === chosen, onClick: () => choose(name) }, name)));
}
