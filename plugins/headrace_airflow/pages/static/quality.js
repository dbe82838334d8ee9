// The tab Quality: what audits found, the newest first, and each figure beside what was usual.
import { BesideUsual } from "./charts.js";
import { Backfill, Release } from "./decide.js";
import { Answer, BASE, C, Rows, Section, Values, count, h, moment, query, several, useAnswer, written } from "./ui.js";

export function Quality({ dagId, summary }) {
  const found = useAnswer(`dags/${dagId}/audits`);
  return h(Answer, { of: found, isEmpty: (audits) => !audits.length, empty: "There is no audit yet." }, (audits) => h(C.Box, null, h(History, { audits }), audits.map((one) => h(Audit, { key: `${one.output} ${one.after}${one.until}`, dagId, one, summary }))));
}

function Audit({ dagId, one, summary }) {
  if (one.problem) return h(Section, { title: "Audit that cannot be read", about: one.problem });
  const rows = Object.entries(one.rows).map(([view, number]) => `${several(number, "row")} of ${view}`).join(", ");
  return h(
    Section,
    { title: `${one.success ? "Good" : "Failed"}: ${one.output ? `output ${one.output} ` : ""}up to ${one.until}`, about: `${moment(one.finished_at)}, from ${one.after ?? "the beginning"}; ${rows || (one.usual.length ? "of no row" : "nothing is expected")}` },
    isHeld(one, summary) ? h(C.HStack, { mb: 2, wrap: "wrap" }, h(Release, { pipeline: summary.pipeline, audit: one }), h(Backfill, { pipeline: summary.pipeline })) : null,
    one.docs.length ? h(C.HStack, { mb: 2 }, h(C.Text, null, "Data docs:"), one.docs.map((view) => h(C.Link, { key: view, href: docs(dagId, one, view), target: "_blank", rel: "noreferrer", color: "fg.info" }, view))) : null,
    one.findings.length ? h(Rows, { caption: `Findings up to ${one.until}`, columns: FINDINGS, rows: one.findings }) : null,
    one.usual.length ? h(Rows, { caption: `Beside history up to ${one.until}`, columns: USUAL, rows: one.usual }) : null,
    one.limits.length ? h(Rows, { caption: `Limits up to ${one.until}`, columns: LIMITS, rows: one.limits }) : null,
    h(Failing, { one }),
  );
}

// Whether a person who looks at an audit may release what it holds back.
const isHeld = (one, summary) => summary.may_edit && !one.success && one.is_next;

// The first rows to blame, for those who may see values.
export function Failing({ one }) {
  const failing = [...one.findings.map((each) => [each.expectation, each.failing]), ...one.usual.map((each) => [each.check, each.failing])].filter(([, some]) => some.length);
  return failing.map(([what, some]) => h(Section, { key: what, title: `Rows that fail ${what}` }, h(Values, { caption: "Failing rows", columns: Object.keys(some[0]), rows: some })));
}

const docs = (dagId, one, view) => new URL(`api/dags/${dagId}/audits/${one.until}/docs/${view}${query({ after: one.after, output: one.output })}`, BASE).href;

// Each check that is declared now, over the versions that were audited: the newest audit comes first.
function History({ audits }) {
  const readable = audits.filter((one) => !one.problem);
  const checks = readable[0]?.usual ?? [];
  if (!checks.length) return null;
  const points = (check) => readable.flatMap((one) => one.usual.filter((each) => each.check === check && each.observed !== null).map((each) => ({ ...each, until: one.until, finished_at: one.finished_at }))).reverse();
  return h(
    Section,
    { title: "Beside history", about: "Each figure of the newest versions; the dashed line is what was usual then, of a distribution the distance that is allowed. The figures are in the tables below." },
    h(C.SimpleGrid, { minChildWidth: "300px", gap: 4 }, checks.map(({ check, kind, bound }) => {
      const known = points(check).map((one) => ({ ...one, usual: kind === "distribution" ? bound : one.usual }));
      return known.length ? h(BesideUsual, { key: check, points: known, label: LABELS[kind](check), shown: SHOWN[kind] }) : h(C.Text, { key: check, color: "fg.muted" }, `${check}: no figure yet`);
    })),
  );
}

const LABELS = { volume: () => "records for each hour of event time", nulls: (check) => `share of NULL: ${check}`, distribution: (check) => `distance: ${check}` };
const SHOWN = {
  volume: (value) => (value < 10 ? value.toFixed(1) : count(Math.round(value))),
  nulls: (value) => `${(value * 100).toFixed(1)}%`,
  distribution: (value) => value.toFixed(2),
};

const verdict = (palette, words) => h(C.Badge, { colorPalette: palette }, words);
const by = ({ released }) => (released.length ? `entry ${released.join(", ")}` : "");
const bounded = ({ severity }) => verdict({ fail: "red", warn: "orange" }[severity] ?? "green", { fail: "no", warn: "warning" }[severity] ?? "yes");

const FINDINGS = [
  ["Holds", (one) => verdict(one.success ? "green" : "red", one.success ? "yes" : "no")],
  ["Expectation", (one) => one.expectation],
  ["Unexpected", (one) => (one.unexpected === null ? written(one.observed) : `${count(one.unexpected)} of ${count(one.of)}`), "end"],
  ["Released by", by],
];

const USUAL = [
  ["As usual", (one) => (one.is_judged ? bounded(one) : verdict("gray", "not judged"))],
  ["Check", (one) => one.check],
  ["Found", (one) => one.said],
  ["Released by", by],
];

const LIMITS = [
  ["Holds", bounded],
  ["Limit", (one) => one.limit],
  ["Released by", by],
];
