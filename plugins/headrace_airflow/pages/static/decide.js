// Decisions: a button that opens a dialog with what would change, and starts the DAG that does it, as the user.
import { Answer, BASE, C, Link, Rows, Section, count, h, moment, query, useAnswer, useEffect, useState, written } from "./ui.js";

// One rule for all decisions: each asks for a reason, says what readers see before and after, and shows in the dialog
// what came of it. `fields`: {name: {label, value, help, required, options}}; `conf` makes of their values what the run is
// given; `rehearsal` the path of what would change, without which readers see the same. `asks`: the path of what the
// fields are made of, asked once the dialog is open. Airflow checks the form again, and whether the user may start the
// run.
export function Decide({ label, title, about, dag, asks, fields = {}, conf = (values) => values, rehearsal, color }) {
  const [open, setOpen] = useState(false);
  return h(
    C.Dialog.Root,
    { open, onOpenChange: ({ open: now }) => setOpen(now), size: "lg", scrollBehavior: "inside", lazyMount: true, unmountOnExit: true },
    h(C.Dialog.Trigger, { asChild: true }, h(C.Button, { size: "xs", variant: "outline", colorPalette: color }, label)),
    h(C.Portal, null, h(C.Dialog.Backdrop), h(C.Dialog.Positioner, null, h(C.Dialog.Content, null, h(asks ? Asking : Form, { title: title ?? label, about, dag, asks, fields, conf, rehearsal, close: () => setOpen(false) })))),
  );
}

function Asking({ asks, fields, ...form }) {
  const found = useAnswer(asks);
  if (found.answer) return h(Form, { ...form, fields: fields(found.answer) });
  return h(
    C.Box,
    null,
    h(C.Dialog.Header, null, h(C.Dialog.Title, null, form.title)),
    h(C.Dialog.Body, null, h(Answer, { of: found })),
    h(C.Dialog.Footer, null, h(C.Button, { size: "sm", variant: "outline", type: "button", onClick: form.close }, "Cancel")),
  );
}

function Form({ title, about, dag, fields, conf, rehearsal, close }) {
  const [values, setValues] = useState(Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value ?? ""])));
  const [sent, setSent] = useState({});
  const missing = Object.entries(fields).some(([name, field]) => field.required && !String(values[name]).trim());
  const foreseen = useAnswer(rehearsal?.(values));
  const submit = async (event) => {
    event.preventDefault();
    setSent({ busy: true });
    setSent(await start(dag, conf(values)));
  };
  return h(
    "form",
    { onSubmit: submit, style: { display: "flex", flexDirection: "column", minHeight: 0 } },
    h(C.Dialog.Header, null, h(C.Dialog.Title, null, title)),
    h(
      C.Dialog.Body,
      null,
      about ? h(C.Text, { mb: 3 }, about) : null,
      Object.entries(fields).map(([name, field]) => h(Field, { key: name, field, value: values[name], change: (value) => setValues({ ...values, [name]: value }) })),
      rehearsal?.(values) ? h(Section, { title: "What would change" }, h(Answer, { of: foreseen }, (answer) => h(Foreseen, { of: answer }))) : rehearsal || !fields.reason ? null : h(C.Text, { mb: 3, color: "fg.muted" }, "Readers see the same before and after."),
      sent.error ? h(C.Text, { role: "alert", color: "fg.error", whiteSpace: "pre-wrap" }, sent.error) : null,
      sent.run ? h(Outcome, { dag, run: sent.run }) : null,
    ),
    h(
      C.Dialog.Footer,
      null,
      h(C.Button, { size: "sm", variant: "outline", type: "button", onClick: close }, sent.run ? "Close" : "Cancel"),
      sent.run ? null : h(C.Button, { size: "sm", type: "submit", disabled: missing || sent.busy, colorPalette: "blue" }, "Confirm"),
    ),
  );
}

