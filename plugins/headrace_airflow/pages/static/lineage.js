// What a pipeline reads of others, and who reads it: the words of `headrace lineage`.
import { Answer, C, Link, Rows, Section, h, pageOf, several, useAnswer, useState } from "./ui.js";

const EVERY = 15;
const SHOWN = 10;

export function Neighbours({ dagId }) {
  const found = useAnswer(`dags/${dagId}/lineage`, EVERY);
  if (!found.error && !(found.answer && (found.answer.reads.length || found.answer.readers.length || found.answer.hidden))) return null;
  return h(
    Section,
    { title: "Pipelines that it reads, and that read it", about: "As one consistent cut. Readers are known by what they hold here; one under another root that may not write here is not seen." },
    h(Answer, { of: found }, ({ reads, readers, hidden }) =>
      h(
        C.Box,
        null,
        h(Side, { caption: "Reads", of: reads, upTo: "It has read", without: "It reads no other pipeline." }),
        h(Side, { caption: "Is read by", of: readers, upTo: "Has read", without: "No pipeline is known to read it." }),
        hidden ? h(C.Text, { mt: 2, fontSize: "sm", color: "fg.muted" }, `${several(hidden, "pipeline")} more, which you may not see`) : null,
      ),
    ),
  );
}

// One direction: those furthest behind first, and the rest when it is asked for.
function Side({ caption, of, upTo, without }) {
  const [isWhole, setWhole] = useState(false);
  if (!of.length) return h(C.Text, { mt: 2, fontSize: "sm", color: "fg.muted" }, without);
  const rows = isWhole ? of : of.slice(0, SHOWN);
  return h(
    C.Box,
    { mt: 2 },
    h(Rows, { caption, columns: columns(caption, upTo, of.some((one) => one.output)), rows, keyOf: (one) => `${one.pipeline} ${one.input}` }),
    of.length > SHOWN ? h(C.Button, { size: "xs", mt: 2, variant: "outline", "aria-expanded": isWhole, onClick: () => setWhole(!isWhole) }, isWhole ? `Only the first ${SHOWN}` : `All ${of.length}`) : null,
  );
}

export const epochOf = (number, snapshot) => (snapshot ? h("span", { title: `snapshot ${snapshot}`, style: { whiteSpace: "nowrap" } }, `epoch ${number}`) : snapshot === null ? "nothing" : "-");

const columns = (caption, upTo, hasOutputs) => [
  [caption, (one) => h(C.Box, { overflowWrap: "anywhere" }, one.has_page ? h(Link, { to: pageOf(one.pipeline) }, one.pipeline) : one.pipeline)],
  ...(hasOutputs ? [["Output", (one) => one.output || "-"]] : []),
  ["Input", (one) => one.input ?? "-"],
  [upTo, (one) => epochOf(one.consumed_epoch, one.consumed)],
  ["Published", (one) => epochOf(one.published_epoch, one.published)],
  ["Lag", (one) => h(C.Text, one.is_well ? {} : { fontWeight: "medium" }, one.lag)],
];
