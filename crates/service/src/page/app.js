// The page of the daemon: asks the same API as everybody else.
import { drawPlots } from "/plots.js";
import { count, megabytes, span } from "/numbers.js";

const at = (id) => document.getElementById(id);
const jobs = new Map();
let chosen = null;
let next = null;
let sides = {};

/** Asks the daemon; a problem becomes an error with its sentence. */
async function ask(path, options = {}) {
  const token = sessionStorage.getItem("token");
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok || answer.status === 304) return answer;
  const problem = await answer.json().catch(() => ({ detail: `the daemon answered ${answer.status}` }));
  if (answer.status === 401) wantToken(token ? problem.detail : "");
  throw Object.assign(new Error(problem.detail), { status: answer.status });
}

function wantToken(told) {
  at("access").hidden = false;
  at("access-told").textContent = told;
}

at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value.trim());
  at("token").value = "";
  at("access").hidden = true;
  begin();
});

/** The list anew, or the page of older jobs behind it. */
async function list(older = false) {
  const state = at("filter").value;
  const query = new URLSearchParams({ limit: "50" });
  if (state) query.set("state", state);
  if (older && next) query.set("before", next);
  const told = await (await ask(`/v1/jobs?${query}`)).json();
  if (!older) jobs.clear();
  for (const job of told.jobs) jobs.set(job.id, job);
  next = told.next;
  at("more").hidden = next === null;
  const counts = Object.entries(told.counts).filter(([, number]) => number > 0);
  at("counts").textContent = counts.map(([name, number]) => `${number} ${name}`).join(", ");
  draw();
}

const kinds = { succeeded: "good", failed: "bad" };

function rate(job) {
  const progress = job.progress;
  if (job.state !== "running" || !progress) return "";
  if (!progress.voxels_per_second) return progress.doing;
  const speed = megabytes(progress.voxels_per_second * progress.bytes_per_voxel);
  return `${share(progress)} · ${speed}/s · ${span(progress.eta_seconds)} left`;
}

function share(progress) {
  return progress.blocks_total ? `${Math.floor((100 * progress.blocks) / progress.blocks_total)} %` : "0 %";
}

function part(name, text) {
  const element = document.createElement("span");
  element.className = name;
  element.textContent = text;
  return element;
}

/** The list of jobs. Rows stay the same elements, so that the keyboard's focus stays too. */
function draw() {
  const wanted = at("filter").value;
  const shown = [...jobs.values()].filter((job) => !wanted || job.state === wanted).sort((a, b) => b.id - a.id);
  const rows = new Map([...at("list").children].map((row) => [Number(row.dataset.id), row]));
  const ordered = shown.map((job) => {
    const row = rows.get(job.id) ?? newRow(job.id);
    const button = row.firstChild;
    button.setAttribute("aria-current", String(job.id === chosen));
    const names = `${job.input} → ${job.outputs.join(", ")}`;
    button.replaceChildren(
      part("id", `${job.id}`), part(kinds[job.state] ?? "state", job.state), part("names", names), part("rate", rate(job)));
    return row;
  });
  ordered.forEach((row, place) => {
    if (at("list").children[place] !== row) at("list").insertBefore(row, at("list").children[place] ?? null);
  });
  while (at("list").children.length > ordered.length) at("list").lastChild.remove();
  at("none").hidden = shown.length > 0;
}

function newRow(id) {
  const row = document.createElement("li");
  row.dataset.id = id;
  const button = document.createElement("button");
  button.addEventListener("click", () => choose(id));
  row.append(button);
  return row;
}

/** Shows one job. */
async function choose(id) {
  chosen = id;
  sides = {};
  at("told").textContent = "";
  at("job").hidden = false;
  for (const side of ["input", "output"]) {
    at(side).hidden = true;
    at(`${side}-told`).textContent = "";
  }
  at("neuroglancer").hidden = true;
  at("plots").replaceChildren();
  at("z").disabled = true;
  at("log-box").open = at("config-box").open = false;
  draw();
  drawJob(jobs.get(id));
  at("job").scrollIntoView({ block: "start" });
  at("job").focus({ preventScroll: true });
  await Promise.all([drawStages(), look()]);
}

