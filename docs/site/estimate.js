"use strict";
// Looks up answers of heshare.estimate in the table of a card (estimates.py) and shows them. It computes none.
(() => {
  const QUANTITIES = ["time", "timeLow", "timeHigh", "power", "powerLow", "powerHigh", "energy", "clock"];
  const LEAST_POWER = 12;
  const UNITS = { s: [[0, "s"], [-3, "ms"], [-6, "µs"]], J: [[3, "kJ"], [0, "J"], [-3, "mJ"], [-6, "µJ"]], W: [[0, "W"]] };
  const form = document.getElementById("ask");
  const field = form.elements;
  const cards = new Map();
  const waiting = new Map();
  const show = (id, text) => { document.getElementById(id).textContent = text; };

  window.heshareCard = (card) => waiting.get(card.name)(card);

  function load(name) {
    if (!cards.has(name)) {
      const read = new Promise((resolve, reject) => {
        const script = document.createElement("script");
        waiting.set(name, resolve);
        script.src = `estimate/${encodeURIComponent(name)}.js`;
        script.onerror = () => reject(new Error(`The answers for ${name} are not beside this page.`));
        document.head.append(script);
      });
      cards.set(name, read.then(unpack));
      cards.get(name).catch(() => cards.delete(name));
    }
    return cards.get(name);
  }

  async function unpack(card) {
    if (!window.DecompressionStream) throw new Error("This browser is too old to unpack the answers.");
    const packed = Uint8Array.from(atob(card.packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    card.bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    card.packed = "";
    return card;
  }

  // The numbers of each quantity along the card's clocks, from their second differences.
  function curves(card, row) {
    const clocks = card.clocks_mhz.length;
    const half = card.bytes.length / 2;
    const rows = half / QUANTITIES.length / clocks;
    return Object.fromEntries(QUANTITIES.map((quantity, place) => {
      const numbers = [];
      for (let clock = 0, number = 0, step = 0; clock < clocks; clock += 1) {
        const at = (place * rows + row) * clocks + clock;
        const unsigned = card.bytes[at] + 256 * card.bytes[half + at];
        const difference = unsigned % 2 ? -(unsigned + 1) / 2 : unsigned / 2;
        step = clock ? step + difference : 0;
        number += clock ? step : difference;
        numbers.push(number);
      }
      return [quantity, numbers];
    }));
  }

  const digits = (number) => number % 900 + 100;
  const power = (number) => Math.floor(number / 900) - LEAST_POWER;
  const value = (number) => Number(`${digits(number)}e${power(number) - 2}`);

  // Three digits as Python rounded them, with the unit that the number of `like` has.
  function text(number, unit, like = number) {
    const [shift, name] = UNITS[unit].find(([least]) => power(like) >= least) || UNITS[unit].at(-1);
    const decimals = shift + 2 - power(number);
    return `${Number(`${digits(number)}e${-decimals}`).toFixed(Math.max(0, decimals))} ${name}`;
  }

  function interval(low, high, unit) {
    return `${text(low, unit, high).split(" ")[0]} to ${text(high, unit)}`;
  }

  function options(select, values, wanted) {
    const chosen = values.some((each) => each.value === wanted) ? wanted : values.at(-1).value;
    const groups = new Map();
    select.replaceChildren();
    for (const each of values) {
      let parent = select;
      if (each.group) {
        if (!groups.has(each.group)) groups.set(each.group, select.appendChild(document.createElement("optgroup")));
        parent = groups.get(each.group);
        parent.label = each.group;
      }
      parent.append(new Option(each.text, each.value, false, each.value === chosen));
    }
  }

  const plain = (values) => values.map((each) => ({ value: String(each), text: String(each) }));

  // The question in the address, such as #V100/resnet50:16@50/825; null if there is none.
  function addressed() {
    const found = /^#([^/]+)\/([^:/]+):(\d+)@(\d+)(?:\/(\d+))?$/.exec(decodeURIComponent(location.hash));
    return found && { card: found[1], workload: found[2], size: found[3], share: found[4], clock: found[5] || "" };
  }

  function asked() {
    return Object.fromEntries(["card", "workload", "size", "share", "clock"].map((name) => [name, field[name].value]));
  }

  let latest = 0;

  async function ask(wanted, isNew) {
    const turn = latest += 1;
    const trouble = document.getElementById("trouble");
    try {
      field.card.value = wanted.card;
      if (!field.card.value) field.card.selectedIndex = 0;
      const card = await load(field.card.value);
      if (turn !== latest) return;
      offer(card, wanted);
      const question = asked();
      answer(card, question);
      const address = notation(question);
      if (isNew || addressed()) history.replaceState(null, "", `#${address}`);
      show("trouble", `Not on this page: ${notation(wanted)}. Shown: ${address}.`);
      trouble.hidden = address === notation(wanted);
      document.getElementById("answer").hidden = false;
      document.body.dataset.answered = address;
    } catch (error) {
      if (turn !== latest) return;
      show("trouble", `${error.message} Ask heshare.estimate in Python.`);
      trouble.hidden = false;
      document.getElementById("answer").hidden = true;
    }
  }

  const resident = (question) => `${question.workload}:${question.size}@${question.share}`;
  const notation = (question) => `${question.card}/${resident(question)}${question.clock && `/${question.clock}`}`;

  function offer(card, wanted) {
    const named = card.workloads.map((each) => ({ value: each.name, text: each.title, group: each.group }));
    options(field.workload, named, named.some((each) => each.value === wanted.workload) ? wanted.workload : named[0].value);
    const workload = card.workloads.find((each) => each.name === field.workload.value);
    options(field.size, plain(workload.sizes), wanted.size);
    options(field.share, plain(card.shares), wanted.share);
    const clocks = [{ value: "", text: "left to the card" }, ...plain(card.clocks_mhz.slice().reverse())];
    options(field.clock, clocks, clocks.some((each) => each.value === wanted.clock) ? wanted.clock : "");
  }

  function answer(card, question) {
    const place = card.workloads.findIndex((each) => each.name === question.workload);
    const workload = card.workloads[place];
    const before = card.workloads.slice(0, place).reduce((sum, each) => sum + each.sizes.length, 0);
    const size = workload.sizes.indexOf(Number(question.size));
    const row = (before + size) * card.shares.length + card.shares.indexOf(Number(question.share));
    const found = curves(card, row);
    const top = card.clocks_mhz.at(-1);
    const request = Number(question.clock) || top;  // what the card does that is left alone
    const at = card.clocks_mhz.indexOf(request);
    const now = Object.fromEntries(QUANTITIES.map((quantity) => [quantity, found[quantity][at]]));
    show("short", `${text(now.time, "s")} and ${text(now.energy, "J")} per iteration, at ${text(now.power, "W")}`);
    show("time", text(now.time, "s"));
    show("time-interval", interval(now.timeLow, now.timeHigh, "s"));
    show("power", text(now.power, "W"));
    show("power-interval", interval(now.powerLow, now.powerHigh, "W"));
    show("energy", text(now.energy, "J"));
    show("reached", `${now.clock} MHz`);
    const limited = now.clock < request ? `The card's power limit, ${card.limit_w} W, allows no higher clock. ` : "";
    show("about", `${limited}Computed in ${workload.arithmetic.toUpperCase()}. ${workload.anchored[size]
      ? "Measurements of this workload on this card went into the fit of the model."
      : "No measurement of this workload with this inference batch size on this card went into the fit of the model."}`);
    draw(card.clocks_mhz, found, at);
    code(question, workload);
  }

  function code(question, workload) {
    const clock = question.clock && `, sm_mhz=${question.clock}`;
    const precision = workload.precision === "mixed" ? "" : `, precision="${workload.precision}"`;
    show("python", `import heshare\n\nanswer = heshare.estimate("${question.card}", "${resident(question)}"${clock}${precision})`);
    show("shell", `heshare estimate ${question.card} ${resident(question)}${question.clock && ` --sm-mhz ${question.clock}`}${
      precision && ` --precision ${workload.precision}`}`);
  }

  function draw(clocks, { energy: energies, time }, at) {
    const [left, right, top, bottom] = [60, 412, 12, 160];
    // Of clocks with the same energy the fastest; of those of the same time, which a limit holds, the lowest.
    const least = clocks.map((_, place) => place).reduce((best, place) => (
      (energies[place] - energies[best] || time[place] - time[best]) < 0 ? place : best));
    const [low, high] = [value(energies[least]), value(Math.max(...energies))];
    const x = (place) => left + (right - left) * (clocks[place] - clocks[0]) / (clocks.at(-1) - clocks[0] || 1);
    const y = (place) => bottom - (bottom - top) * (value(energies[place]) - low) / (high - low || 1);
    const svg = document.getElementById("curve");
    const add = (name, attributes, words = "") => {
      const shape = svg.appendChild(document.createElementNS(svg.namespaceURI, name));
      for (const [key, its] of Object.entries(attributes)) shape.setAttribute(key, its);
      shape.textContent = words;
    };
    svg.replaceChildren();
    add("path", { class: "axis", d: `M${left} ${top}V${bottom}H${right}`, fill: "none" });
    add("text", { x: left - 6, y: top + 8, "text-anchor": "end" }, text(Math.max(...energies), "J"));
    add("text", { x: left - 6, y: bottom, "text-anchor": "end" }, text(energies[least], "J"));
    add("text", { x: left, y: bottom + 18 }, `${clocks[0]} MHz`);
    add("text", { x: right, y: bottom + 18, "text-anchor": "end" }, `${clocks.at(-1)} MHz`);
    add("polyline", { class: "line", points: clocks.map((_, place) => `${x(place)},${y(place)}`).join(" ") });
    add("circle", { class: "least", cx: x(least), cy: y(least), r: 6 });
    add("circle", { class: "asked", cx: x(at), cy: y(at), r: 4 });
    show("least", `Energy per iteration over the requested clock. Dot: the question. Ring: least energy, ${
      text(energies[least], "J")} at ${clocks[least]} MHz.`);
  }

  form.hidden = false;
  form.addEventListener("change", () => ask(asked(), true));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", () => addressed() && ask(addressed(), false));
  ask(addressed() || { card: "A100", workload: "resnet50", size: "16", share: "50", clock: "" }, false);
})();
