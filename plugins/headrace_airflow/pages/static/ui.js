// What all pages share: elements, questions to the app, and how values are written.
const { React, ChakraUI: C } = globalThis;
export const h = React.createElement;
export const { useCallback, useEffect, useMemo, useState } = React;
export { C };

export const BASE = new URL("..", import.meta.url);

// What the app answers to `path`: {answer}, {error: {code, message}}, or neither while it has not answered.
// `every`: ask again after so many seconds, as long as the page is looked at.
export function useAnswer(path, every) {
  const [state, setState] = useState({});
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    if (!path) return undefined;
    const stop = new AbortController();
    ask(path, stop.signal).then((found) => stop.signal.aborted || setState({ ...found, path }));
    return () => stop.abort();
  }, [path, asked]);
  useEffect(() => {
    if (!every) return undefined;
    const timer = setInterval(() => document.hidden || setAsked((n) => n + 1), every * 1000);
    return () => clearInterval(timer);
  }, [every]);
  const again = useCallback(() => setAsked((n) => n + 1), []);
  return state.path === path ? { ...state, again } : { again };
}

async function ask(path, signal) {
  try {
    const response = await fetch(new URL(`api/${path}`, BASE), { signal, headers: { Accept: "application/json" } });
    const body = await response.json().catch(() => ({}));
    if (response.ok) return { answer: body };
    const said = body.error ?? { message: typeof body.detail === "string" ? body.detail : response.statusText };
    return { error: { status: response.status, ...said } };
  } catch (failure) {
    return { error: { message: `Airflow's API server does not answer: ${failure.message}` } };
  }
}

export const query = (values) => {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

// Shows what was asked: a spinner, an error with a button, or `children` of the answer.
export function Answer({ of, empty, isEmpty, children }) {
  if (of.error) {
    return h(
      C.Box,
      { role: "alert", borderWidth: "1px", borderColor: "border.error", borderRadius: "md", p: 3, my: 2 },
      h(C.Text, { fontWeight: "bold" }, of.error.status === 403 ? "Not shown to you" : "This cannot be shown"),
      h(C.Text, { whiteSpace: "pre-wrap" }, of.error.message, of.error.code ? ` (${of.error.code})` : ""),
      of.error.status === 403 ? null : h(C.Button, { size: "xs", mt: 2, variant: "outline", onClick: of.again }, "Ask again"),
    );
  }
  if (of.answer === undefined) return h(C.HStack, { p: 3, role: "status" }, h(C.Spinner, { size: "sm" }), h(C.Text, null, "Loading"));
  if (isEmpty?.(of.answer)) return h(C.Text, { p: 3, color: "fg.muted" }, empty);
  return children(of.answer);
}

export function Section({ title, about, children }) {
  return h(
    C.Box,
    { as: "section", "aria-label": title, my: 5 },
    h(C.Heading, { size: "sm", as: "h3", mb: 1 }, title),
    about ? h(C.Text, { color: "fg.muted", fontSize: "sm", mb: 2 }, about) : null,
    children,
  );
}

// A table: columns are [heading, value of a row, alignment]. It has the ground of what it stands on, also in a dialog.
export function Rows({ caption, columns, rows, keyOf }) {
  return h(
    C.Box,
    { overflowX: "auto", tabIndex: 0, role: "region", "aria-label": caption },
    h(
      C.Table.Root,
      { size: "sm", "aria-label": caption, bg: "transparent" },
      h(
        C.Table.Header,
        null,
        h(C.Table.Row, { bg: "transparent" }, columns.map(([heading, , align]) => h(C.Table.ColumnHeader, { key: heading, textAlign: align }, heading))),
      ),
      h(
        C.Table.Body,
        null,
        rows.map((row, at) =>
          h(
            C.Table.Row,
            { key: keyOf ? keyOf(row) : at, bg: "transparent" },
            columns.map(([heading, value, align]) => h(C.Table.Cell, { key: heading, textAlign: align, whiteSpace: "pre-wrap" }, value(row))),
          ),
        ),
      ),
    ),
  );
}

// Rows of data, with columns as they are called.
export const Values = ({ caption, columns, rows }) => h(Rows, { caption, columns: columns.map((name) => [name, (row) => h(C.Box, { fontFamily: "mono", fontSize: "xs", maxW: "420px", lineClamp: 4 }, written(row[name]))]), rows });

export function Facts({ of }) {
  return h(
    C.SimpleGrid,
    { minChildWidth: "180px", gap: 3 },
    of.map(([name, value, about]) =>
      h(
        C.Box,
        { key: name, borderWidth: "1px", borderRadius: "md", p: 3, minW: 0, overflow: "hidden" },
        h(C.Text, { fontSize: "xs", color: "fg.muted" }, name),
        h(C.Box, { fontWeight: "medium", overflowWrap: "anywhere" }, value ?? "-"),
        about ? h(C.Box, { fontSize: "xs", color: "fg.muted", overflowWrap: "anywhere" }, about) : null,
      ),
    ),
  );
}

const PALETTE = { damaged: "red", failed: "red", parked: "orange", "audit failed": "orange", "limit exceeded": "orange", unpublished: "yellow", empty: "gray", published: "green" };
export const State = ({ state }) => h(C.Badge, { colorPalette: PALETTE[state] ?? "gray" }, state);

// A link inside of Airflow's UI, without loading it again.
export function Link({ to, children, ...rest }) {
  const Router = globalThis.ReactRouterDOM;
  return h(C.Link, { asChild: true, colorPalette: "blue", variant: "underline", ...rest }, h(Router.Link, { to }, children));
}

export const ALL = "/plugin/headrace_nav";

export const pageOf = (pipeline) => `/dags/headrace_${pipeline}_process/plugin/headrace_dag`;

export const runPage = ({ dag_id: dag, run_id: run }) => `/dags/${dag}/runs/${encodeURIComponent(run)}/plugin/headrace_dag_run`;

export const count = (value) => (value === null || value === undefined ? "-" : Number(value).toLocaleString("en"));
// "1 epoch", "2 epochs"; `many` where that is no "s" more.
export const several = (number, noun, many = `${noun}s`) => `${count(number)} ${number === 1 ? noun : many}`;
export const share = (part, whole) => (whole ? `${((100 * (part ?? 0)) / whole).toFixed(part && part / whole < 0.01 ? 2 : 1)}\u00a0%` : "-");

export function bytes(value) {
  if (value === null || value === undefined) return "-";
  let rest = Number(value);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (rest < 1024) return `${rest < 10 && unit !== "B" ? rest.toFixed(1) : Math.round(rest)} ${unit}`;
    rest /= 1024;
  }
  return `${rest.toFixed(1)} TiB`;
}

export const moment = (text) => (text && !text.includes("inf") ? text.replace("T", " ").replace(/(\.\d+)?(Z|\+00:00)$/, "Z") : text === "+inf" ? "the end" : text === "-inf" ? "none yet" : "-");

export function ago(text) {
  if (!text || text.includes("inf")) return "-";
  const seconds = (Date.now() - Date.parse(text)) / 1000;
  return seconds < 0 ? `in ${lasting(-seconds)}` : `${lasting(seconds)} ago`;
}

export function lasting(seconds) {
  const steps = [[90, 1, "s"], [5400, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "d"]];
  const [, size, unit] = steps.find(([limit]) => seconds < limit);
  return `${Math.round(seconds / size)}\u00a0${unit}`;
}

export const written = (value) => (value === null || value === undefined ? "-" : typeof value === "object" ? JSON.stringify(value) : String(value));
