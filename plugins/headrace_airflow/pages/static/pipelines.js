// All pipelines, those that need a person first: the page in the navigation, and the block on the home page.
import { parkedWords } from "./outputs.js";
import { ALL, Answer, C, Link, Rows, State, ago, bytes, h, lasting, moment, pageOf, several, share, useAnswer, useState } from "./ui.js";

const EVERY = 10;
const CALM = new Set(["published", "empty"]);

export function Pipelines() {
  const found = useAnswer("pipelines", EVERY);
  const [wanted, setWanted] = useState("");
  return h(
    C.Box,
    { p: 4 },
    h(C.Heading, { size: "md", as: "h1", mb: 3 }, "Pipelines"),
    h(
      Answer,
      { of: found, isEmpty: (answer) => !answer.pipelines.length && !answer.problems.length, empty: "No pipeline has run yet, and none is registered. `headrace new NAME` writes a first one." },
      (answer) => {
        const rows = answer.pipelines.filter((one) => one.pipeline.includes(wanted) || one.state.includes(wanted));
        return h(
          C.Box,
          null,
          h(Problems, { of: answer.problems }),
          h(
            C.HStack,
            { mb: 3, wrap: "wrap" },
            h(C.Input, { "aria-label": "Show only pipelines with this name or state", placeholder: "name or state", size: "sm", maxW: "240px", value: wanted, onChange: (event) => setWanted(event.target.value) }),
            h(C.Text, { color: "fg.muted", fontSize: "sm" }, `${rows.length} of ${answer.pipelines.length}; as of ${answer.age} s ago`),
            h(Link, { to: `${ALL}?view=lineage`, fontSize: "sm" }, "Which reads which"),
          ),
          h(Rows, { caption: "Pipelines", columns: COLUMNS, rows, keyOf: (one) => one.pipeline }),
        );
      },
    ),
  );
}

export function Block() {
  const found = useAnswer("pipelines", EVERY);
  return h(
    C.Box,
    { borderWidth: "1px", borderRadius: "md", p: 4 },
    h(C.Heading, { size: "sm", as: "h2", mb: 2 }, "Headrace pipelines"),
    h(Answer, { of: found, isEmpty: (answer) => !answer.pipelines.length && !answer.problems.length, empty: "No pipeline yet." }, (answer) => {
      const urgent = answer.pipelines.filter((one) => !CALM.has(one.state));
      const calm = answer.pipelines.length - urgent.length;
      return h(
        C.Box,
        null,
        h(Problems, { of: answer.problems }),
        h(C.Text, { mb: 2 }, urgent.length ? `${urgent.length} of ${answer.pipelines.length} need a look` : `All ${calm} are as they should be`, " · ", h(Link, { to: ALL }, "all pipelines")),
        urgent.slice(0, 5).map((one) =>
          h(C.HStack, { key: one.pipeline }, h(State, one), h(Link, { to: pageOf(one.pipeline) }, one.pipeline), h(C.Text, { fontSize: "sm", color: "fg.muted", truncate: true }, why(one))),
        ),
      );
    }),
  );
}

// Roots whose pipelines cannot be shown; the others are.
export const Problems = ({ of }) => of.map(({ root, message }) => h(C.Text, { key: root, role: "alert", color: "fg.error", mb: 2 }, `Pipelines of ${root ? `root ${root}` : "the root without a name"} are not shown: ${message}`));

// Why a pipeline is in its state, in one line.
export function why(one) {
  if (one.problem) return one.problem;
  if (one.state === "parked") return one.outputs.filter((each) => each.parked).map(parkedWords).join("; ");
  if (one.state === "audit failed") return one.audit.failed.join("; ");
  if (one.state === "limit exceeded") return one.exceeded.join("; ") || one.run.error;
  if (one.state === "failed") return `${one.run.error_code}: ${one.run.error}`;
  if (one.state === "unpublished") return one.unpublished === null ? "published is on another line than main" : `${several(one.unpublished, "epoch")}${one.worst_output ? ` of output ${one.worst_output}` : ""} ${one.unpublished === 1 ? "is" : "are"} not published`;
  return one.state === "empty" ? "it has no snapshot yet" : "";
}

// How far what readers have complete results of is behind the newest data in any file that was read.
export function lag({ newest_event_time: newest, published_watermark: seen }) {
  if (!newest || seen === "+inf") return newest ? "0 s" : "-";
  return !seen || seen === "-inf" ? "all of it" : lasting(Math.max(0, Date.parse(newest) - Date.parse(seen)) / 1000);
}

// What is due next: a deadline of Airflow's, a timer, and the event time that a window waits for.
export function Deadline({ of: { deadline, fires_at: timer, fires_after: end } }) {
  const lines = [];
  if (deadline) lines.push(deadline.is_missed ? ["Airflow's was missed", `it was at ${moment(deadline.at)}`, "fg.error"] : [`Airflow's ${ago(deadline.at)}`, moment(deadline.at)]);
  if (timer) lines.push([Date.parse(timer) <= Date.now() ? `timer due ${ago(timer)}` : `timer ${ago(timer)}`, `a run after ${moment(timer)} fires it`]);
  if (end) lines.push([`watermark ${end === "+inf" ? "at the end" : moment(end)}`, "the next window fires once the watermark has passed this"]);
  return lines.length ? h(C.Box, { minW: "110px" }, lines.map(([text, title, color]) => h(C.Text, { key: text, title, color }, text))) : "-";
}

const audited = ({ expectations, failed, exceeded }) => {
  if (exceeded.length) return `${several(exceeded.length, "limit")} exceeded`;
  if (!expectations) return "nothing expected";
  return failed.length ? `${failed.length} of ${expectations} fail` : `${expectations} hold`;
};

// What is said below the value of a cell.
const Small = ({ children }) => h(C.Text, { fontSize: "xs", color: "fg.muted" }, children);

const COLUMNS = [
  ["State", (one) => h(State, one)],
  ["Pipeline", (one) => h(C.Box, null, h(Link, { to: pageOf(one.pipeline) }, one.pipeline), one.worst_output ? h(Small, null, `output ${one.worst_output}`) : null)],
  ["Why", (one) => h(C.Box, { minW: why(one) ? "260px" : undefined, maxW: "520px", lineClamp: 3, overflowWrap: "anywhere", title: why(one) }, why(one))],
  ["Published", (one) => h(C.Box, { whiteSpace: "nowrap", title: moment(one.published_at) }, ago(one.published_at), one.unpublished ? h(Small, null, `${several(one.unpublished, "epoch")} behind`) : null)],
  ["Newest file", (one) => h(C.Box, { whiteSpace: "nowrap", title: one.newest_file_at ? `read at ${moment(one.newest_file_at)}; readers have complete results up to ${moment(one.published_watermark)}, the files have data up to ${moment(one.newest_event_time)}` : "" }, ago(one.newest_file_at), one.newest_file_at ? h(Small, null, `lag ${lag(one)}`) : null)],
  ["Watermark", (one) => h(C.Box, { minW: "90px", title: one.held_since ? `since ${moment(one.held_since)}` : "" }, moment(one.watermark), one.held_back_by ? h(Small, null, `held by ${one.held_back_by}`) : null)],
  ["Next deadline", (one) => h(Deadline, { of: one })],
  ["Late", (one) => share((one.totals.late_dropped ?? 0) + (one.totals.closed_dropped ?? 0), one.totals.records), "end"],
  ["Dead letters", (one) => share(one.totals.rejected, one.totals.records), "end"],
  ["Audit", (one) => (one.audit ? audited(one.audit) : "-")],
  ["State size", (one) => bytes(one.state_bytes), "end"],
];