const SECONDS = 2;
const AT_ITS_END = new Set(["success", "failed"]);
const WAITS = new Set(["awaiting_input", "deferred"]);

// What came of a decision: followed until its run has ended.
function Outcome({ dag, run }) {
  const [seen, setSeen] = useState({ state: "queued", lines: [] });
  useEffect(() => {
    let timer;
    let isOver = false;
    const look = async () => {
      const now = await outcome(dag, run).catch(() => null); // Airflow may answer the next time
      if (isOver) return;
      if (now) setSeen(now);
      if (!AT_ITS_END.has(now?.state)) timer = setTimeout(look, SECONDS * 1000);
    };
    look();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [dag, run]);
  const to = `/dags/${dag}/runs/${encodeURIComponent(run)}`;
  const words = { success: "Done", failed: "Not done", queued: "Started", running: seen.asks ? "Waits for approval" : "Under way" };
  return h(
    C.Box,
    { role: seen.state === "failed" ? "alert" : "status", "data-outcome": seen.state, mt: 3 },
    h(C.Text, { fontWeight: "bold", color: seen.state === "failed" ? "fg.error" : undefined }, `${words[seen.state] ?? seen.state}: `, h(Link, { to: seen.asks ? `${to}/required_actions` : to }, run)),
    seen.lines.map((line) => h(C.Text, { key: line, whiteSpace: "pre-wrap", overflowWrap: "anywhere" }, line)),
  );
}

async function outcome(dag, run) {
  const path = `api/v2/dags/${dag}/dagRuns/${encodeURIComponent(run)}`;
  const ask = (more) => fetch(new URL(path + more, document.baseURI), { headers: { Accept: "application/json" } }).then((answer) => (answer.ok ? answer.json() : null));
  const { state } = await ask("");
  const { task_instances: tasks = [] } = (await ask("/taskInstances")) ?? {};
  const left = async (task, key) => (await ask(`/taskInstances/${encodeURIComponent(task)}/xcomEntries/${key}?stringify=false`))?.value;
  if (state === "failed") {
    const failed = tasks.find((one) => one.state === "failed");
    const problem = failed && ((await left(failed.task_id, "problem")) ?? (await wrong(dag, run)));
    return { state, lines: [problem ?? `Task ${failed?.task_id} failed: its log says why.`] };
  }
  if (state !== "success") return { state, lines: [], asks: tasks.some((one) => WAITS.has(one.state)) };
  const said = await Promise.all(tasks.map((one) => left(one.task_id, "return_value")));
  return { state, lines: said.flatMap((one) => one?.said ?? []) };
}

// What was wrong with a run of a pipeline's own DAG; undefined for other DAGs.
async function wrong(dag, run) {
  const answer = await fetch(new URL(`api/dags/${dag}/runs/${encodeURIComponent(run)}`, BASE), { headers: { Accept: "application/json" } });
  const error = answer.ok && (await answer.json()).find((one) => one.error)?.error;
  return error ? `${error.code}: ${error.message}` : undefined;
}

function Field({ field, value, change }) {
  const set = (event) => change(event.target.value);
  return h(
    C.Field.Root,
    { required: field.required, mb: 3 },
    h(C.Field.Label, null, field.label, field.required ? h(C.Field.RequiredIndicator) : null),
    field.options
      ? h(C.NativeSelect.Root, { size: "sm" }, h(C.NativeSelect.Field, { value, onChange: set }, Object.entries(field.options).map(([key, text]) => h("option", { key, value: key }, text))), h(C.NativeSelect.Indicator))
      : h(C.Input, { size: "sm", value, onChange: set }),
    field.help ? h(C.Field.HelperText, null, field.help) : null,
  );
}

// What a rehearsal says: refs that move, what is lost, rows that change, what is against it.
function Foreseen({ of }) {
  return h(
    C.Box,
    null,
    (of.refusals ?? []).map((one) => h(C.Text, { key: one.code, role: "alert", color: "fg.error", whiteSpace: "pre-wrap" }, `It would be refused: ${one.message} (${one.code})`)),
    h(ReadersSee, { of }),
    Object.entries(of.moves ?? {}).map(([ref, [from, to]]) => h(C.Text, { key: ref }, `${ref} moves from ${from ?? "nothing"} to ${to ?? "nothing"}`)),
    (of.told ?? []).map((line) => h(C.Text, { key: line, color: "fg.warning" }, line)),
    of.output ? h(RowsThatChange, { of: of.output }) : null,
    Object.entries(of.outputs ?? {}).map(([name, output]) => h(C.Box, { key: name, mt: 2 }, h(C.Text, { fontWeight: "bold" }, `Output ${name}`), h(RowsThatChange, { of: output }))),
  );
}

// What readers see before and after. `readers`: by output, [snapshot and epoch before, after].
function ReadersSee({ of }) {
  const named = (at) => (at ? `${at.snapshot} (epoch ${at.epoch})` : "nothing");
  return Object.entries(of.readers ?? {}).map(([output, { before, after }]) => {
    const whose = output ? `Readers of ${output} see` : "Readers see";
    const isSame = before?.snapshot === after?.snapshot;
    return h(C.Text, { key: output, "data-readers": output, fontWeight: "medium" }, isSame ? `${whose} ${named(before)} before and after.` : `${whose} ${named(before)} before, ${named(after)} after.`);
  });
}

// What a pane is, beside its values: it differs between any two panes, and tells a person nothing about the change.
const OF_PANES = new Set(["pane_time", "timing", "pane_index", "nonspeculative_index", "is_first", "is_last", "epoch", "window_start", "window_end"]);

export function RowsThatChange({ of }) {
  const { before, after, ...changes } = of.rows;
  const said = Object.entries(changes).filter(([, number]) => number).map(([name, number]) => `${count(number)} ${name}`);
  return h(
    C.Box,
    null,
    h(C.Text, { mb: 2 }, `Rows that readers see: ${said.join(", ") || "none changes"} (${count(before)} before, ${count(after)} after).`),
    of.first.length ? h(Rows, { caption: "Rows that change", columns: columnsOf(of.first), rows: of.first }) : null,
  );
}

const pairs = (values) => (values ? Object.entries(values).filter(([name]) => !OF_PANES.has(name)).map(([name, value]) => `${name} = ${written(value)}`).join("\n") : "-");
const mono = (value) => h(C.Box, { fontFamily: "mono", fontSize: "xs" }, value);
const ofWindow = (row) => mono(row.key.window_start || row.key.window_end ? `${moment(row.key.window_start)}\n${moment(row.key.window_end)}` : "-");
// A row that is not what an aggregation gives is known by all its columns: it comes or goes as a whole.
const isWhole = (row) => !Object.keys(row.before ?? {}).length && !Object.keys(row.after ?? {}).length;
const CHANGES = [
  ["Change", (row) => row.kind],
  ["Key", (row) => mono(pairs(row.key))],
  ["Window", ofWindow],
  ["Before", (row) => mono(pairs(row.before))],
  ["After", (row) => mono(pairs(row.after))],
];
const WHOLE_CHANGES = [
  ["Change", (row) => row.kind],
  ["Row", (row) => mono(pairs(row.key))],
];

function columnsOf(rows) {
  if (!rows.every(isWhole)) return CHANGES;
  return rows.some((row) => row.key.window_end) ? [...WHOLE_CHANGES, ["Window", ofWindow]] : WHOLE_CHANGES;
}

async function start(dag, conf) {
  const response = await fetch(new URL(`api/v2/dags/${dag}/dagRuns`, document.baseURI), {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify({ logical_date: null, conf }),
  }).catch((failure) => ({ ok: false, json: async () => ({ detail: failure.message }) }));
  const body = await response.json().catch(() => ({}));
  if (response.ok) return { run: body.dag_run_id };
  if (response.status === 403) return { error: `You may not start ${dag}: ask somebody who may edit it.` };
  return { error: `It was not started: ${typeof body.detail === "string" ? body.detail : JSON.stringify(body.detail ?? response.statusText)}` };
}

// A pipeline is called ROOT.NAME where its root has a name: so are its DAGs. A decision has one DAG for each root, whose
// form takes the name alone.
const decision = (pipeline, kind) => `headrace_${pipeline.slice(0, pipeline.lastIndexOf(".") + 1)}${kind}`;
const nameOf = (pipeline) => pipeline.slice(pipeline.lastIndexOf(".") + 1);

const REASON = { label: "Reason", help: "Who decided it and why; the log of the pipeline keeps it.", required: true };
const given = (values) => Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value === "" ? null : value]));

