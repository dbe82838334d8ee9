// All pipelines, those that need a person first: the page in the navigation, and the block on the home page.
import { Answer, C, Link, Rows, State, ago, bytes, count, h, moment, pageOf, share, useAnswer, useState } from "./ui.js";

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
        h(C.Text, { mb: 2 }, urgent.length ? `${urgent.length} of ${answer.pipelines.length} need a look` : `All ${calm} are as they should be`, " · ", h(Link, { to: "/plugin/headrace_nav" }, "all pipelines")),
        urgent.slice(0, 5).map((one) =>
          h(C.HStack, { key: one.pipeline }, h(State, one), h(Link, { to: pageOf(one.pipeline) }, one.pipeline), h(C.Text, { fontSize: "sm", color: "fg.muted", truncate: true }, why(one))),
        ),
      );
    }),
  );
}

// Roots whose pipelines cannot be shown; the others are.
const Problems = ({ of }) => of.map(({ root, message }) => h(C.Text, { key: root, role: "alert", color: "fg.error", mb: 2 }, `Pipelines of ${root ? `root ${root}` : "the root without a name"} are not shown: ${message}`));

// Why a pipeline is in its state, in one line.
export function why(one) {
  if (one.problem) return one.problem;
  if (one.state === "audit failed") return one.audit.failed.join("; ");
  if (one.state === "limit exceeded") return one.exceeded.join("; ") || one.run.error;
  if (one.state === "failed") return `${one.run.error_code}: ${one.run.error}`;
  if (one.state === "unpublished") return one.unpublished === null ? "published is on another line than main" : `${count(one.unpublished)} epochs are not published`;
  return one.state === "empty" ? "it has no snapshot yet" : "";
}

const audited = ({ expectations, failed, exceeded }) => {
  if (exceeded.length) return `${exceeded.length} limits exceeded`;
  if (!expectations) return "nothing expected";
  return failed.length ? `${failed.length} of ${expectations} fail` : `${expectations} hold`;
};

const COLUMNS = [
  ["State", (one) => h(State, one)],
  ["Pipeline", (one) => h(Link, { to: pageOf(one.pipeline) }, one.pipeline)],
  ["Why", (one) => h(C.Box, { maxW: "320px", lineClamp: 2, title: why(one) }, why(one))],
  ["Published", (one) => h("span", { title: moment(one.published_at) }, ago(one.published_at))],
  ["Not published", (one) => count(one.unpublished), "end"],
  ["Last data", (one) => h("span", { title: moment(one.newest_event_time) }, ago(one.newest_event_time))],
  ["Watermark", (one) => h("span", { title: one.held_back_by ? `held back by ${one.held_back_by} since ${moment(one.held_since)}` : "" }, moment(one.watermark))],
  ["Held back by", (one) => one.held_back_by ?? "-"],
  ["Late", (one) => share((one.totals.late_dropped ?? 0) + (one.totals.closed_dropped ?? 0), one.totals.records), "end"],
  ["Dead letters", (one) => share(one.totals.rejected, one.totals.records), "end"],
  ["Audit", (one) => (one.audit ? audited(one.audit) : "-")],
  ["State size", (one) => bytes(one.state_bytes), "end"],
];
