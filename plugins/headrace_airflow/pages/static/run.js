// A run of a DAG, or one of its tasks: what was done to the pipeline.
import { Answer, C, Facts, Link, Section, count, h, moment, query, useAnswer } from "./ui.js";

export function Run({ dagId, runId, taskId }) {
  const found = useAnswer(`dags/${dagId}/runs/${encodeURIComponent(runId)}${query({ task_id: taskId })}`, 10);
  return h(
    C.Box,
    { p: 4 },
    h(Answer, { of: found, isEmpty: (results) => !results.length, empty: taskId ? "This task has left no result: it made no epoch, or has not ended." : "No task of this run has left a result yet." }, (results) =>
      results.map((one) =>
        h(
          Section,
          { key: one.run_id, title: `${one.action}: ${one.status}`, about: `${moment(one.started_at)} to ${moment(one.finished_at)}` },
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
          one.error ? h(C.Text, { role: "alert", mt: 2, whiteSpace: "pre-wrap" }, `${one.error.code}: ${one.error.message}`) : null,
          one.warnings.map((each) => h(C.Text, { key: each, mt: 2, whiteSpace: "pre-wrap" }, each)),
        ),
      ),
    ),
    h(C.Text, { mt: 4 }, h(Link, { to: `/dags/${dagId}/plugin/headrace_dag?view=epochs` }, "All epochs of the pipeline")),
  );
}