export const Process = ({ pipeline }) => h(Decide, { label: "Process now", title: `Process ${pipeline}`, about: "Reads what has landed, audits it and publishes it.", dag: `headrace_${pipeline}_process`, conf: () => ({}) });

// What fails in an audit, in words.
const failures = (one) => [...one.findings.filter((each) => !each.success).map((each) => each.expectation), ...one.usual.filter((each) => each.severity === "fail").map((each) => each.said), ...one.limits.filter((each) => each.severity === "fail").map((each) => each.limit)];

// `audit`: one that failed, of an output that may have a name.
export const Release = ({ pipeline, audit: { until: snapshot, output, ...audit } }) =>
  h(Decide, {
    label: "Release…",
    title: `Release what the audit of ${pipeline} holds back`,
    about: `Readers will see these rows although they fail: ${failures(audit).join("; ")}.`,
    color: "orange",
    dag: decision(pipeline, "release"),
    fields: { reason: REASON },
    conf: ({ reason }) => ({ pipeline: nameOf(pipeline), snapshot, output: output || null, reason }),
    rehearsal: () => `dags/headrace_${pipeline}_process/rehearsals/release${query({ snapshot, limit: 10, output })}`,
  });

export const Backfill = ({ pipeline }) =>
  h(Decide, {
    label: "Backfill…",
    title: `Backfill ${pipeline}`,
    about: "Reads input again on a branch beside main. Readers see it once it is promoted.",
    dag: `headrace_${pipeline}_backfill`,
    fields: {
      from: { label: "From", help: "An event time, such as 2026-11-20T00:00:00Z. Empty: all input is read again." },
      to: { label: "To", help: "An event time. Empty: up to the newest." },
      promote: { label: "Promote", value: "when approved", options: { "when approved": "when a person has seen what would change", never: "never: the branch stays" } },
      reason: REASON,
    },
    conf: given,
  });

