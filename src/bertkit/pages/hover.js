// Point at a line chart, or give it the focus and press the arrow keys: the row of its table that is nearest is read out
// above it. Everything shown is text that stands in the page already.
for (const figure of document.querySelectorAll("figure")) {
  const readout = figure.querySelector(".readout");
  const table = figure.querySelector("table");
  if (!readout || !table) continue;
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const rows = [...table.tBodies[0].rows];
  const places = rows.map((row) => Number(row.dataset.x));
  if (!rows.length) continue;
  for (const svg of figure.querySelectorAll("svg[data-kind]")) {
    const { kind } = svg.dataset;
    const [low, high, left, right] = ["low", "high", "left", "right"].map((name) => Number(svg.dataset[name]));
    const scaled = (value) => (kind === "log" ? Math.log(value) : value);
    const pixel = (value) => left + ((scaled(value) - scaled(low)) / (scaled(high) - scaled(low))) * (right - left);
    const cursor = svg.querySelector(".cursor");
    let shown = -1;
    const show = (place) => {
      shown = Math.max(0, Math.min(rows.length - 1, place));
      const x = pixel(places[shown]);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      svg.classList.add("reading");
      const cells = [...rows[shown].cells].map((cell) => cell.textContent);
      const parts = cells.map((text, column) => (text ? `${names[column]} ${text}` : ""));
      readout.textContent = parts.filter(Boolean).join("  ·  ");
    };
    const hide = () => {
      svg.classList.remove("reading");
      readout.textContent = "";
      shown = -1;
    };
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      let nearest = 0;
      places.forEach((value, place) => {
        if (Math.abs(pixel(value) - x) < Math.abs(pixel(places[nearest]) - x)) nearest = place;
      });
      show(nearest);
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      show(shown < 0 ? (step > 0 ? 0 : rows.length - 1) : shown + step);
    });
  }
}