function fact(list, name, value) {
  const [term, description] = [document.createElement("dt"), document.createElement("dd")];
  term.textContent = name;
  description.textContent = value;
  list.push(term, description);
}

function drawJob(job) {
  if (!job) return;
  const progress = job.progress;
  at("job-title").textContent = `Job ${job.id}: ${job.wish === "run" ? job.state : `${job.state}, about to ${job.wish}`}`;
  at("bar").value = job.state === "succeeded" ? 1 : progress?.blocks_total ? progress.blocks / progress.blocks_total : 0;
  const facts = [];
  fact(facts, "Input", job.input);
  fact(facts, "Output", job.outputs.join(", "));
  fact(facts, "Model", job.model);
  if (progress) {
    fact(facts, "Blocks", `${count(progress.blocks)} of ${count(progress.blocks_total)}`);
    fact(facts, "Doing", progress.doing);
  }
  if (job.state === "running" && progress?.voxels_per_second) {
    const speed = megabytes(progress.voxels_per_second * progress.bytes_per_voxel);
    fact(facts, "Rate", `${count(Math.round(progress.voxels_per_second))} voxels/s, ${speed}/s`);
    fact(facts, "Time left", span(progress.eta_seconds));
  }
  fact(facts, "Priority", job.priority);
  fact(facts, "Submitted", new Date(job.submitted_ms).toLocaleString());
  if (job.ended_ms && job.started_ms) fact(facts, "Took", span((job.ended_ms - job.started_ms) / 1000));
  at("facts").replaceChildren(...facts);
  at("fault").textContent = job.fault?.message ?? "";
  const ended = ["succeeded", "failed", "cancelled"].includes(job.state);
  at("pause").disabled = ended || job.state === "paused" || job.wish !== "run";
  at("resume").disabled = job.state !== "paused";
  at("cancel").disabled = ended || job.wish === "cancel";
}

async function drawStages() {
  const id = chosen;
  const told = await (await ask(`/v1/jobs/${id}/stages`)).json();
  if (id !== chosen) return;
  at("limit").textContent = told.limit?.sentence ?? "Nothing is known yet: it shows while a job runs.";
  drawPlots(at("plots"), told);
}

/** Looks what there is to see, and shows it. */
async function look() {
  const id = chosen;
  const told = await (await ask(`/v1/jobs/${id}/slices`)).json();
  if (id !== chosen) return;
  sides = told;
  const depth = Math.max(told.input?.shape[0] ?? 0, told.output?.shape[0] ?? 0);
  const z = at("z");
  z.max = Math.max(depth - 1, 0);
  if (z.disabled) z.value = Math.floor(depth / 2);
  z.disabled = depth === 0;
  at("z-value").textContent = z.value;
  const link = at("neuroglancer");
  link.hidden = !told.neuroglancer;
  if (told.neuroglancer) link.href = told.neuroglancer;
  await slices();
}

let looking = null;

/** Shows the slices at the slider; the last wish wins. */
async function slices() {
  looking?.abort();
  looking = new AbortController();
  const { signal } = looking;
  shown = null;
  await Promise.all(["input", "output"].map((side) => slice(side, signal)));
}

/** What tells the output slice that is shown from the next. */
let shown = null;

