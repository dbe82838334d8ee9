// One pipeline: the tab of its DAGs.
import { BranchGraph, Bars, COLORS, EventTimes } from "./charts.js";
import { Drop, Fork, LandAgain, Process, Promote, Recover, RecoverFrom, Release, Rollback, RowsThatChange, Tag } from "./decide.js";
import { Graph } from "./graph.js";
import { Neighbours } from "./lineage.js";
import { OutputChoice, Outputs, outputOf } from "./outputs.js";
import { Panes } from "./panes.js";
import { Deadline, lag, why } from "./pipelines.js";
import { Quality } from "./quality.js";
import { atLevel } from "./run.js";
import { Sinks } from "./sinks.js";
import { Answer, C, Facts, Link, Rows, Section, State, Values, ago, bytes, count, h, moment, query, runPage, several, share, useAnswer, useState, written } from "./ui.js";
import { Words, useWords } from "./words.js";

const TABS = { overview: Overview, epochs: Epochs, history: History, quality: Quality, records: Records, panes: Panes, explain: Explain, compare: Compare };

export function Pipeline({ dagId }) {
  const Router = globalThis.ReactRouterDOM;
  const [params, setParams] = Router.useSearchParams();
  const tab = params.get("view") in TABS ? params.get("view") : "overview";
  const found = useAnswer(`dags/${dagId}`, 15);
  return h(
    C.Box,
    { p: 4 },
    h(Answer, { of: found }, (summary) =>
      h(
        C.Box,
        null,
        h(C.HStack, { mb: 3 }, h(C.Heading, { size: "md", as: "h2" }, summary.pipeline), h(State, summary), h(C.Text, { color: "fg.muted" }, why(summary))),
        h(
          C.Tabs.Root,
          { value: tab, onValueChange: ({ value }) => setParams(value === "overview" ? {} : { view: value }), lazyMount: true, unmountOnExit: true },
          h(C.Tabs.List, null, Object.keys(TABS).map((name) => h(C.Tabs.Trigger, { key: name, value: name }, name[0].toUpperCase() + name.slice(1)))),
          Object.entries(TABS).map(([name, View]) => h(C.Tabs.Content, { key: name, value: name }, h(View, { dagId, summary, params, setParams }))),
        ),
      ),
    ),
  );
}

function Overview({ dagId, summary }) {
  const words = useWords(`headrace_${summary.pipeline}_process`);
  const { totals, audit, run } = summary;
  const late = (totals.late_dropped ?? 0) + (totals.closed_dropped ?? 0);
  return h(
    C.Box,
    null,
    h(Facts, {
      of: [
        ["Readers see", summary.published === null ? "nothing yet" : `epoch ${summary.published_epoch}`, summary.published_at ? `since ${moment(summary.published_at)}, ${ago(summary.published_at)}` : null],
        ["Main", summary.epoch === null ? "no snapshot yet" : `epoch ${summary.epoch}`, summary.committed_at ? `${moment(summary.committed_at)}, ${ago(summary.committed_at)}` : null],
        ["Not published", summary.unpublished === null ? "-" : several(summary.unpublished, "epoch")],
        ["Watermark", moment(summary.watermark), summary.held_back_by ? `held back by ${summary.held_back_by}; last moved on ${ago(summary.held_since)}` : null],
        ["Newest event time", moment(summary.newest_event_time), ago(summary.newest_event_time)],
        ["Newest file", ago(summary.newest_file_at), `readers lag ${lag(summary)} behind it`],
        ["Next deadline", h(Deadline, { of: summary })],
        ["Late records", share(late, totals.records), `${count(late)} of ${count(totals.records)} in the last ${several(summary.epochs.length, "epoch")}`],
        ["Dead letters", share(totals.rejected, totals.records), `${count(totals.rejected ?? 0)} of ${count(totals.records)}`],
        ["State", bytes(summary.state_bytes), "the graph below says of which aggregation, and how many windows are open"],
        ["Last audit", audit ? (audit.success ? "good" : "failed") : "-", audit ? `${several(audit.expectations, "expectation")}, ${moment(audit.finished_at)}` : null],
        ["Last run", run ? (summary.dag_run ? h(Link, { to: runPage(summary.dag_run) }, `${run.action} ${run.status}`) : `${run.action} ${run.status}`) : "-", run ? `${moment(run.finished_at)} ${run.error_code ?? ""}` : null],
      ],
    }),
    summary.may_edit
      ? h(
          C.HStack,
          { mt: 4, wrap: "wrap" },
          h(Process, summary),
          h(RecoverFrom, summary),
          h(HeldBack, { dagId, summary }),
        )
      : null,
    h(Branches, { of: summary }),
    summary.under_way ? h(Section, { title: "A run is under way" }, h(C.Text, null, `${summary.under_way.action}: ${underWay(summary.under_way)}; as it said ${ago(summary.under_way.at)}. `, summary.under_way.dag_run ? h(Link, { to: runPage(summary.under_way.dag_run) }, summary.under_way.dag_run.run_id) : null)) : null,
    run?.error ? h(Section, { title: "Why the last run failed" }, h(C.Text, { whiteSpace: "pre-wrap" }, `${run.error_code}: ${run.error}`)) : null,
    run?.error_code?.startsWith("restore.") ? h(C.Text, { mt: 2 }, "A recovery is started by itself, or waits for approval, once for each broken snapshot: ", h(Link, { to: `/dags/headrace_${summary.pipeline}_recover` }, "runs of recover"), ".") : null,
    run?.warnings?.length ? h(Section, { title: "Warnings of the last run" }, run.warnings.map((one) => h(C.Text, { key: one, whiteSpace: "pre-wrap" }, one))) : null,
    audit?.failed.length ? h(Section, { title: "Expectations that fail" }, audit.failed.map((one) => h(C.Text, { key: one }, one))) : null,
    summary.exceeded.length ? h(Section, { title: "Limits that are exceeded" }, summary.exceeded.map((one) => h(C.Text, { key: one }, one))) : null,
    h(Outputs, { of: summary.outputs }),
    h(Neighbours, { dagId }),
    h(Sinks, { of: summary.sinks, words, pipeline: summary.pipeline }),
    h(Graph, { dagId, summary, words }),
    summary.epochs.length ? h(Section, { title: "Event time and processing time", about: "Each line is an epoch; its bar spans the event times that it took in, the red line is the watermark." }, h(EventTimes, { epochs: summary.epochs })) : null,
    h(Words, { words }),
  );
}

