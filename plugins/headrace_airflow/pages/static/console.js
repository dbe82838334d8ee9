// The entry of Headrace's pages. Airflow's UI imports it from a place of its own (?nav, ?dag, ?dag_run, ?task_instance, ?dashboard) and
// takes the component from the global object; React and Chakra UI are those of the host.
import { LineageGraph } from "./lineage-graph.js";
import { Block, Pipelines } from "./pipelines.js";
import { Pipeline } from "./pipeline.js";
import { Run } from "./run.js";
import { h } from "./ui.js";

const place = new URL(import.meta.url).search.slice(1);

function Page({ dagId, runId, taskId }) {
  if (place === "dashboard") return h(Block);
  if (dagId && runId) return h(Run, { dagId, runId, taskId });
  return dagId ? h(Pipeline, { dagId }) : h(All);
}

// All pipelines: as a list, or as the graph of which reads which.
function All() {
  const [params] = globalThis.ReactRouterDOM.useSearchParams();
  return params.get("view") === "lineage" ? h(LineageGraph) : h(Pipelines);
}

globalThis.AirflowPlugin = function Headrace(props) {
  return h("div", { "data-headrace": place }, h(Page, props));
};
