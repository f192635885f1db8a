// Frames as high as their pages, so that only the outer page scrolls.
const frames = [...document.querySelectorAll("iframe")];
const fit = (frame) => {
  frame.style.height = `${frame.contentDocument.documentElement.scrollHeight + 4}px`;
};
const begin = (frame) => {
  fit(frame);
  new ResizeObserver(() => fit(frame)).observe(frame.contentDocument.body);
  frame.dataset.fitted = "";
  if (frames.every((each) => "fitted" in each.dataset)) document.documentElement.dataset.ready = "";
};
for (const frame of frames) {
  const inner = frame.contentDocument;
  if (inner.readyState === "complete" && inner.querySelector("main")) begin(frame);
  else frame.addEventListener("load", () => begin(frame));
}