const FEW = 5;

// Branches beside main, those that backfills of the schedule or of people have left last: they are dropped after a time.
function Branches({ of: summary }) {
  if (!summary.branches.length) return null;
  const left = summary.branches.filter((branch) => branch.startsWith("backfill-"));
  const own = summary.branches.filter((branch) => !branch.startsWith("backfill-"));
  const line = (branch) => h(C.HStack, { key: branch, mb: 1, wrap: "wrap" }, h(C.Text, { overflowWrap: "anywhere" }, branch), summary.may_edit ? [h(Promote, { key: "promote", pipeline: summary.pipeline, branch }), h(Drop, { key: "drop", pipeline: summary.pipeline, name: branch })] : null);
  const shown = [...own, ...left.slice(-FEW)];
  return h(
    Section,
    { title: "Branches beside main", about: left.length ? "A backfill drops branches of earlier backfills that nobody has promoted. All but the newest 3 of the schedule go, others after 14 days without a change. Names of your own stay." : null },
    shown.map(line),
    left.length > FEW ? h("details", null, h("summary", { style: { cursor: "pointer" } }, `${several(left.length - FEW, "older branch", "older branches")} of backfills`), left.slice(0, -FEW).map(line)) : null,
  );
}

const underWay = (of) => `${count(of.files)} of ${several(of.files_found, "file")}, ${several(of.records, "record")} in ${several(of.epochs, "epoch")}${of.level ? `; ${atLevel(of.level)}` : ""}`;

// Releases what audits hold back, of each output that has one.
function HeldBack({ dagId, summary }) {
  const isHeld = summary.unpublished && summary.audit && !summary.audit.success;
  const found = useAnswer(isHeld ? `dags/${dagId}/audits` : null);
  return (found.answer ?? []).filter((one) => one.is_next && !one.success).map((audit) => h(Release, { key: audit.output, pipeline: summary.pipeline, audit }));
}

