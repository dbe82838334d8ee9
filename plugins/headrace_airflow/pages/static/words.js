// The pipeline in words: what `headrace check` says of it, as Airflow has it in the documentation of its DAG.
import { C, Section, h, useEffect, useState } from "./ui.js";

// The words as lines of text; undefined while they are asked for, null where there are none.
export function useWords(dagId) {
  const [words, setWords] = useState(undefined);
  useEffect(() => {
    const stop = new AbortController();
    fetch(new URL(`api/v2/dags/${dagId}/details`, document.baseURI), { signal: stop.signal })
      .then((answer) => (answer.ok ? answer.json() : null))
      .then((details) => setWords(details?.doc_md?.match(/(`{3,})text\n([^]*?)\n\1(?!`)/)?.[2] ?? null), () => stop.signal.aborted || setWords(null));
    return () => stop.abort();
  }, [dagId]);
  return words;
}

export function Words({ words }) {
  if (!words) return null;
  return h(Section, { title: "What it computes" }, h(C.Box, { as: "pre", whiteSpace: "pre-wrap", fontSize: "sm", fontFamily: "mono" }, words));
}

// The sections of the words: {heading: lines}. Headings are indented by two, their lines by four.
export function sections(words) {
  const lines = {};
  let heading = null;
  for (const line of words.split("\n")) {
    if (line.startsWith("    ")) lines[heading]?.push(line.slice(4));
    else if (line.startsWith("  ")) lines[(heading = line.trim())] = [];
  }
  return lines;
}

// What is said of one of several outputs, as lines.
export function wordsOf(words, output) {
  const own = Object.entries(sections(words)).filter(([heading]) => `${heading} `.includes(` output ${output} `));
  return own.flatMap(([heading, lines]) => [heading, ...lines.map((line) => `  ${line}`)]);
}

// The steps of the graph, from inputs to views: [{kind, title, words}] of each layer; those before several outputs.
export function layers(words) {
  const said = sections(words);
  const groups = [[]];
  const drawn = said.graph ?? [];
  const branch = drawn.findIndex((line) => line.includes("\u251c\u2500\u25b6"));
  const isWhole = branch < 0;
  for (const line of isWhole ? drawn : drawn.slice(0, branch)) {
    if (line.trim() === "▼") groups.push([]);
    else if (line.trim() !== "│") groups[groups.length - 1].push(line.trim());
  }
  if (isWhole && groups.length < 2) return [];
  const inputs = groups[0].map((line) => {
    const name = line.slice(0, line.indexOf(": "));
    return { kind: "input", name, title: `Input ${name}`, words: said[`input ${name}`] ?? [line] };
  });
  const steps = groups.slice(1, isWhole ? -1 : undefined).map((lines) => lines.join(" "));
  const number = steps.filter(isAggregation).length;
  let stage = 0;
  const middle = steps.map((line) => {
    if (!isAggregation(line)) return line.startsWith("one of each ") ? { kind: "ids", title: "Duplicates", words: said.duplicates ?? [line] } : { kind: line.startsWith("filter ") ? "filter" : "code", title: line, words: [] };
    const suffix = number > 1 ? ` of aggregation ${stage + 1}` : "";
    const words = PARTS.flatMap((part) => [part, ...(said[part + suffix] ?? []).map((one) => `  ${one}`)]);
    return { kind: "stage", stage, isLast: ++stage === number, title: number > 1 ? `Aggregation ${stage}` : "Aggregation", about: line, words };
  });
  const union = inputs.length > 1 ? [[{ kind: "union", title: `Union of ${inputs.length} inputs`, words: [] }]] : [];
  const views = [{ kind: "current", title: "View current", words: [] }, { kind: "panes", title: "View panes", words: [] }];
  return [inputs, ...union, ...middle.map((step) => [step]), ...(isWhole ? [views] : [])];
}

const PARTS = ["what", "where", "when", "how"];
const isAggregation = (line) => /^\w+(, \w+)* per .+: /.test(line);