export const Rollback = ({ pipeline, snapshot }) =>
  h(Decide, {
    label: "Roll back to here…",
    title: `Roll ${pipeline} back to ${snapshot}`,
    about: "The next run reads again what came after. Nothing is deleted.",
    color: "red",
    dag: decision(pipeline, "rollback"),
    fields: { branch: { label: "Branch", value: "main", required: true }, reason: REASON },
    conf: (values) => ({ pipeline: nameOf(pipeline), to: snapshot, ...values }),
    rehearsal: ({ branch }) => branch && `dags/headrace_${pipeline}_process/rehearsals/rollback?${new URLSearchParams({ to: snapshot, branch })}`,
  });

const RECOVERS = "Main moves back, everything after is read again, audited and published. The first task looks whether the snapshot is whole before anything moves.";
const recovered = (pipeline) => ({ snapshot }) => snapshot && `dags/headrace_${pipeline}_process/rehearsals/recover?${new URLSearchParams({ to: snapshot })}`;

export const Recover = ({ pipeline, snapshot }) =>
  h(Decide, {
    label: "Recover from here…",
    title: `Recover ${pipeline} from ${snapshot}`,
    about: RECOVERS,
    color: "red",
    dag: `headrace_${pipeline}_recover`,
    fields: { reason: REASON },
    conf: (values) => ({ snapshot, when: "at once", ...given(values) }),
    rehearsal: () => recovered(pipeline)({ snapshot }),
  });

