"use strict";
const make = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};
const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const percent = (value) => (100 * value).toFixed(1) + "\u00a0%";

let counts = new Headers();  // of the last answer

async function ask(path, body) {
  const headers = { "content-type": "application/json" };
  const key = document.getElementById("key").value;
  if (key) headers.authorization = "Bearer " + key;
  const options = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  const failed = (reason) => { throw new Error(reason); };
  const response = await fetch("." + path, options)  // relative: a proxy may put a prefix before it
    .catch(() => failed("The server does not answer: see whether it still runs."));
  if (response.status === 401) failed("The server asks for an API key: enter it above.");
  const answer = await response.json().catch(() => failed(`Status ${response.status}, without a reason in JSON.`));
  counts = response.headers;
  return response.ok ? answer : failed(answer.error?.message ?? answer.error ?? `Status ${response.status}.`);
}

function bars(rows) {
  return make("table", { className: "bars" }, make("tbody", {}, ...rows.map(([name, value]) => {
    const share = make("span", { className: "share" });
    share.style.width = (100 * value).toFixed(2) + "%";
    return make("tr", {}, make("th", { scope: "row" }, name), make("td", { className: "number" }, percent(value)),
      make("td", { className: "drawn" }, share));
  })));
}

function pieces(tokens) {  // each with name, note and kind
  return make("div", { className: "tokens" }, ...tokens.map(({ name, note, kind, title = "" }) =>
    make("span", { className: `token ${kind}`, title }, name, make("small", {}, note))));
}

function highlighted(text, spans) {  // characters are code points, as in Python
  const characters = Array.from(text), parts = [];
  let end = 0;
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    if (span.start < end) continue;
    parts.push(characters.slice(end, span.start).join(""),
      make("mark", {}, characters.slice(span.start, span.end).join(""), make("small", {}, span.name)));
    end = span.end;
  }
  parts.push(characters.slice(end).join(""));
  return make("p", {}, ...parts);
}

function marked(text, entities) {
  const spans = entities.map((each) => ({ ...each, name: `${each.label} ${percent(each.probability)}` }));
  return spans.length ? highlighted(text, spans) : make("p", {}, "No entities.");
}

// Buttons that open pages of the text inside the model, each in a new tab.
function views(model, text) {
  const { kinds } = served.get(model), list = make("p", {}, "Inside the model: ");
  const offered = kinds.every((kind) => kind.includes("generation")) ? [] :
    [["input", "embeddings"], ["attention", "attention"], ...(kinds.includes("fill-mask") ? [["lens", "layers"]] : [])];
  for (const [view, name] of offered) {
    const link = make("button", { type: "button", className: "link" }, name);
    link.addEventListener("click", async () => {
      try {
        const { page } = await ask("/inspect/" + view, { model, inputs: text });
        window.open(URL.createObjectURL(new Blob([page], { type: "text/html" })), "_blank", "noopener");
      } catch (error) {
        list.append(make("span", { className: "error" }, " " + error.message));
      }
    });
    list.append(link, " ");
  }
  return offered.length ? list : "";
}

