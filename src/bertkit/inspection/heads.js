// A cell of a map of heads opens that head in the attention view below.
"use strict";
for (const table of document.querySelectorAll(".matrix")) {
  [...table.tBodies[0].rows].forEach((row, layer) => {
    [...row.cells].slice(1).forEach((cell, head) => {
      const open = () => {
        Object.assign(attention.state, { layer, head });
        attention.draw();
        document.getElementById("lines").scrollIntoView();
      };
      cell.setAttribute("role", "button");
      cell.setAttribute("tabindex", layer || head ? "-1" : "0");
      cell.setAttribute("aria-label", `Layer ${layer + 1}, head ${head + 1}: ${cell.textContent}`);
      cell.addEventListener("click", open);
      cell.addEventListener("keydown", (event) => {
        const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [];
        if (event.key === "Enter" || event.key === " ") open();
        const next = table.tBodies[0].rows[layer + down]?.cells[head + 1 + right];
        if (next && next.tagName === "TD") next.focus();
        if (next || event.key === "Enter" || event.key === " ") event.preventDefault();
      });
    });
  });
}
