// Inputs from files and fields, results as files, and the calls that others can repeat.

export class InputError extends Error {}

// Lines of a file or field, without the marks that some systems begin and end them with.
const cutLines = (text) => text.replace(/^\ufeff/, "").split(/\r\n|\n/);

// Inputs as the server reads them, each with the line that it begins in.
export function parseLines(text, kind) {
  const lines = cutLines(text);
  if (kind === "words") return parseWords(lines);
  const found = [];
  lines.forEach((line, place) => {
    if (!line.trim()) return;
    if (kind === "texts") found.push({ line: place + 1, input: line });
    else found.push({ line: place + 1, input: parsePair(line, place + 1, kind) });
  });
  return found;
}

function parsePair(line, number, kind) {
  const fields = line.split("\t");
  if (fields.length !== 2 || !fields.every((field) => field.trim())) {
    throw new InputError(`line ${number}: write both texts on one line with one tab between them`);
  }
  return kind === "pairs" ? { first: fields[0], second: fields[1] } : { question: fields[0], context: fields[1] };
}

function parseWords(lines) {
  const found = [];
  let open = null;
  lines.forEach((line, place) => {
    const word = line.split("\t")[0].trim();
    if (!line.trim()) open = null;
    else if (!word) throw new InputError(`line ${place + 1}: no word before the tab; write one word a line`);
    else if (open) open.input.push(word);
    else found.push((open = { line: place + 1, input: [word] }));
  });
  return found;
}

const countCharacters = (input) => {
  const parts = typeof input === "string" ? [input] : Array.isArray(input) ? input : Object.values(input);
  return parts.reduce((sum, part) => sum + Array.from(part).length + 1, 0);
};

// Characters of the longest text; the words of a sentence count together.
function findLongest(input) {
  if (typeof input === "string") return Array.from(input).length;
  return Array.isArray(input) ? countCharacters(input) : Math.max(...Object.values(input).map((part) => Array.from(part).length));
}

// Requests within the server's limits; a text that fits into none is an error with its line.
export function cutRequests(items, limits) {
  const encoder = new TextEncoder();
  const requests = [];
  let open = [];
  let characters = 0;
  let bytes = 0;
  for (const item of items) {
    const length = countCharacters(item.input);
    const size = encoder.encode(JSON.stringify(item.input)).length + 2;
    const longest = findLongest(item.input);
    if (longest > limits.characters) throw new InputError(`line ${item.line}: ${longest} characters; a text may have ${limits.characters}`);
    const full = open.length >= limits.items || characters + length > limits.total || bytes + size > limits.body - 1000;
    if (open.length && full) {
      requests.push(open);
      [open, characters, bytes] = [[], 0, 0];
    }
    open.push(item);
    characters += length;
    bytes += size;
  }
  if (open.length) requests.push(open);
  return requests;
}

export function buildRequest(model, kind, language, items) {
  return { model, ...(language ? { language } : {}), [kind]: items.map((item) => item.input) };
}

const quoteShell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function writeCurl(address, requests, guarded) {
  const token = guarded ? ' \\\n  -H "Authorization: Bearer $CROSSLING_TOKEN"' : "";
  return requests
    .map((request) => `curl ${quoteShell(address)}${token} \\\n  -H 'Content-Type: application/json' \\\n  --data-raw ${quoteShell(JSON.stringify(request))}`)
    .join("\n\n");
}

export function writePython(address, requests, guarded) {
  const token = guarded ? ', "Authorization": "Bearer " + os.environ["CROSSLING_TOKEN"]' : "";
  return [
    "import json",
    ...(guarded ? ["import os"] : []),
    "import urllib.request",
    "",
    // A JSON text of strings, lists and objects is a Python expression, too.
    `requests = ${JSON.stringify(requests, null, 4)}`,
    "for content in requests:",
    `    headers = {"Content-Type": "application/json"${token}}`,
    "    data = json.dumps(content).encode()",
    `    request = urllib.request.Request(${JSON.stringify(address)}, data=data, headers=headers)`,
    "    with urllib.request.urlopen(request) as response:",
    '        for result in json.load(response)["results"]:',
    "            print(result)",
    "",
  ].join("\n");
}

