// Point at a chart, or give it the focus and press the arrow keys: the row of its table that is nearest is read out
// above it. Everything shown is text that stands in the page already.
for (const figure of document.querySelectorAll("figure")) {
  const [readout, plot, table] = [".readout", ".plot", "table"].map((selector) => figure.querySelector(selector));
  if (!readout || !table.tBodies[0].rows.length) continue;
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const rows = [...table.tBodies[0].rows];
  const cursor = plot.querySelector(".cursor");
  let shown = -1;
  const show = (number) => {
    shown = Math.max(0, Math.min(rows.length - 1, number));
    cursor.setAttribute("x1", `${rows[shown].dataset.x}%`);
    cursor.setAttribute("x2", `${rows[shown].dataset.x}%`);
    plot.classList.add("reading");
    const cells = [...rows[shown].cells].map((cell) => cell.textContent);
    const parts = cells.map((text, column) => (text ? `${names[column]} ${text}` : ""));
    readout.textContent = parts.filter(Boolean).join("  ·  ");
  };
  const hide = () => {
    plot.classList.remove("reading");
    readout.textContent = "";
    shown = -1;
  };
  plot.setAttribute("tabindex", "0");
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const distances = rows.map((row) => Math.abs(row.dataset.x - (100 * (event.clientX - box.left)) / box.width));
    show(distances.indexOf(Math.min(...distances)));
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(shown < 0 ? (step > 0 ? 0 : rows.length - 1) : shown + step);
  });
}
