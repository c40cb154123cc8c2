// What is seen of results: elements made from text nodes only, and the differences between two models.

const PALETTE = 8;
const LONG = 24; // characters of a word that may be cut at the end of a line
const codePoints = (text) => Array.from(text); // offsets count code points, JavaScript's strings UTF-16 units
const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else element.setAttribute(name, value);
  }
  element.append(...children); // strings become text nodes
  return element;
}

const sure = (share) => make("span", { class: "sure" }, percent(share));

// The kind of a tag without its place in a span: B-PER and I-PER have one colour.
const bare = (label) => label.replace(/^[BI]-/, "");

const places = new WeakMap(); // of kinds of labels, by model: a model may have thousands

function colour(label, model) {
  if (!places.has(model)) {
    const kinds = [...new Set(model.labels.map(bare))].filter((kind) => kind !== "O");
    places.set(model, new Map(kinds.map((kind, place) => [kind, place])));
  }
  const place = places.get(model).get(bare(label));
  return place === undefined ? "" : `c${place % PALETTE}`;
}

// What of a result can differ between models, each part with a key that is equal where they agree.
export function listParts(result, view) {
  if (result.words) {
    const spans = view === "spans" && result.spans;
    return (spans || result.words).map((part) => `${part.start}:${part.end}:${part.label ?? part.tag}`);
  }
  return [result.label ?? `${result.start}:${result.end}`];
}

export function findDifferences(result, other, view) {
  const known = new Set(listParts(other, view));
  return new Set(listParts(result, view).filter((key) => !known.has(key)));
}

const mark = (differs) => (differs ? " differs" : "");

// A text in which parts are replaced by elements; what lies between stays text. The direction of the whole follows its
// first letter: browsers look into spans for it, but not into bdi, which holds the labels.
function weave(text, parts, build) {
  const characters = codePoints(text);
  const paragraph = make("p", { class: "text", dir: "auto" });
  let at = 0;
  for (const part of parts) {
    paragraph.append(characters.slice(at, part.start).join(""));
    paragraph.append(build(part, characters.slice(part.start, part.end).join("")));
    at = part.end;
  }
  paragraph.append(characters.slice(at).join(""));
  return paragraph;
}

function showSpans(result, model, differing) {
  return weave(result.text, result.spans, (span, text) => {
    const differs = differing.has(`${span.start}:${span.end}:${span.label}`);
    const label = make("bdi", { class: "label" }, span.label, sure(span.confidence));
    return make("mark", { class: `${colour(span.label, model)}${mark(differs)}` }, make("span", { class: "part" }, text), label);
  });
}

function showWords(result, model, differing) {
  const paragraph = weave(result.text, result.words, (word, text) => {
    const differs = differing.has(`${word.start}:${word.end}:${word.tag}`);
    const tag = make("rt", { class: colour(word.tag, model), dir: "ltr" }, make("bdi", {}, word.tag), sure(word.confidence));
    const kind = `${word.tag === "O" ? "outside" : ""}${text.length > LONG ? " long" : ""}${mark(differs)}`;
    return make("ruby", { class: kind }, text, tag);
  });
  paragraph.classList.add("words");
  return paragraph;
}

function showClass(result, model, differing) {
  const label = make("bdi", { class: `label ${colour(result.label, model)}${mark(differing.size)}` }, result.label);
  const meter = make("meter", { min: 0, max: 1, value: result.confidence, "aria-label": "confidence" });
  const texts = result.text === undefined ? [result.first, result.second] : [result.text];
  const shown = texts.map((text) => make("p", { class: "text", dir: "auto" }, text));
  return [...shown, make("p", { class: "class" }, label, meter, percent(result.confidence))];
}

function showAnswer(result, differing) {
  const found = result.start < 0 ? [] : [result];
  const context = weave(result.context, found, (part, text) =>
    make("mark", { class: `c5${mark(differing.size)}` }, make("span", { class: "part" }, text)));
  const answer = make("p", { class: "class" }, "Answer:");
  if (found.length) answer.append(make("bdi", { class: "label c5" }, result.answer), percent(result.confidence));
  else answer.append(make("span", { class: `note${mark(differing.size)}` }, "none in the context"));
  return [make("p", { class: "text", dir: "auto" }, result.question), answer, context];
}

function showResult(result, model, view, differing) {
  if (result.words) return [view === "spans" && result.spans ? showSpans(result, model, differing) : showWords(result, model, differing)];
  return result.context === undefined ? showClass(result, model, differing) : showAnswer(result, differing);
}

// An item of the list: one model's result, or two beside each other with what differs marked.
export function showItem(results, models, view) {
  const item = make("li");
  if (results.length === 1) {
    item.append(...showResult(results[0], models[0], view, new Set()));
    return item;
  }
  const differing = [findDifferences(results[0], results[1], view), findDifferences(results[1], results[0], view)];
  const columns = results.map((result, side) =>
    make("div", {}, make("p", { class: "by" }, models[side].name), ...showResult(result, models[side], view, differing[side])));
  const count = Math.max(differing[0].size, differing[1].size);
  if (count) item.classList.add("different");
  item.append(make("div", { class: "both" }, ...columns));
  item.append(make("p", { class: "note" }, count ? `${count} ${count === 1 ? "difference" : "differences"}` : "no difference"));
  return item;
}