// Rows of all models: { line, model, result }, line by line.
const writeJsonLines = (rows) => rows.map(({ line, model, result }) => JSON.stringify({ line, model, ...result }) + "\n").join("");

// A column of tags for each model; where models split words otherwise, each has lines of its own.
function writeConll(rows, models) {
  const sentences = [];
  for (let at = 0; at < rows.length; at += models.length) {
    const together = rows.slice(at, at + models.length).map((row) => row.result.words);
    const same = together.every((words) => words.map((w) => w.word).join("\n") === together[0].map((w) => w.word).join("\n"));
    const columns = (group) => group[0].map((word, place) => [word.word, ...group.map((words) => words[place].tag)].join("\t") + "\n").join("");
    sentences.push(...(same ? [columns(together)] : together.map((words) => columns([words]))));
  }
  return sentences.map((sentence) => sentence + "\n").join("");
}

// A text that a spreadsheet would take for a formula gets an apostrophe before it, as report/table.py writes it.
const isFormula = (value) => typeof value !== "number" && /^'*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]/.test(value) && !/^[+-]?[\d\s.,%()e+-]*$/.test(value);

function quoteCsv(value) {
  const text = (isFormula(value) ? "'" : "") + String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function writeCsv(rows, view) {
  const lines = [];
  let head = null;
  for (const { line, model, result } of rows) {
    const parts = !result.words ? [result] : view === "spans" && result.spans ? result.spans : result.words;
    for (const part of parts) {
      head ??= ["line", "model", ...Object.keys(part)];
      lines.push([line, model, ...Object.values(part)]);
    }
  }
  // The mark at the start tells spreadsheets that it is UTF-8.
  return "\ufeff" + [head ?? ["line", "model"], ...lines].map((cells) => cells.map(quoteCsv).join(",") + "\r\n").join("");
}

// Label Studio's tasks, one a line with a pre-annotation of each model; as inference/label_studio.py writes them.
function writeTasks(rows) {
  const tasks = new Map();
  for (const { line, model, result } of rows) {
    const data = Object.fromEntries(["text", "first", "second", "question", "context"].filter((name) => name in result).map((name) => [name, result[name]]));
    if (!tasks.has(line)) tasks.set(line, { data: { ...data, line }, predictions: [] });
    const sure = result.words ? result.words.map((word) => word.confidence) : [result.confidence];
    tasks.get(line).predictions.push({ model_version: model, score: Math.min(1, ...sure), result: annotate(result) });
  }
  return JSON.stringify([...tasks.values()], null, 1) + "\n";
}

function annotate(result) {
  const mark = (type, shown, value, score) => ({ from_name: "label", to_name: shown, type, value, score });
  if ("label" in result) return [mark("choices", "text" in result ? "text" : "first", { choices: [result.label] }, result.confidence)];
  if ("answer" in result) {
    const value = { start: result.start, end: result.end, text: result.answer, labels: ["answer"] };
    return result.start < 0 ? [] : [mark("labels", "context", value, result.confidence)];
  }
  return (result.spans ?? result.words).map((part) => {
    const value = { start: part.start, end: part.end, text: part.span ?? part.word, labels: [part.label ?? part.tag] };
    return mark("labels", "text", value, part.confidence);
  });
}

export function writeFile(format, rows, models, view) {
  if (format === "jsonl") return { text: writeJsonLines(rows), name: "predictions.jsonl", type: "application/jsonl" };
  if (format === "conll") return { text: writeConll(rows, models), name: "predictions.conll", type: "text/plain" };
  if (format === "tasks") return { text: writeTasks(rows), name: "tasks.json", type: "application/json" };
  return { text: writeCsv(rows, view), name: "predictions.csv", type: "text/csv" };
}
