// The page: what is asked, of which models, and what is done with the results.

import { InputError, buildRequest, cutRequests, parseLines, writeCurl, writeFile, writePython } from "./formats.js";
import { make, showItem } from "./results.js";

const SHOWN = 200; // items in the list; a file may have more
const CALLED = 20; // inputs in the calls to copy
const TRIES = 30; // of a request that finds the queue full
const LARGEST_FILE = 20_000_000;

const get = (id) => document.getElementById(id);
const state = { models: [], limits: {}, guarded: false, file: null, shown: null, stop: null, examples: [] };

const find = (name) => state.models.find((model) => model.name === name);
const chosen = () => [get("model"), get("other")].map((select) => find(select.value)).filter(Boolean);

function say(text, problem = false) {
  get("status").textContent = text;
  get("status").classList.toggle("problem", problem);
}

async function call(path, options = {}) {
  const token = get("token").value.trim();
  const headers = { ...(options.headers ?? {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response.json();
  const content = await response.json().catch(() => ({}));
  const error = new Error(content.error?.message ?? `the server answered with ${response.status}`);
  error.status = response.status;
  throw error;
}

async function connect() {
  try {
    const found = await call("v1/models");
    Object.assign(state, { models: found.models, limits: found.limits });
    get("model").replaceChildren(...found.models.map((model) => make("option", {}, model.name)));
    say("");
    await chooseModel();
  } catch (error) {
    if (error.status === 401) {
      state.guarded = true;
      get("token-row").hidden = false;
      get("token").focus();
    }
    say(error.message, true);
  }
}

// The fields, comparisons and examples that fit a model.
async function chooseModel() {
  const model = find(get("model").value);
  if (!model) return;
  const reads = model.inputs[0];
  for (const kind of ["texts", "pairs", "questions"]) get(`${kind}-fields`).hidden = kind !== reads;
  get("split-row").hidden = !model.inputs.includes("words");
  get("language").placeholder = model.source;
  const others = state.models.filter((one) => one !== model && one.inputs.join() === model.inputs.join());
  const kept = get("other").value;
  get("other").replaceChildren(make("option", { value: "" }, "nothing"), ...others.map((one) => make("option", {}, one.name)));
  if (others.some((one) => one.name === kept)) get("other").value = kept;
  get("other").disabled = !others.length;
  describeFile();
  showExamples([]); // those of another model may not fit
  const { examples } = await call(`v1/examples?model=${encodeURIComponent(model.name)}`);
  if (get("model").value === model.name) showExamples(examples);
}

function showExamples(examples) {
  state.examples = examples;
  const options = examples.map((example) => make("option", { value: example.language }, example.name));
  get("example").replaceChildren(make("option", { value: "" }, "choose…"), ...options);
  get("languages").replaceChildren(...examples.map((example) => make("option", { value: example.language }, example.name)));
}

function chooseExample() {
  const example = state.examples.find((one) => one.language === get("example").value);
  if (!example) return;
  forgetFile();
  get("split").checked = false;
  get("language").value = example.language;
  if (example.texts) get("texts").value = example.texts.join("\n");
  if (example.pairs) [get("first").value, get("second").value] = [example.pairs[0].first, example.pairs[0].second];
  if (example.questions) [get("question").value, get("context").value] = [example.questions[0].question, example.questions[0].context];
  predict();
}

function inputKind() {
  const [model] = chosen();
  return model.inputs.includes("words") && get("split").checked ? "words" : model.inputs[0];
}

function readInputs(kind) {
  if (state.file !== null) return parseLines(state.file.text, kind);
  if (kind === "texts" || kind === "words") return parseLines(get("texts").value, kind);
  const [left, right] = kind === "pairs" ? ["first", "second"] : ["question", "context"];
  const texts = { [left]: get(left).value, [right]: get(right).value };
  return Object.values(texts).every((text) => text.trim()) ? [{ line: 1, input: texts }] : [];
}

async function openFile() {
  const [file] = get("file").files;
  if (!file) return;
  try {
    if (file.size > LARGEST_FILE) throw new InputError(`${file.name}: larger than ${LARGEST_FILE / 1e6} MB; use crossling predict`);
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    state.file = { name: file.name, text };
    describeFile();
    await predict();
  } catch (error) {
    forgetFile();
    say(error instanceof InputError ? error.message : `${file.name}: not UTF-8 text`, true);
  }
}

function forgetFile() {
  state.file = null;
  get("file").value = "";
  describeFile();
}

function describeFile() {
  const reads = chosen()[0]?.inputs[0];
  get("forget").hidden = state.file === null;
  for (const area of document.querySelectorAll("textarea")) area.disabled = state.file !== null;
  const rule = reads === "texts" ? "a text a line" : "both texts on a line, a tab between";
  get("file-hint").textContent = state.file ? `inputs are those of ${state.file.name}` : rule;
}

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

async function ask(request, signal) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request), signal };
      return (await call("v1/predict", options)).results;
    } catch (error) {
      if (error.status !== 429 || attempt === TRIES || signal.aborted) throw error;
      await pause(1000);
    }
  }
}