/** Shows one slice, unless it is the one that is shown already. */
async function slice(side, signal, known = null) {
  const [id, z] = [chosen, at("z").value];
  const [image, note] = [at(side), at(`${side}-told`)];
  if (!sides[side]) {
    image.hidden = true;
    note.textContent = sides[`${side}_told`] ?? "Nothing to see yet.";
    return;
  }
  try {
    const headers = known ? { "if-none-match": known } : {};
    const answer = await ask(`/v1/jobs/${id}/slices/${side}?z=${z}`, { signal, headers });
    if (answer.status === 304) return;
    const before = image.src;
    const picture = await answer.blob();
    if (signal.aborted) return;
    image.src = URL.createObjectURL(picture);
    if (before) URL.revokeObjectURL(before);
    if (side === "output") shown = answer.headers.get("etag");
    image.alt = `${side === "input" ? "Input" : "Output"} of job ${id} at z ${z}`;
    image.hidden = false;
    note.textContent = `${sides[side].shape.join(" × ")} voxels, ${sides[side].element}`;
  } catch (error) {
    if (error.name !== "AbortError") {
      image.hidden = true;
      note.textContent = error.message;
    }
  }
}

let soon = null;

/** Shows the output anew a moment later: blocks that are stored until then count once. */
function refreshSoon() {
  soon ??= setTimeout(() => {
    soon = null;
    refresh().catch(() => {});
  }, 1000);
}

/** The output slice, if a block was stored that touches it; the daemon knows. */
async function refresh() {
  if (jobs.get(chosen)?.state !== "running" || !looking) return;
  if (!sides.output) await look();
  else if (shown) await slice("output", looking.signal, shown);
}

async function change(what) {
  try {
    seen(await (await ask(`/v1/jobs/${chosen}/${what}`, { method: "POST" })).json());
    at("told").textContent = "";
  } catch (error) {
    at("told").textContent = error.message;
  }
}

async function recount() {
  const told = await (await ask("/v1/jobs?limit=1")).json();
  const counts = Object.entries(told.counts).filter(([, number]) => number > 0);
  at("counts").textContent = counts.map(([name, number]) => `${number} ${name}`).join(", ");
}

function seen(job) {
  const before = jobs.get(job.id);
  jobs.set(job.id, job);
  draw();
  if (before?.state !== job.state) recount().catch(() => {});
  if (job.id === chosen) {
    drawJob(job);
    if (job.state === "running" || before?.state !== job.state) drawStages().catch(() => {});
    if (before && before.state !== job.state) look().catch(() => {});
    else if (before?.progress?.blocks !== job.progress?.blocks) refreshSoon();
  }
}

/** Follows the events. They come by `fetch`, since an EventSource cannot send a token. */
async function follow() {
  const answer = await ask("/v1/events");
  at("state").textContent = "connected";
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the connection ended");
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "))?.slice(6);
      if (event.includes("event: missed")) await list();
      else if (data) seen(JSON.parse(data));
    }
  }
}

let begun = 0;

/** Connects, and connects again when the connection is lost. */
async function begin() {
  const mine = ++begun;
  while (mine === begun) {
    try {
      await list();
      await follow();
    } catch (error) {
      if (error.status === 401) {
        at("state").textContent = "waiting for a token";
        return;
      }
      at("state").textContent = `not connected: ${error.message}`;
    }
    await new Promise((done) => setTimeout(done, 2000));
  }
}

async function open(box, shown, path) {
  if (!at(box).open) return;
  try {
    const text = await (await ask(`/v1/jobs/${chosen}/${path}`)).text();
    at(shown).textContent = path === "config" ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch (error) {
    at(shown).textContent = error.message;
  }
}

at("filter").addEventListener("change", () => list().catch(() => {}));
at("more").addEventListener("click", () => list(true).catch(() => {}));
for (const what of ["pause", "resume", "cancel"]) at(what).addEventListener("click", () => change(what));
at("z").addEventListener("input", () => {
  at("z-value").textContent = at("z").value;
  slices();
});
at("look").addEventListener("click", () => look().catch(() => {}));
at("log-box").addEventListener("toggle", () => open("log-box", "log", "logs?limit=10000"));
at("config-box").addEventListener("toggle", () => open("config-box", "config", "config"));
begin();
