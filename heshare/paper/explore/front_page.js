// Fills the page of a front: charts, the text about the chosen plan, and what differs from Trade-off.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const order = Object.keys(data.plans).map(Number).sort((a, b) => a - b);
const at = (id) => document.getElementById(id);
const number = (value, digits = 0) =>
  value.toLocaleString("en-GB", {minimumFractionDigits: digits, maximumFractionDigits: digits});
const percent = (value) => (value < 0 ? "\u2212" : "+") + number(Math.abs(value), 1) + " %";
const decided = ["gpu", "batch", "mps_pct", "sm_mhz"];
const words = {gpu: "GPU", batch: "batch", mps_pct: "MPS percentage", sm_mhz: "clock"};

// The rows of a plan, by task: its fields by name, with GPUs by label and batches from 1.
function tasksOf(plan) {
  return Object.entries(data.plans[plan].tasks).map(([task, values]) => {
    const row = Object.fromEntries(data.fields.map((name, index) => [name, values[index]]));
    const [workload, kind] = data.tasks[task];
    const high = data.rows[0] / row.lanes, top = row.gpu + 0.04 + row.lane * (high - 0.04 / row.lanes);
    return {...row, task: Number(task), workload, kind, row: row.gpu, gpu: data.gpus[row.gpu], batch: row.batch + 1,
            differs: row.differs === 1, label: row.mps_pct === 100 ? task : `${task}: ${row.mps_pct} %`, top, bottom: top + high - 0.04 / row.lanes};
  });
}

function clocksOf(plan) {
  return data.plans[plan].clocks.map(([gpu, begin_s, end_s, sm_mhz]) => {
    const bottom = gpu + 0.98, high = 0.98 - data.rows[1];
    return {begin_s, end_s, sm_mhz, label: String(sm_mhz), bottom, top: bottom - high * sm_mhz / data.top_mhz[gpu]};
  });
}

function sentence(plan) {
  const own = data.plans[plan], reference = data.plans[data.choices["Trade-off"]];
  const against = (field) => own === reference ? "" : ` (${percent(100 * (own[field] / reference[field] - 1))})`;
  const name = own.choice ? ", " + own.choice.replaceAll("/", " and ") : "";
  const gap = own.gap_pct === null ? "" : `; at most ${number(own.gap_pct, 1)} % above the proven bound`;
  return `front[${plan}]${name}: ${number(own.energy_j / 1e6, 3)} MJ${against("energy_j")}, ` +
    `average JCT ${number(own.jct_s)} s${against("jct_s")}${own === reference ? "" : " against Trade-off"}${gap}`;
}

// Counts of what differs, and a row for each task that does.
function showChanges(rows) {
  const reference = new Map(tasksOf(data.choices["Trade-off"]).map((row) => [row.task, row]));
  const differing = rows.filter((row) => row.differs);
  const counts = decided.map((field) =>
    [words[field], differing.filter((row) => row[field] !== reference.get(row.task)[field]).length]);
  at("differs").textContent = differing.length === 0 ? "No task: this is Trade-off." :
    `${differing.length} of ${rows.length} tasks: ` +
    counts.filter(([, count]) => count).map(([word, count]) => `another ${word} for ${count}`).join(", ") + ".";
  at("changes").tBodies[0].replaceChildren(...differing.sort((a, b) => a.task - b.task).map((row) => {
    const old = reference.get(row.task), line = document.createElement("tr");
    const before = {gpu: old.gpu, batch: `batch ${old.batch}`, mps_pct: `${old.mps_pct} %`, sm_mhz: `${old.sm_mhz} MHz`};
    const changed = decided.filter((field) => row[field] !== old[field]);
    const cells = [row.task, row.workload, row.kind, ...decided.map((field) => row[field]),
      changed.map((field) => before[field]).join(", ")];
    cells.forEach((text, index) => {
      const cell = line.insertCell();
      cell.textContent = text;
      cell.className = changed.includes(decided[index - 3]) ? "changed" : "";
    });
    return line;
  }));
}

async function begin() {
  const options = {actions: false, renderer: "svg"};
  const views = await Promise.all(["front", "timeline"].map((name) => vegaEmbed("#" + name, data[name], options)));
  const [front, timeline] = views.map((each) => each.view);
  let chosen = null, kept = false, pointed = null;

  function choose(plan) {
    if (plan === chosen) return;
    chosen = plan;
    const rows = tasksOf(plan);
    front.signal("chosen", plan).runAsync();
    timeline.data("tasks", rows).data("clocks", clocksOf(plan)).runAsync();
    at("about").textContent = sentence(plan);
    at("which").textContent = `of front[${plan}]`;
    at("plan").value = order.indexOf(plan);
    at("plan").setAttribute("aria-valuetext", sentence(plan));
    for (const button of document.querySelectorAll("[data-choice]"))
      button.setAttribute("aria-pressed", data.choices[button.dataset.choice] === plan);
    showChanges(rows);
  }

  function keep(yes) {
    kept = yes;
    at("kept").textContent = yes ? "kept: click the plan to let go" : "";
  }

  front.addDataListener("pointed_store", (_, found) => {
    if (!found.length) return;
    pointed = found[0].values[0];
    if (!kept) choose(pointed);
  });
  front.addEventListener("click", () => {
    if (pointed === null) return;
    keep(!(kept && pointed === chosen));
    choose(pointed);
  });
  at("plan").addEventListener("input", () => { keep(true); choose(order[Number(at("plan").value)]); });
  for (const button of document.querySelectorAll("[data-choice]"))
    button.addEventListener("click", () => { keep(true); choose(data.choices[button.dataset.choice]); });
  choose(data.choices["Trade-off"]);
  document.body.dataset.ready = "yes";
  // In a notebook the page is in a frame, which becomes as high as the page.
  const frame = window.frameElement;
  const fit = () => { frame.style.height = document.documentElement.scrollHeight + 40 + "px"; };
  if (frame) { fit(); setTimeout(fit, 500); }
}

begin();