function Epochs({ dagId, summary, params, setParams }) {
  const [limit, setLimit] = useState(50);
  const found = useAnswer(`dags/${dagId}/epochs${query({ limit })}`);
  const lateness = useAnswer(`dags/${dagId}/lateness${query({ limit, output: outputOf(summary, params) })}`);
  const { answer: runs = {} } = useAnswer(`dags/${dagId}/epochs/runs${query({ limit })}`);
  return h(Answer, { of: found, isEmpty: (epochs) => !epochs.length, empty: "There is no epoch yet." }, (epochs) =>
    h(
      C.Box,
      null,
      h(C.HStack, { my: 3 }, h(C.Text, null, "Newest epochs"), [50, 100, 200].map((number) => h(C.Button, { key: number, size: "xs", variant: number === limit ? "solid" : "outline", "aria-pressed": number === limit, onClick: () => setLimit(number) }, number))),
      h(EventTimes, { epochs }),
      h(
        C.SimpleGrid,
        { minChildWidth: "300px", gap: 4, mt: 4 },
        h(Bars, { epochs, value: (one) => one.counts.records ?? 0, label: "records" }),
        h(Bars, { epochs, value: (one) => (one.counts.late_dropped ?? 0) + (one.counts.closed_dropped ?? 0), label: "late records", color: COLORS.late }),
        h(Bars, { epochs, value: (one) => one.counts.rejected ?? 0, label: "dead letters", color: COLORS.rejected }),
        h(Bars, { epochs, value: (one) => one.seconds, label: "seconds of work" }),
      ),
      h(Section, { title: "How late the data was", about: "Quantiles to choose a bound and an allowed lateness by." }, h(OutputChoice, { summary, params, setParams }), h(Answer, { of: lateness }, (answer) =>
        h(Rows, { caption: "Lateness", columns: [["What", ([name]) => LATENESS[name] ?? name], ...["50%", "90%", "99%", "100%"].map((quantile) => [quantile, ([, values]) => (quantile in values ? duration(values[quantile]) : "-"), "end"])], rows: Object.entries(answer.lateness_seconds) }),
      )),
      h(Rows, { caption: "Epochs, the newest first", columns: epochColumns(runs), rows: [...epochs].reverse(), keyOf: (one) => one.epoch }),
    ),
  );
}

const LATENESS = { behind: "elements behind the newest in files before theirs (bound)", too_late: "late rows after their window's end (allowed lateness)" };
const duration = (seconds) => (seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${(seconds / 60).toFixed(1)} min` : seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} d`);
const epochColumns = (runs) => [
  ["Epoch", (one) => one.epoch, "end"],
  ["Snapshot", (one) => h(Link, { to: `?view=history&snapshot=${one.snapshot}` }, one.snapshot)],
  ["Processing time", (one) => moment(one.processing_time)],
  ["Watermark", (one) => moment(one.watermark)],
  ["Records", (one) => count(one.counts.records), "end"],
  ["Accepted", (one) => count(one.counts.accepted), "end"],
  ["Late", (one) => count((one.counts.late_dropped ?? 0) + (one.counts.closed_dropped ?? 0)), "end"],
  ["Dead letters", (one) => count(one.counts.rejected), "end"],
  ["Panes", (one) => count((one.counts.panes_early ?? 0) + (one.counts.panes_on_time ?? 0) + (one.counts.panes_late ?? 0)), "end"],
  ["Retractions", (one) => count(one.counts.retractions), "end"],
  ["Seconds", (one) => one.seconds, "end"],
  ["Written", (one) => bytes(one.bytes), "end"],
  ["Requests", (one) => count(one.requests), "end"],
  ["Executor", (one) => one.executor ?? "-"],
  ["Made by", (one) => h(MadeBy, { of: runs[one.epoch] })],
];

// The run that made something: a link to its page in Airflow, if Airflow has the run.
function MadeBy({ of }) {
  if (!of) return "-";
  return of.dag_run ? h(Link, { to: runPage(of.dag_run) }, of.dag_run.run_id) : h("span", { title: of.run }, "no DAG run");
}

function History({ dagId, summary, params }) {
  const [before, setBefore] = useState(undefined);
  const [chosen, setChosen] = useState(params.get("snapshot"));
  const found = useAnswer(`dags/${dagId}/history${query({ limit: 50, before })}`);
  return h(Answer, { of: found, isEmpty: (answer) => !answer.entries.length && before === undefined, empty: "Nothing has happened yet." }, ({ entries, graph }) =>
    h(
      C.Box,
      null,
      h(Section, { title: "Snapshots", about: "Filled: a branch or a tag leads to it. Choose one to see what it holds." }, h(BranchGraph, { snapshots: graph.snapshots, chosen, choose: setChosen })),
      chosen ? h(Snapshot, { dagId, at: chosen }) : null,
      chosen && summary.may_edit ? h(C.HStack, { wrap: "wrap" }, [Rollback, Recover, Tag, Fork].map((Kind, at) => h(Kind, { key: at, pipeline: summary.pipeline, snapshot: chosen }))) : null,
      h(Section, { title: "Log", about: "Who moved what, and why." }, h(Rows, { caption: "Log of the catalog", columns: LOG_COLUMNS, rows: entries, keyOf: (one) => one.number ?? one.entry })),
      h(
        C.HStack,
        null,
        before === undefined ? null : h(C.Button, { size: "xs", variant: "outline", onClick: () => setBefore(undefined) }, "Newest"),
        entries.length === 50 ? h(C.Button, { size: "xs", variant: "outline", onClick: () => setBefore(entries[entries.length - 1].number) }, "Older") : null,
      ),
    ),
  );
}

