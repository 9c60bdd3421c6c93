// Filter and search of the claims; links into them. Without it everything is shown.
(() => {
  const form = document.querySelector("form.filters");
  const rows = [...document.querySelectorAll("table.claims tbody tr")];
  const count = form.querySelector("output");
  const none = document.querySelector("p.none");
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase().replace(/\s+/g, " ")]));

  function show() {
    const words = form.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits =
        (!form.verdict.value || row.dataset.verdict === form.verdict.value) &&
        (!form.where.value || row.dataset.where === form.where.value) &&
        words.every((word) => texts.get(row).includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length}`;
    none.hidden = shown > 0;
  }

  // A link to a claim that the filter hides shows all claims; its details open.
  function open() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const row = target && target.closest("table.claims tr");
    if (!row) return;
    if (row.hidden) {
      form.reset();
      show();
    }
    const details = row.querySelector("details");
    if (details) details.open = true;
    row.scrollIntoView();
  }

  form.hidden = false;
  form.addEventListener("input", show);
  form.addEventListener("reset", () => setTimeout(show));
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const link of document.querySelectorAll("a[data-verdict]"))
    link.addEventListener("click", () => {
      form.reset();
      form.verdict.value = link.dataset.verdict;
      show();
    });
  addEventListener("hashchange", open);
  show();
  open();
})();