const served = new Map(), PANELS = [
  { title: "Tokens", kind: "feature-extraction fill-mask text-classification text-ranking token-classification " +
    "question-answering text2text-generation", fields: [["text", "Text", "A cat sat there, unbelievably quiet."]],
    async run(model, { text }) {
      const [tokens] = await ask("/tokenize", { model, inputs: text });
      return make("div", {}, pieces(tokens.map(({ id, token, text: written, special }) => {
        const isUnknown = !special && token !== written && /^(\[UNK\]|<unk>)$/.test(token);
        return { name: token, note: isUnknown ? `${id}: ${written}` : String(id), kind: special ? "special" :
          isUnknown ? "unknown" : "", title: isUnknown ? `no entry of the vocabulary spells ${written}` : "" };
      })), views(model, text));
    } },
  { title: "Similarity", kind: "feature-extraction",
    fields: [["texts", "Texts, one on each line", "A cat sat there.\nA dog lay on the rug.\nStocks fell sharply."]],
    async run(model, { texts }) {
      const given = lines(texts), vectors = await ask("/embed", { model, inputs: given });
      const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
      const heads = given.map((_, index) => make("th", { scope: "col" }, String(index + 1)));
      const rows = given.map((line, row) =>
        make("tr", {}, make("th", { scope: "row", title: line }, make("span", {}, `${row + 1} ${line}`)), ...given.map((_, column) => {
          const value = dot(vectors[row], vectors[column]);
          const cell = make("td", { className: "number" }, value.toFixed(2).replace("-", "\u2212"));
          cell.style.setProperty("--shade", `${(Math.max(0, value) * 45).toFixed(1)}%`);
          return cell;
        })));
      return make("table", { className: "similarity" }, make("thead", {}, make("tr", {}, make("td"), ...heads)),
        make("tbody", {}, ...rows));
    } },
  { title: "Masks", kind: "fill-mask", fields: [["text", "Text with [MASK]", "The capital of France is [MASK]."]],
    async run(model, { text }) {
      const masks = await ask("/fill", { model, inputs: text, top_k: 5 });
      return make("div", {}, ...masks.map((mask) =>
        bars(mask.candidates.map((candidate) => [candidate.token, candidate.score]))));
    } },
  { title: "Classes", kind: "text-classification", fields: [["text", "Text", "A joy from start to finish."]],
    async run(model, { text }) {
      const rows = await ask("/predict", { model, inputs: text });
      return bars(rows.map((row) => [row.label, row.score]));
    } },
  { title: "Labels", kind: "text-classification",
    fits: (model) => Object.keys(model.model_type.classifier.label2id).some((label) => /^entail/i.test(label)),
    fields: [["text", "Text", "The team won the final in extra time."],
      ["labels", "Labels, one on each line", "sport\nmoney\nweather"]],
    async run(model, { text, labels }) {
      const rows = await ask("/classify", { model, inputs: text, candidate_labels: lines(labels) });
      return bars(rows.map((row) => [row.label, row.score]));
    } },
  { title: "Ranking", kind: "text-ranking",
    fields: [["query", "Query", "Who sat there?"], ["texts", "Texts, one on each line", "A cat sat.\nStocks fell."]],
    async run(model, { query, texts }) {
      const given = lines(texts), rows = await ask("/rerank", { model, query, texts: given });
      return bars(rows.map((row) => [given[row.index], row.score]));
    } },
  { title: "Entities", kind: "token-classification",
    fields: [["text", "Text", "Ada Lovelace was born in London in 1815."]],
    async run(model, { text }) {
      return marked(text, await ask("/entities", { model, inputs: text }));
    } },
  { title: "Extraction", kind: "zero-shot-extraction",
    fields: [["text", "Text", "Ada Lovelace was born in London in 1815."],
      ["labels", "Labels, one on each line", "person\nplace\ndate"]],
    async run(model, { text, labels }) {
      const { entities } = await ask("/extract", { model, inputs: text, labels: lines(labels) });
      return marked(text, entities.map(({ score, ...span }) => ({ ...span, probability: score })));
    } },
  { title: "Redaction", kind: "token-classification zero-shot-extraction",
    fields: [["text", "Text", "Ada Lovelace (ada@example.org, +44 20 7946 0958) was born in London."],
      ["labels", "Labels of an extraction model, one on each line", "person\nplace"]],
    async run(model, { text, labels }) {
      const chosen = served.get(model).kinds.includes("zero-shot-extraction") ? lines(labels) : null;
      const reply = await ask("/redact", { model, inputs: text, labels: chosen });
      const spans = reply.replacements.map((each) => ({ ...each, name: each.kind }));
      return make("div", {}, make("p", {}, reply.text), highlighted(text, spans));
    } },
  { title: "Answers", kind: "question-answering",
    fields: [["question", "Question", "Who sat on the mat?"],
      ["context", "Text", "It was a warm day. The cat sat on the mat, and nobody spoke."]],
    async run(model, { question, context }) {
      const reply = await ask("/answer", { model, question, context, top_k: 5 });
      const rows = bars(reply.candidates.map((each) => [each.text, each.probability]));
      if (!reply.answer) return make("div", {}, make("p", {}, "The text has no answer." + (reply.candidates.length ? " The nearest:" : "")), rows);
      return make("div", {}, highlighted(context, [{ ...reply.answer, name: percent(reply.answer.probability) }]), rows);
    } },
  { title: "Writing", kind: "text-generation text2text-generation",
    fields: [["text", "A beginning, or a text to rewrite", "The cat sat"]],
    async run(model, { text }) {
      const parameters = { max_new_tokens: 40, return_full_text: true, details: true };
      const { generated_text, details } = await ask("/generate", { model, inputs: text, parameters });
      const tokens = details.tokens.map(({ text: name, logprob, special }) =>
        ({ name: name.replaceAll(" ", "\u00b7").replaceAll("\n", "\u21b5"), note: percent(Math.exp(logprob)), kind: special ? "special" : "" }));
      return make("div", {}, make("p", {}, generated_text || "Nothing."), pieces(tokens));
    } },
  { title: "Search", kind: "search", fields: [["query", "Query", "How do I resume a run?"]],
    async run(store, { query }) {
      const { results, missing } = await ask("/search", { query, k: 5 });
      const lacking = missing.length ? make("p", {}, `No passage has: ${missing.join(" ")}`) : "";
      if (!results.length) return make("div", {}, lacking, make("p", {}, "No results."));
      return make("div", {}, lacking, make("ol", {}, ...results.map(({ document, context, snippet }) => make("li", {}, snippet.text,
        make("div", { className: "soft" }, `${document}, ${snippet.start} to ${snippet.end}. ${context}`)))));
    } },
];

