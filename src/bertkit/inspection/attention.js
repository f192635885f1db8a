// The attention view. Data: see AttentionView.program. `window.attention` gives tests the numbers that are shown.
"use strict";
(async () => {
  const data = JSON.parse(document.getElementById("program-data").textContent);
  const { layers, num_heads: H, head_dim: K } = data;
  const T = data.tokens.length;
  const unpack = async (written, Type) => {
    const bytes = Uint8Array.from(atob(written), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Type(await new Response(stream).arrayBuffer());
  };
  const roots = await unpack(data.probs, Uint8Array); // 255 times the root of each probability
  const norms = await unpack(data.norms, Float32Array);
  const query = data.query && (await unpack(data.query, Int16Array));
  const key = data.key && (await unpack(data.key, Int16Array));
  const probability = Float32Array.from({ length: 256 }, (_, byte) => (byte / 255) ** 2);

  const state = { layer: 0, head: 0, weighted: false, side: "all all", hidden: false, words: false, least: 0.05, token: -1 };
  let groups = [], labels = [], isRow = [], isColumn = [], MEAN = H;

  // ---- numbers
  const regroup = () => {
    groups = state.words ? data.groups : data.tokens.map((_, index) => [index]);
    if (state.hidden) groups = groups.filter((group) => !data.special[group[0]]);
    labels = groups.map((group) =>
      group.map((index, number) => (number ? data.tokens[index].replace(/^##/, "") : data.tokens[index])).join(""));
    const [from, to] = state.side.split(" ");
    const inSide = (side) => groups.map((group) => side === "all" || data.second[group[0]] === (side === "B"));
    [isRow, isColumn] = [inSide(from), inSide(to)];
    if (state.token >= groups.length || (state.token >= 0 && !isRow[state.token])) state.token = -1;
  };
  // (n, n) of one head: the same steps as AttentionView.matrix
  const ofHead = (layer, head) => {
    const n = groups.length, start = (layer * H + head) * T * T, offset = (layer * H + head) * T;
    const matrix = new Float32Array(n * n);
    const kept = groups.flat();
    groups.forEach((rows, i) => {
      if (!isRow[i]) return;
      for (const row of rows) {
        const at = start + row * T;
        let total = 1;
        if (state.hidden && !state.weighted) {
          total = 0;
          for (const column of kept) total += probability[roots[at + column]];
          total = Math.max(total, 1e-12);
        }
        for (let j = 0; j < n; j++) {
          if (!isColumn[j]) continue;
          for (const column of groups[j]) {
            const weight = probability[roots[at + column]] / total / rows.length;
            matrix[i * n + j] += state.weighted ? weight * norms[offset + column] : weight;
          }
        }
      }
    });
    return matrix;
  };
  const matrixOf = (layer, head) => {
    if (head !== MEAN) return ofHead(layer, head);
    const sum = new Float32Array(groups.length ** 2);
    for (let each = 0; each < H; each++) ofHead(layer, each).forEach((weight, index) => (sum[index] += weight / H));
    return sum;
  };
  const most = (matrix) => matrix.reduce((a, b) => Math.max(a, b), 0);
  const written = (value) => (Math.abs(value) < 0.0005 && value ? "< 0.001" : value.toFixed(3));

  // ---- elements
  const make = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const token = (label) => make("bdi", {}, label);
  const controls = document.getElementById("controls");
  const select = (name, options, change) => {
    const list = make("select", {}, ...options.map(([value, title]) => make("option", { value }, title)));
    list.addEventListener("change", () => { change(list.value); draw(); });
    controls.append(make("label", {}, name, list));
    return list;
  };
  const check = (name, change) => {
    const box = make("input", { type: "checkbox" });
    box.addEventListener("change", () => { change(box.checked); draw(); });
    controls.append(make("label", { class: "check" }, box, name));
  };
  const layerList = select("Layer", layers.map((number, index) => [index, number]), (value) => (state.layer = +value));
  const headNames = [...Array(H).keys()].map((head) => [head, head + 1]);
  const headList = select("Head", [...headNames, [MEAN, "mean of all"]], (value) => (state.head = +value));
  select("Show", [["", "attention weight"], ["norm", "weight × length of value"]], (value) => (state.weighted = value !== ""));
  if (data.is_pair) {
    const sides = [["all all", "both texts"], ["A A", "A to A"], ["A B", "A to B"], ["B A", "B to A"], ["B B", "B to B"]];
    select("Texts", sides, (value) => (state.side = value));
  }
  check("Hide [CLS] and [SEP]", (value) => { state.hidden = value; state.token = -1; });
  check("Merge pieces into words", (value) => { state.words = value; state.token = -1; });
  const least = make("input", { type: "range", min: 0, max: 0.5, step: 0.01, value: state.least });
  const leastName = make("span", {}, "Lines from 0.05");
  least.addEventListener("input", () => {
    state.least = +least.value;
    leastName.textContent = `Lines from ${state.least.toFixed(2)}`;
    drawHead();
  });
  controls.append(make("label", {}, leastName, least));

  // ---- color
  let ramp = [];
  const paints = () => {
    const style = getComputedStyle(document.documentElement);
    const rgb = (name) => style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
    const mix = (a, b) => Array.from({ length: 256 }, (_, step) => a.map((part, c) => part + ((b[c] - part) * step) / 255));
    const [sheet, blue, orange] = [rgb("--sheet"), rgb("--c1"), rgb("--c2")];
    ramp = [mix(sheet, blue), mix(sheet, orange)];
  };
  const paint = (canvas, values, width, height, full) => {
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    for (let index = 0; index < values.length; index++) {
      const value = values[index];
      const shade = Math.min(255, Math.round(255 * Math.sqrt(Math.abs(value) / (full || 1))));
      const color = ramp[value < 0 ? 1 : 0][shade];
      image.data.set([color[0], color[1], color[2], 255], 4 * index);
    }
    context.putImageData(image, 0, 0);
  };

  // ---- all heads
  const grid = make("div", { class: "grid", role: "group", "aria-label": "Layers and heads" });
  const names = make("div", { class: "row", "aria-hidden": "true" }, make("span"));
  for (const [, head] of headNames) names.append(make("span", { class: "head-name" }, String(head)));
  grid.append(names);
  const thumbnails = layers.map((number, layer) => {
    const row = make("div", { class: "row" }, make("span", { "aria-hidden": "true" }, String(number)));
    grid.append(row);
    return headNames.map(([head]) => {
      const button = make("button", { type: "button", "aria-label": `Layer ${number}, head ${head + 1}`, tabindex: -1 }, make("canvas", { "aria-hidden": "true" }));
      button.addEventListener("click", () => choose(layer, head));
      row.append(button);
      return button;
    });
  });
  const choose = (layer, head) => {
    Object.assign(state, { layer, head });
    drawHead();
  };
  grid.addEventListener("keydown", (event) => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [];
    if (down === undefined) return;
    event.preventDefault();
    const layer = Math.min(layers.length - 1, Math.max(0, state.layer + down));
    const head = Math.min(H - 1, Math.max(0, (state.head === MEAN ? 0 : state.head) + right));
    choose(layer, head);
    thumbnails[layer][head].focus();
  });
  document.getElementById("heads").append(make("div", { class: "scrolling" }, grid));
  let waiting = new Set();
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting && waiting.delete(target)) drawThumbnail(target);
  });
  const drawThumbnail = (button) => {
    const layer = thumbnails.findIndex((row) => row.includes(button)), head = thumbnails[layer].indexOf(button);
    const matrix = ofHead(layer, head);
    paint(button.firstChild, matrix, groups.length, groups.length, state.weighted ? most(matrix) : 1);
  };

  // ---- one head
  const from = make("ol", { class: "from", "aria-label": "Attending tokens" });
  const to = make("ol", { class: "to", "aria-label": "Attended tokens" });
  const lines = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  lines.setAttribute("preserveAspectRatio", "none");
  lines.setAttribute("aria-hidden", "true");
  const map = make("canvas", { class: "map", role: "img" });
  const readout = make("p", { class: "state", "aria-live": "polite" });
  const weights = make("div", { class: "scrolling", tabindex: 0, role: "region", "aria-label": "Weights" });
  document.getElementById("lines").append(
    make("div", { class: "sides" }, make("div", { class: "pair" }, from, lines, to), make("aside", {}, map, readout, weights)));
  let matrix = new Float32Array(), buttons = [], attended = [];

  const table = (names, rows) => {
    const numeric = (column) => (typeof rows[0]?.[column] === "number" ? { class: "number" } : {});
    const head = make("tr", {}, ...names.map((name, column) => make("th", { scope: "col", ...numeric(column) }, name)));
    const body = rows.map((row) => make("tr", {}, ...row.map((cell, column) =>
      make("td", numeric(column), typeof cell === "number" ? written(cell) : cell))));
    return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  };
  const showToken = (number, focus = false) => {
    state.token = number;
    drawToken();
    if (focus && number >= 0) buttons[number].focus({ preventScroll: false });
  };
  from.addEventListener("keydown", (event) => {
    const focused = buttons.indexOf(document.activeElement);
    const next = { ArrowUp: focused - 1, ArrowDown: focused + 1, Home: 0, End: buttons.length - 1, Escape: -1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    if (event.key === "Escape") return showToken(-1);
    const bounded = Math.max(0, Math.min(buttons.length - 1, next));
    if (!buttons[bounded].disabled) showToken(bounded, true);
  });
  const drawTokens = () => {
    buttons = labels.map((label, number) => {
      const button = make("button", { type: "button", title: label, "aria-label": `${number + 1} ${label}` }, token(label));
      button.disabled = !isRow[number];
      button.addEventListener("click", () => showToken(state.token === number ? -1 : number));
      return button;
    });
    attended = labels.map((label) => make("span", { title: label }, token(label)));
    from.replaceChildren(...buttons.map((button) => make("li", {}, button)));
    to.replaceChildren(...attended.map((span) => make("li", {}, span)));
    lines.setAttribute("viewBox", `0 0 100 ${Math.max(1, labels.length)}`);
    lines.style.height = `${22 * labels.length}px`;
  };
  const MOST_LINES = 5000;
  const drawToken = () => {
    const n = labels.length, full = state.weighted ? most(matrix) || 1 : 1;
    const drawn = [];
    for (let i = 0; i < n; i++) {
      if (state.token >= 0 && i !== state.token) continue;
      for (let j = 0; j < n; j++) {
        const share = matrix[i * n + j] / full;
        if (share > 0 && share >= state.least) drawn.push([share, i, j]);
      }
    }
    drawn.sort((a, b) => b[0] - a[0]);
    const kept = drawn.slice(0, MOST_LINES);
    lines.replaceChildren(...kept.map(([share, i, j]) => {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      Object.entries({ x1: 0, y1: i + 0.5, x2: 100, y2: j + 0.5, "stroke-opacity": Math.min(1, share).toFixed(3) })
        .forEach(([name, value]) => line.setAttribute(name, value));
      return line;
    }));
    buttons.forEach((button, number) => {
      button.setAttribute("aria-pressed", String(number === state.token));
      button.tabIndex = number === Math.max(0, state.token) ? 0 : -1;
    });
    const row = state.token < 0 ? null : matrix.subarray(state.token * n, (state.token + 1) * n);
    attended.forEach((span, j) => {
      const share = row ? Math.min(1, row[j] / (state.weighted ? most(row) || 1 : 1)) : 0;
      span.style.setProperty("--weight", `${Math.round(100 * share)}%`);
      span.classList.toggle("over-dark", share > 0.65);
    });
    const what = state.weighted ? "weight × length" : "weight";
    if (!row) {
      const left = drawn.length > MOST_LINES ? `The ${MOST_LINES} heaviest of ${drawn.length} lines. ` : "";
      readout.textContent = `${left}Point at the map, or choose a token on the left.`;
      weights.replaceChildren(table(["from", "to", what], kept.slice(0, 10).map(([share, i, j]) => [token(labels[i]), token(labels[j]), share * full])));
    } else {
      const order = [...row.keys()].sort((a, b) => row[b] - row[a]).filter((j) => isColumn[j]).slice(0, 10);
      readout.textContent = `The tokens that ${labels[state.token]} attends to most`;
      weights.replaceChildren(table(["to", what], order.map((j) => [token(labels[j]), row[j]])));
    }
    drawNeurons();
  };
  map.addEventListener("pointermove", (event) => {
    const box = map.getBoundingClientRect(), n = labels.length;
    const at = (position, start, size) => Math.min(n - 1, Math.max(0, Math.floor(((position - start) / size) * n)));
    const [i, j] = [at(event.clientY, box.top, box.height), at(event.clientX, box.left, box.width)];
    readout.textContent = `${labels[i]} → ${labels[j]}: ${written(matrix[i * n + j])}`;
  });
  const drawHead = () => {
    const n = labels.length;
    matrix = matrixOf(state.layer, state.head);
    layerList.value = state.layer;
    headList.value = state.head;
    thumbnails.flat().forEach((button) => { button.tabIndex = -1; button.setAttribute("aria-pressed", "false"); });
    const current = thumbnails[state.layer][state.head === MEAN ? 0 : state.head];
    current.tabIndex = 0;
    if (state.head !== MEAN) current.setAttribute("aria-pressed", "true");
    paint(map, matrix, n, n, state.weighted ? most(matrix) : 1);
    const name = state.head === MEAN ? "mean of all heads" : `head ${state.head + 1}`;
    map.setAttribute("aria-label", `Layer ${layers[state.layer]}, ${name}: ${n} attending tokens as rows, attended tokens as columns. The table gives the largest weights.`);
    drawToken();
  };

  // ---- query times key
  const neurons = document.getElementById("neurons");
  const product = (layer, head, i, j) => {
    const start = (layer * H + head) * T, worth = data.query_scale[layer][head] * data.key_scale[layer][head];
    return Float32Array.from({ length: K }, (_, k) => query[(start + i) * K + k] * key[(start + j) * K + k] * worth);
  };
  const drawNeurons = () => {
    const say = (message) => neurons.replaceChildren(make("p", { class: "note" }, message));
    if (!query) return say("Queries and keys are not in this file, to keep it below 5 MB: choose fewer layers for them.");
    if (state.head === MEAN) return say("The mean of all heads has no query and key: choose one head.");
    if (state.words || state.weighted || state.hidden) return say("Queries and keys belong to single tokens: show plain attention weights of all tokens for them.");
    if (state.token < 0) return say("Choose an attending token above.");
    const i = state.token, n = labels.length, row = matrix.subarray(i * n, (i + 1) * n);
    const order = [...row.keys()].filter((j) => isColumn[j]).sort((a, b) => row[b] - row[a]).slice(0, 12);
    const products = order.map((j) => product(state.layer, state.head, i, j));
    const full = Math.max(...products.map((values) => Math.max(...values.map(Math.abs))));
    const rows = order.map((j, number) => {
      const strip = make("canvas", { role: "img", "aria-label": `${K} products of query and key` });
      paint(strip, products[number], K, 1, full);
      const score = products[number].reduce((a, b) => a + b, 0) / Math.sqrt(K);
      return [token(labels[j]), strip, score, row[j]];
    });
    const titled = table(["key of", `query of ${labels[i]} × key, ${K} elements`, data.sum_name, "weight"], rows);
    neurons.replaceChildren(
      make("p", { class: "note" }, `Blue raises the score, orange lowers it; the darkest is ${written(full)}.`),
      make("div", { class: "scrolling neurons", tabindex: 0, role: "region", "aria-label": "Query times key" }, titled));
  };

  const draw = () => {
    regroup();
    drawTokens();
    waiting = new Set(thumbnails.flat());
    watcher.disconnect();
    waiting.forEach((button) => watcher.observe(button));
    drawHead();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { paints(); draw(); });
  paints();
  draw();
  window.attention = {
    state, draw, matrix: (layer, head) => [...matrixOf(layer, head)], labels: () => labels,
    product: (layer, head, i, j) => [...product(layer, head, i, j)],
  };
  document.documentElement.dataset.ready = "true";
})();
