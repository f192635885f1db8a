// A map of points: a slider over layers, text on hover or focus, search. `window.scatter` gives tests what is shown.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("program-data").textContent);
  const root = document.getElementById("map"), { clouds, hints } = data;
  const SVG = "http://www.w3.org/2000/svg";
  const make = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const names = data.groups ? [...new Set(data.groups)] : [];
  // shapes and colors repeat with different periods, so that 30 groups differ
  const SHAPES = ["M-1 0A1 1 0 1 0 1 0A1 1 0 1 0 -1 0Z", "M-1 -1H1V1H-1Z", "M0 -1.2L1.1 0.9H-1.1Z", "M0 -1.4L1.2 0L0 1.4L-1.2 0Z", "M-0.4 -1.2H0.4V-0.4H1.2V0.4H0.4V1.2H-0.4V0.4H-1.2V-0.4H-0.4Z"];
  const mark = (group) => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", SHAPES[group % SHAPES.length]);
    path.setAttribute("class", `point g${group % 6}`);
    return path;
  };
  const groupOf = (index) => (data.groups ? names.indexOf(data.groups[index]) : 0);
  let shown = clouds.length - 1, chosen = -1;

  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "cloud");
  svg.setAttribute("viewBox", "-4 -4 108 108");
  svg.setAttribute("role", "group");
  svg.setAttribute("aria-label", "Points; the arrow keys go from one to the next");
  const says = make("p", { class: "says", "aria-live": "polite" });
  const points = hints.map((hint, index) => {
    const path = mark(groupOf(index));
    path.setAttribute("tabindex", index ? "-1" : "0");
    path.setAttribute("role", "img");
    path.setAttribute("aria-label", hint);
    path.addEventListener("pointerenter", () => choose(index));
    path.addEventListener("focus", () => choose(index));
    svg.append(path);
    return path;
  });
  const choose = (index) => {
    if (chosen >= 0) points[chosen].classList.remove("chosen");
    chosen = index;
    points[index].classList.add("chosen");
    const group = data.groups ? `${data.groups[index]}: ` : "";
    says.replaceChildren(make("bdi", {}, group + hints[index]));
  };
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(points.length - 1, Math.max(chosen, 0) + step));
    points.forEach((path, index) => path.setAttribute("tabindex", index === next ? "0" : "-1"));
    points[next].focus();
  });
  const title = make("span");
  const draw = () => {
    const { name, explained, points: at } = clouds[shown];
    title.textContent = name + (explained === null ? "" : `, ${(100 * explained).toFixed(0)} % of the variance`);
    at.forEach(([x, y], index) => (points[index].style.transform = `translate(${100 * x}px, ${100 * (1 - y)}px)`));
  };
  const controls = make("div", { class: "controls" });
  if (clouds.length > 1) {
    const slider = make("input", { type: "range", min: 0, max: clouds.length - 1, step: 1 });
    slider.value = shown;
    slider.addEventListener("input", () => { shown = +slider.value; draw(); });
    controls.append(make("label", {}, title, slider));
  } else controls.append(title);
  const search = make("input", { type: "search" });
  search.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    hints.forEach((hint, index) => points[index].classList.toggle("dim", !hint.toLowerCase().includes(wanted)));
  });
  controls.append(make("label", {}, "Search", search));
  const legend = make("ul", {}, ...names.map((name, group) => {
    const sample = document.createElementNS(SVG, "svg");
    sample.setAttribute("viewBox", "-1.5 -1.5 3 3");
    sample.setAttribute("aria-hidden", "true");
    sample.append(mark(group));
    return make("li", {}, sample, " ", make("bdi", {}, name));
  }));
  root.append(controls, legend, svg, says);
  draw();
  window.scatter = { positions: () => clouds[shown].points, shown: () => clouds[shown].name, chosen: () => chosen };
  document.documentElement.dataset.ready = "true";
})();
