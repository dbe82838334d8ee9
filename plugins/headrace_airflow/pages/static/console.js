// The entry of Headrace's pages. Airflow's UI imports it from a place of its own (?nav, ?dag, ?dag_run, ?dashboard) and
// takes the component from the global object; React and Chakra UI are those of the host.
import { Block, Pipelines } from "./pipelines.js";
import { Pipeline } from "./pipeline.js";
import { Run } from "./run.js";
import { h } from "./ui.js";

const place = new URL(import.meta.url).search.slice(1);

function Headrace({ dagId, runId }) {
  if (dagId && runId) return h(Run, { dagId, runId });
  return dagId ? h(Pipeline, { dagId }) : h(Pipelines);
}

globalThis.AirflowPlugin = place === "dashboard" ? Block : Headrace;
