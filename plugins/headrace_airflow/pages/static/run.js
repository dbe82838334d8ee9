// A run of a DAG, or one of its tasks: what was done to the pipeline, what failed, and what people can do about it.
import { Backfill, Release } from "./decide.js";
import { Failing } from "./quality.js";
import { Answer, C, Facts, Link, Section, ago, count, h, moment, pageOf, query, several, useAnswer } from "./ui.js";

export function Run({ dagId, runId, taskId }) {
  const path = `dags/${dagId}/runs/${encodeURIComponent(runId)}`;
  const found = useAnswer(`${path}${query({ task_id: taskId })}`, 10);
  const isSilent = taskId && found.answer && !found.answer.length;
  const whole = useAnswer(isSilent ? path : null, 10);
  const { answer: summary } = useAnswer(`dags/${dagId}`, 10);
  return h(
    C.Box,
    { p: 4 },
    summary ? h(UnderWay, { of: summary.under_way, dagId, runId }) : null,
    isSilent ? h(C.Text, { p: 3, color: "fg.muted" }, "This task has left no result of its own: it made no epoch, or has not ended.") : null,
    h(Answer, { of: isSilent ? whole : found, isEmpty: (results) => !results.length, empty: "No task of this run has left a result yet." }, (results) =>
      [...results].sort((one, other) => (one.status === "failed" ? 0 : 1) - (other.status === "failed" ? 0 : 1)).map((one) => h(Result, { key: one.run_id, one, dagId, summary })),
    ),
    h(C.Text, { mt: 4 }, h(Link, { to: `/dags/${dagId}/plugin/headrace_dag?view=epochs` }, "All epochs of the pipeline")),
  );
}

function Result({ one, dagId, summary }) {
  const isHeld = HELD_BACK.has(one.error?.code);
  return h(
    Section,
    { title: `${one.action}: ${one.status}`, about: `${moment(one.started_at)} to ${moment(one.finished_at)}` },
    one.error ? h(C.Text, { role: "alert", mb: 2, whiteSpace: "pre-wrap", overflowWrap: "anywhere" }, `${one.error.code}: ${one.error.message}`) : null,
    isHeld && summary ? h(WaysOut, { one, dagId, summary }) : null,
    h(Facts, {
      of: [
        ["Epochs", one.epochs.length ? `${one.epochs[0]} to ${one.epochs[one.epochs.length - 1]}` : "none", one.branch === "main" ? null : `on branch ${one.branch}`],
        ["Snapshot", one.snapshot ? h(Link, { to: `/dags/${dagId}/plugin/headrace_dag?view=history&snapshot=${one.snapshot}` }, one.snapshot) : "none", one.epoch === null ? null : `epoch ${one.epoch}`],
        ["Readers see", one.published ?? "nothing"],
        ["Watermark", moment(one.watermark)],
        ["Executor", one.executor?.name ?? "-", one.executor?.reason],
        ...Object.entries(one.counts).filter(([, number]) => number).map(([name, number]) => [name.replaceAll("_", " "), count(number)]),
      ],
    }),
    one.warnings.map((each) => h(C.Text, { key: each, mt: 2, whiteSpace: "pre-wrap" }, each)),
  );
}

const HELD_BACK = new Set(["data.audit_failed", "data.unusual", "data.limit_exceeded"]);

// What people can do about what an audit holds back, and the first rows to blame.
function WaysOut({ one, dagId, summary }) {
  const found = useAnswer(`dags/${dagId}/audits`);
  const audit = found.answer?.find((each) => !each.problem && !each.success && (!one.audit || (each.after === one.audit.from && each.until === one.audit.to)));
  return h(
    C.Box,
    { mb: 3 },
    h(
      C.HStack,
      { mb: 2, wrap: "wrap" },
      summary.may_edit && audit ? h(Release, { pipeline: summary.pipeline, audit }) : null,
      h(Link, { to: `${pageOf(summary.pipeline)}?view=quality` }, "Quality"),
      summary.may_edit ? h(Backfill, { pipeline: summary.pipeline }) : null,
    ),
    audit ? h(Failing, { one: audit }) : null,
  );
}

// Where the epoch under way is, in words: what the level of its tasks does, and how many of these have ended.
export function atLevel(of) {
  const tasks = of.tasks ? `, ${count(of.done)} of ${several(of.tasks, "task")}` : "";
  return `epoch ${of.epoch}: ${of.does}${tasks} (level ${of.level} of ${of.levels})`;
}

// Where a run is that has not ended: as its newest message has it.
function UnderWay({ of, dagId, runId }) {
  if (!of || of.dag_run?.run_id !== runId || of.dag_run?.dag_id !== dagId) return null;
  const files = of.files_found ? `${count(of.files)} of ${several(of.files_found, "file")}` : several(of.files, "file");
  return h(Section, { title: "Under way", about: `As it said ${ago(of.at)}` }, h(Facts, {
    of: [
      ["Since", ago(of.started_at), moment(of.started_at)],
      ["Files", files],
      ["Records", count(of.records)],
      ["Epochs", count(of.epochs), of.epoch === null ? "the first is being computed" : `the newest is ${of.epoch}`],
      ...(of.level ? [["Now", atLevel(of.level)]] : []),
    ],
  }));
}