// A recovery from one of the last snapshots. Offered first is the newest before main's own that lacks no file: what is in
// the files of main's own may be damaged.
export function RecoverFrom({ pipeline, epoch }) {
  if (epoch === null) return null;
  const text = (one) => `epoch ${one.epoch}, ${moment(one.created_at)}, ${one.snapshot}: ${one.problem ? "it lacks files" : one.keeps_readers ? "readers lose nothing" : "readers go back, too"}`;
  const fields = (targets) => {
    const whole = targets.filter((one) => !one.problem && one.epoch !== epoch);
    const options = Object.fromEntries(targets.map((one) => [one.snapshot, text(one)]));
    return { snapshot: { label: "Snapshot", value: (whole[0] ?? targets[0])?.snapshot, required: true, options }, reason: REASON };
  };
  return h(Decide, {
    label: "Recover…",
    title: `Recover ${pipeline}`,
    about: RECOVERS,
    color: "red",
    dag: `headrace_${pipeline}_recover`,
    asks: `dags/headrace_${pipeline}_process/recovery-targets`,
    fields,
    conf: (values) => ({ when: "at once", ...given(values) }),
    rehearsal: recovered(pipeline),
  });
}

export const Tag = ({ pipeline, snapshot }) => h(Decide, { label: "Tag…", title: `Tag ${snapshot}`, about: "A tag keeps a snapshot from expiring.", dag: decision(pipeline, "tag"), fields: { name: { label: "Tag", required: true }, reason: REASON }, conf: (values) => ({ pipeline: nameOf(pipeline), snapshot, ...given(values) }) });

export const Fork = ({ pipeline, snapshot }) => h(Decide, { label: "Branch…", title: `Branch at ${snapshot}`, about: "For runs beside main; readers see nothing of it.", dag: decision(pipeline, "fork"), fields: { name: { label: "Branch", required: true }, reason: REASON }, conf: (values) => ({ pipeline: nameOf(pipeline), snapshot, ...values }) });

export const Promote = ({ pipeline, branch }) =>
  h(Decide, {
    label: "Promote…",
    title: `Promote ${branch} of ${pipeline}`,
    about: "The branch becomes main and is published. As a patch only rows change that are over, and the branch stays.",
    color: "orange",
    dag: decision(pipeline, "promote"),
    fields: { patch: { label: "How", value: "no", options: { no: "The whole branch becomes main", yes: "Patch main with its rows" } }, reason: REASON },
    conf: ({ patch, reason }) => ({ pipeline: nameOf(pipeline), branch, patch: patch === "yes", approve: false, reason }),
    rehearsal: ({ patch }) => `dags/headrace_${pipeline}_process/rehearsals/promote?${new URLSearchParams({ branch, patch: patch === "yes", limit: 10 })}`,
  });

export const Drop = ({ pipeline, name }) => h(Decide, { label: "Drop…", title: `Drop ${name} of ${pipeline}`, about: "Its snapshots stay in the store until they expire.", color: "red", dag: decision(pipeline, "drop"), fields: { reason: REASON }, conf: (values) => ({ pipeline: nameOf(pipeline), name, ...given(values) }) });

export const LandAgain = ({ pipeline, records }) =>
  h(Decide, {
    label: "Land again…",
    title: records === "late" ? "Land late records again" : "Land dead letters again",
    about: "Each lands once, as files of the source's format; the next run reads them if it can now.",
    dag: decision(pipeline, "replay"),
    fields: { to: { label: "To", help: "A path below the root, or a URI. Empty: below the folders 'late' and 'rejected' of the root." }, reason: REASON },
    conf: ({ to, reason }) => ({ pipeline: nameOf(pipeline), records, input: null, to: to || null, at: null, reason }),
  });
