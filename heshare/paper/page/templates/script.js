// Filter and search of the claims, kept in the address; links to rows that are hidden. Without it everything is shown.
(() => {
  const form = document.querySelector("form.filters");
  const rows = [...document.querySelectorAll("table.claims tbody tr")];
  const plain = (text) => text.toLowerCase().replaceAll("μ", "mu").replace(/\s+/g, " ");
  const texts = new Map(rows.map((row) => [row, plain(row.textContent)]));

  function show() {
    const words = plain(form.search.value).split(" ").filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits = !form.verdict.value || row.dataset.verdict === form.verdict.value;
      row.hidden = !(fits && words.every((word) => texts.get(row).includes(word)));
      shown += !row.hidden;
    }
    form.querySelector("output").textContent = `${shown} of ${rows.length}`;
    document.querySelector("p.none").hidden = shown > 0;
  }

  function changed() {
    show();
    const kept = new URLSearchParams();
    for (const name of ["verdict", "search"]) if (form[name].value) kept.set(name, form[name].value);
    history.replaceState(null, "", (kept.size ? `?${kept}` : location.pathname) + location.hash);
  }

  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target?.hidden) return;
    form.verdict.value = form.search.value = "";
    changed();
    target.scrollIntoView();
  }

  const kept = new URLSearchParams(location.search);
  form.verdict.value = kept.get("verdict") ?? "";
  if (form.verdict.selectedIndex < 0) form.verdict.selectedIndex = 0;
  form.search.value = kept.get("search") ?? "";
  form.hidden = false;
  form.addEventListener("input", changed);
  form.addEventListener("reset", () => setTimeout(changed));
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", reveal);
  show();
  reveal();
})();
