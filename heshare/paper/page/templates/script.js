// Filter, search, order and size of the claims, kept in the address; links into them. Without it everything is shown.
(() => {
  const form = document.querySelector("form.filters");
  const list = document.querySelector("div.claims");
  const rows = [...list.children];
  const sizes = [...document.querySelectorAll("input[name=size]")];
  const fields = ["verdict", "where", "sort", "search"];
  const plain = (text) => text.toLowerCase().replaceAll("μ", "mu").replace(/\s+/g, " ");
  const texts = new Map(rows.map((row) => [row, plain(row.textContent)]));
  const verdicts = [...form.verdict.options].map((option) => option.value);
  const orders = {
    "": (row) => Number(row.dataset.place),
    verdict: (row) => verdicts.indexOf(row.dataset.verdict),
    gap: (row) => -Number(row.dataset.gap),
  };

  function show() {
    const words = plain(form.search.value).split(" ").filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits =
        (!form.verdict.value || row.dataset.verdict === form.verdict.value) &&
        (!form.where.value || row.dataset.where === form.where.value) &&
        words.every((word) => texts.get(row).includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    const order = orders[form.sort.value];
    list.append(...rows.toSorted((one, other) => order(one) - order(other)));
    form.querySelector("output").textContent = `${shown} of ${rows.length}`;
    document.querySelector("p.none").hidden = shown > 0;
  }

  function keep() {
    const kept = new URLSearchParams();
    for (const name of fields) if (form[name].value) kept.set(name, form[name].value);
    const size = sizes.find((each) => each.checked);
    if (size && !size.defaultChecked) kept.set("size", size.value);
    const query = kept.size ? `?${kept}` : location.pathname;
    history.replaceState(null, "", query + location.hash);
  }

  function read() {
    const kept = new URLSearchParams(location.search);
    for (const name of fields) form[name].value = kept.get(name) ?? "";
    for (const name of ["verdict", "where", "sort"]) if (form[name].selectedIndex < 0) form[name].selectedIndex = 0;
    for (const each of sizes) if (each.value === kept.get("size")) each.checked = true;
    show();
  }

  // A link to a claim that the filter hides shows all claims; the claim opens.
  function open() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const row = target && target.closest("details.claim");
    if (!row) return;
    if (row.hidden) {
      for (const name of fields) form[name].value = "";
      show();
      keep();
    }
    row.open = true;
    row.scrollIntoView();
  }

  function changed() {
    show();
    keep();
  }

  form.hidden = false;
  form.addEventListener("input", changed);
  form.addEventListener("reset", () => setTimeout(changed));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.unfold.addEventListener("click", () => {
    const every = rows.some((row) => !row.hidden && !row.open);
    for (const row of rows) row.open = every && !row.hidden;
  });
  for (const each of sizes) each.addEventListener("change", keep);
  addEventListener("hashchange", open);
  read();
  open();
})();