const LOG_COLUMNS = [
  ["Entry", (one) => one.number, "end"],
  ["At", (one) => moment(one.at)],
  ["Kind", (one) => one.kind],
  ["Moves", (one) => Object.entries(one.moves ?? {}).map(([ref, [from, to]]) => `${ref.replace(/^tags\//, "tag ")}: ${from ?? "-"} → ${to ?? "-"}`).join("\n")],
  ["Message", (one) => one.message ?? one.problem],
];

export function Snapshot({ dagId, at }) {
  const found = useAnswer(`dags/${dagId}/snapshots/${encodeURIComponent(at)}`);
  const { answer: runs = {} } = useAnswer(`dags/${dagId}/epochs/runs${query({ at, limit: 1 })}`);
  return h(Section, { title: `Snapshot ${at}` }, h(Answer, { of: found }, (one) =>
    h(
      C.Box,
      null,
      h(Facts, {
        of: [
          ["Epoch", one.epoch, `on ${one.branch}, ${moment(one.created_at)}`],
          ["Names", one.refs.length ? one.refs.join(", ") : "none"],
          ["Made by", h(MadeBy, { of: runs[one.epoch] })],
          ["Made from", one.parent ?? "nothing", one.patch && one.patch.epoch === one.epoch ? `a patch by branch ${one.patch.branch}` : null],
          ["Watermark", moment(one.watermark)],
          ["Written", bytes(one.written_bytes), several(Object.values(one.requests).reduce((sum, each) => sum + each, 0), "request")],
          ["Seconds", Object.values(one.timings).reduce((sum, each) => sum + each, 0).toFixed(2), Object.entries(one.timings).map(([name, value]) => `${name.replace("_seconds", "")} ${value.toFixed(2)}`).join(", ")],
        ],
      }),
      h(Section, { title: "Tables", about: "A row that has changed is in each layer that changed it." }, h(Rows, { caption: "Tables", columns: [["Table", ([name]) => name], ["Rows stored", ([, of]) => count(of.rows), "end"], ["Bytes", ([, of]) => bytes(of.bytes), "end"], ["Layers", ([, of]) => of.layers, "end"], ["Files", ([, of]) => of.files, "end"]], rows: Object.entries(one.tables) })),
      h(Section, { title: "Counts of the epoch" }, h(Rows, { caption: "Counts", columns: [["What", ([name]) => name.replaceAll("_", " ")], ["Number", ([, number]) => count(number), "end"]], rows: Object.entries(one.counts).filter(([, number]) => number) })),
    ),
  ));
}

function Records({ dagId, summary, params, setParams }) {
  const view = params.get("rows") ?? "rejected";
  const [where, setWhere] = useState("");
  const [asked, setAsked] = useState("");
  const output = outputOf(summary, params);
  const found = useAnswer(`dags/${dagId}/rows/${view}${query({ at: "main", where: asked, limit: 50, output })}`);
  const choose = (name) => setParams({ view: "records", rows: name, ...(output ? { output } : {}) });
  return h(
    C.Box,
    null,
    h(OutputChoice, { summary, params, setParams }),
    h(C.HStack, { my: 3, wrap: "wrap" }, Object.entries(VIEWS).map(([name, label]) => h(C.Button, { key: name, size: "xs", variant: name === view ? "solid" : "outline", "aria-pressed": name === view, onClick: () => choose(name) }, label)), summary.may_edit && !output && (view === "late" || view === "rejected") ? h(LandAgain, { pipeline: summary.pipeline, records: view }) : null),
    h("form", { onSubmit: (event) => { event.preventDefault(); setAsked(where); } }, h(C.HStack, { mb: 3 }, h(C.Input, { size: "sm", maxW: "420px", "aria-label": "Condition in SQL", placeholder: "a condition in SQL, such as shop = 'a'", value: where, onChange: (event) => setWhere(event.target.value) }), h(C.Button, { size: "sm", type: "submit" }, "Look"))),
    h(Answer, { of: found, isEmpty: (answer) => !answer.rows.length, empty: "There are none." }, (answer) => h(C.Box, null, h(C.Text, { color: "fg.muted", fontSize: "sm", mb: 2 }, `${answer.rows.length} of ${count(answer.total)} rows of main`), h(Values, { caption: VIEWS[view], columns: answer.columns, rows: answer.rows }))),
  );
}