// Predictions of one model for all items; what has come is kept when the user stops.
async function askAll(model, kind, language, requests, signal, advance) {
  const results = [];
  for (const items of requests) {
    results.push(...(await ask(buildRequest(model.name, kind, language, items), signal)));
    advance(items.length);
  }
  return results;
}

async function predict() {
  state.stop?.abort();
  const stop = new AbortController();
  state.stop = stop;
  try {
    const models = chosen();
    if (!models.length) return;
    const kind = inputKind();
    const items = readInputs(kind);
    if (!items.length) throw new InputError("there is no text yet: type or paste one, choose an example, or open a file");
    const language = get("language").value.trim();
    const requests = cutRequests(items, state.limits);
    let done = 0;
    const advance = (count) => say(`${Math.floor((done += count) / models.length)} of ${items.length}`);
    get("stop").hidden = false;
    say("waiting for the model…");
    const results = await Promise.all(models.map((model) => askAll(model, kind, language, requests, stop.signal, advance)));
    if (state.stop !== stop) return; // a newer question is being answered
    state.shown = { models, kind, language, items, results };
    show();
  } catch (error) {
    if (state.stop !== stop) return;
    if (error.status === 401) get("token-row").hidden = false;
    say(error.name === "AbortError" ? "stopped" : error.message, error.name !== "AbortError");
  } finally {
    if (state.stop === stop) get("stop").hidden = true;
  }
}

function show() {
  const { models, items, results } = state.shown;
  const tags = Boolean(results[0][0]?.words);
  const spans = models.every((model) => model.spans);
  get("view-row").hidden = !(tags && spans);
  const view = tags && spans ? get("view").value : "words";
  get("sure-row").hidden = !tags || view !== "words";
  get("only-row").hidden = models.length < 2;
  get("conll").hidden = !tags;
  const list = get("list");
  list.replaceChildren(...items.slice(0, SHOWN).map((_, place) => showItem(results.map((one) => one[place]), models, view)));
  list.classList.toggle("show-sure", get("sure").checked);
  list.classList.toggle("only-differences", models.length > 1 && get("only").checked);
  get("results").hidden = false;
  say(summarise(list));
  writeCalls();
}

function summarise(list) {
  const { models, items } = state.shown;
  const counted = `${items.length} ${items.length === 1 ? "input" : "inputs"}`;
  const more = items.length > SHOWN ? `; the first ${SHOWN} are shown, downloads hold all` : "";
  const differ = models.length > 1 ? `; the models differ on ${list.querySelectorAll(".different").length} of those shown` : "";
  return counted + more + differ;
}

function writeCalls() {
  const { models, kind, language, items } = state.shown;
  const requests = models.map((model) => buildRequest(model.name, kind, language, items.slice(0, CALLED)));
  const address = new URL("v1/predict", location.href).href;
  const cut = items.length > CALLED ? `# the first ${CALLED} of ${items.length} inputs\n` : "";
  get("curl").textContent = cut + writeCurl(address, requests, state.guarded);
  get("python").textContent = cut + writePython(address, requests, state.guarded);
}

function download(format) {
  const { models, items, results } = state.shown;
  const rows = items.flatMap(({ line }, place) => models.map((model, side) => ({ line, model: model.name, result: results[side][place] })));
  const view = get("view-row").hidden ? "words" : get("view").value;
  const { text, name, type } = writeFile(format, rows, models, view);
  const address = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

async function copy(button) {
  const shown = get(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(shown.textContent);
  } catch { // not a secure context: the browser copies only what is selected
    getSelection().selectAllChildren(shown);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

get("form").addEventListener("submit", (event) => {
  event.preventDefault();
  predict();
});
get("form").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    predict();
  }
});
get("connect").addEventListener("click", connect);
get("token").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  connect();
});
get("model").addEventListener("change", () => chooseModel().catch((error) => say(error.message, true)));
get("example").addEventListener("change", chooseExample);
get("file").addEventListener("change", openFile);
get("forget").addEventListener("click", forgetFile);
get("stop").addEventListener("click", () => state.stop?.abort());
for (const id of ["view", "sure", "only"]) get(id).addEventListener("change", () => state.shown && show());
for (const button of document.querySelectorAll("[data-format]")) button.addEventListener("click", () => download(button.dataset.format));
for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button));
connect();