function panel(number, { title, kind, fields, run }, models) {
  const id = (name) => `panel-${number}-${name}`, output = make("output", { id: id("output") });
  const choice = make("select", { id: id("model") }, ...models.map((name) => make("option", {}, name)));
  const inputs = fields.map(([name, , value]) =>
    make("textarea", { id: id(name), value, rows: value.includes("\n") ? 4 : 2, name }));
  const form = make("form", {}, make("label", { htmlFor: id("model") }, kind === "search" ? "Store" : "Model"), choice);
  fields.forEach(([name, label], index) =>
    form.append(make("label", { htmlFor: id(name) }, label), inputs[index]));
  form.append(make("button", { type: "submit" }, "Show"));
  let latest = 0;  // number of the latest submission, whose result alone is shown
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const submission = ++latest;
    output.replaceChildren();
    output.setAttribute("aria-busy", "true");
    let result;
    try {
      result = await run(choice.value, Object.fromEntries(inputs.map((input) => [input.name, input.value])));
      const lost = [["unknown", "are unknown to the model ([UNK])"], ["cut", "were cut: a text is too long"]];
      result = make("div", {}, result, ...lost.filter(([name]) => counts.has("x-tokens-" + name)).map(([name, what]) =>
        make("p", { className: "soft" }, `${counts.get("x-tokens-" + name)} tokens ${what}.`)));
    } catch (error) {
      result = make("p", { className: "error" }, error.message);
    }
    if (submission !== latest) return;
    output.removeAttribute("aria-busy");
    output.replaceChildren(result);
  });
  const heading = make("h2", { id: id("heading") }, title), section = make("section", {}, heading, form, output);
  section.setAttribute("aria-labelledby", heading.id);
  return section;
}

async function show() {
  const about = document.getElementById("about"), panels = document.getElementById("panels");
  try {
    const { models, store } = await ask("/info"), missing = [];
    models.forEach((model) => served.set(model.model_id, model));
    const stores = store ? [`${store.num_passages} passages`] : [];
    const sections = PANELS.map((each, number) => {
      const fitting = models.filter((model) =>
        model.kinds.some((kind) => each.kind.split(" ").includes(kind)) && (!each.fits || each.fits(model)));
      const names = each.kind === "search" ? stores : fitting.map((model) => model.model_id);
      if (!names.length) missing.push(each.title.toLowerCase());
      return names.length ? panel(number, each, names) : null;
    });
    panels.replaceChildren(...sections.filter(Boolean));
    panels.querySelector("form")?.requestSubmit();  // an example with its result
    const names = models.map((model) => `${model.model_id} (${model.kinds.join(", ")})`).join("; ");
    about.textContent = `Served: ${names}.` + (missing.length ? ` No served model has ${missing.join(", ")}.` : "");
  } catch (error) {
    about.textContent = error.message;
  }
}
document.getElementById("access").addEventListener("submit", (event) => {
  event.preventDefault();
  show();
});
show();