const VIEWS = { rejected: "Dead letters", late: "Late rows", current: "Current rows", panes: "Panes" };

function TextField({ given, setGiven, name, label, maxW }) {
  return h(C.Field.Root, { maxW }, h(C.Field.Label, null, label), h(C.Input, { size: "sm", value: given[name], onChange: (event) => setGiven({ ...given, [name]: event.target.value }) }));
}

const NOTHING_ASKED = { key: "", window: "" };

function Explain({ dagId, summary, params, setParams }) {
  const [given, setGiven] = useState(NOTHING_ASKED);
  const [asked, setAsked] = useState(null);
  const output = outputOf(summary, params);
  const known = useAnswer(`dags/${dagId}/panes/keys${query({ output })}`);
  // Neither columns of a key nor "all elements": the output gives rows. What is known of them is shown unasked.
  const isOfRows = Boolean(known.answer && !known.answer.columns.length && !known.answer.keys.length);
  const found = useAnswer((asked || isOfRows) && `dags/${dagId}/explain${query({ ...(asked ?? NOTHING_ASKED), output })}`);
  const labels = isOfRows ? { key: 'Key, or columns of joined rows: a value, or JSON such as {"id": 1}', window: "Time of rows, or any in a window (empty: all)" } : { key: 'Key: a value, or JSON such as {"shop": "a"}', window: "Window: any time in it (empty: all windows)" };
  return h(
    C.Box,
    null,
    h(C.Text, { my: 3, color: "fg.muted" }, isOfRows ? "Which rows have these met, and what do they wait for?" : "Why has a window fired or not, and what does it wait for?"),
    h(OutputChoice, { summary, params, setParams }),
    h("form", { onSubmit: (event) => { event.preventDefault(); setAsked({ ...given }); } }, h(C.VStack, { align: "start", mb: 3 }, Object.entries(labels).map(([name, label]) => h(TextField, { key: name, given, setGiven, name, label, maxW: "320px" })), h(C.Button, { size: "sm", type: "submit" }, "Explain"))),
    !asked && found.error ? h(C.Text, { color: "fg.muted" }, found.error.message) : asked || isOfRows ? h(Answer, { of: found }, (answer) => h(C.Box, { as: "pre", whiteSpace: "pre-wrap", fontFamily: "mono", fontSize: "sm" }, answer.lines.join("\n"))) : null,
  );
}

function Compare({ dagId, summary, params, setParams }) {
  const output = outputOf(summary, params);
  const [given, setGiven] = useState({ before: params.get("before") ?? "published", after: params.get("after") ?? "main" });
  const asked = params.get("before") && params.get("after") ? { before: params.get("before"), after: params.get("after") } : null;
  const found = useAnswer(asked && `dags/${dagId}/diff${query({ ...asked, limit: 50, output })}`);
  return h(
    C.Box,
    null,
    h(C.Text, { my: 3, color: "fg.muted" }, "Which rows would a reader see change between two snapshots, tags or branches?"),
    h(OutputChoice, { summary, params, setParams }),
    h("form", { onSubmit: (event) => { event.preventDefault(); setParams({ view: "compare", ...given, ...(output ? { output } : {}) }); } }, h(C.HStack, { align: "end", mb: 3, wrap: "wrap" }, h(TextField, { given, setGiven, name: "before", label: "Before", maxW: "260px" }), h(TextField, { given, setGiven, name: "after", label: "After", maxW: "260px" }), h(C.Button, { size: "sm", type: "submit" }, "Compare"))),
    asked ? h(Answer, { of: found }, (answer) => h(Difference, { of: answer })) : null,
  );
}

export function Difference({ of }) {
  return h(
    C.Box,
    null,
    h(RowsThatChange, { of: of.output }),
    h(Section, { title: "Clocks" }, h(Rows, { caption: "Clocks", columns: [["Clock", ([name]) => name.replaceAll("_", " ")], ["Before", ([, pair]) => moment(pair.before)], ["After", ([, pair]) => moment(pair.after)]], rows: Object.entries(of.clocks) })),
    h(Section, { title: "Input" }, h(Rows, { caption: "Input", columns: [["Input", ([name]) => name], ["Files before", ([, one]) => count(one.files.before), "end"], ["Files after", ([, one]) => count(one.files.after), "end"], ["Only before", ([, one]) => count(one.only_before.length), "end"], ["Only after", ([, one]) => count(one.only_after.length), "end"]], rows: Object.entries(of.inputs) })),
  );
}
