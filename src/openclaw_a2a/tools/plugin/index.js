// Gives OpenClaw's agents the tools of an openclaw-a2a gateway. What a tool is called comes from
// the manifest, what it takes and does from the gateway: a tool that is added there needs one
// name more in openclaw.plugin.json, and nothing here.
import { readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";

const MANIFEST = JSON.parse(
  readFileSync(new URL("./openclaw.plugin.json", import.meta.url), "utf8"),
);
const USUAL_URL = MANIFEST.configSchema.properties.url.default;
// OpenClaw 2026.9 takes the tools of a turn from a load in mode tool-discovery.
const MODES = new Set(["full", "tool-discovery"]);
const REFRESH_MS = 1000;
const TABLE_MS = 5000;
const BLANK_LINE = /\r?\n\r?\n/;
const CONTROLS = /[\x00-\x1f\x7f]/;
const MOST_CHARACTERS = 32 * 1024 * 1024;

export default {
  id: MANIFEST.id,
  name: MANIFEST.name,
  description: MANIFEST.description,
  register(api) {
    const mode = api.registrationMode ?? "full";
    if (!MODES.has(mode)) {
      log(api, "debug", "a2a.plugin.registration.deferred", { mode });
      return;
    }
    const config = api.pluginConfig ?? {};
    const table = tableOf(config, (event, facts) => log(api, "info", event, facts));
    const wanted = MANIFEST.contracts.tools.filter((name) => config.tools?.includes(name) ?? true);
    for (const name of wanted) {
      api.registerTool((context) => buildTool(name, table, config, context), {
        name,
        optional: MANIFEST.toolMetadata?.[name]?.optional === true,
      });
    }
    table.refresh();
    log(api, "debug", "a2a.plugin.loaded", { tools: wanted, url: urlOf(config) });
  },
};

/** The tool for one run of an agent; null when the gateway does not offer it. */
function buildTool(name, table, config, context) {
  table.refresh(); // for the next run: this one does not wait for the gateway
  const offered = table.find(name);
  if (offered === null) return null;
  return {
    name,
    label: offered.label,
    description: offered.description,
    parameters: offered.inputSchema,
    async execute(...given) {
      // A host may leave out the call's id, which comes first and is a text.
      const [params, signal, onUpdate] = typeof given[0] === "string" ? given.slice(1) : given;
      const report = (update) => onUpdate?.(hostResult(update));
      return hostResult(await callTool({ name, params, config, context, signal, report }));
    },
  };
}

function hostResult(envelope) {
  return { content: [{ type: "text", text: JSON.stringify(envelope) }], details: envelope };
}

const tables = new Map();

/** The one table of this config: OpenClaw loads a plugin several times. */
function tableOf(config, logEvent) {
  const key = JSON.stringify(config);
  if (!tables.has(key)) tables.set(key, new Table(config, logEvent));
  return tables.get(key);
}

/** The tools that the gateway offers. It writes them to a file when it starts, so that the first
 *  run after that has them. */
class Table {
  #config;
  #logEvent;
  #tools = null;
  #text = "";
  #fileVersion = "";
  #requestedAt = -Infinity;

  constructor(config, logEvent) {
    this.#config = config;
    this.#logEvent = logEvent;
  }

  /** The tool; a placeholder until the gateway first answers; null if it is not offered. */
  find(name) {
    this.#readFile();
    if (this.#tools === null) return placeholderTool(name, urlOf(this.#config));
    return this.#tools.find((tool) => tool.name === name) ?? null;
  }

  /** Request the list again, in the background and not too often. */
  refresh() {
    if (performance.now() - this.#requestedAt < REFRESH_MS) return;
    this.#requestedAt = performance.now();
    this.#request().catch(() => {}); // the last list stays; a call reports what is wrong
  }

  async #request() {
    const signal = AbortSignal.timeout(TABLE_MS);
    const response = await request("/tools", { config: this.#config, signal, inBackground: true });
    if (response.statusCode !== 200) return response.resume();
    const text = await wholeText(response);
    if (text === this.#text) return;
    this.#parse(text);
    this.#writeFile(text);
    const names = this.#tools.map((tool) => tool.name);
    const event = names.length ? "a2a.plugin.offered" : "a2a.plugin.disabled";
    this.#logEvent(event, { tools: names, url: urlOf(this.#config) });
  }

  /** Read the file if it was written since, by the gateway or by another OpenClaw process. */
  #readFile() {
    try {
      const { mtimeMs, ino, size } = statSync(this.#config.tableFile);
      const version = `${mtimeMs} ${ino} ${size}`;
      if (version === this.#fileVersion) return;
      this.#fileVersion = version;
      this.#parse(readFileSync(this.#config.tableFile, "utf8"));
    } catch {
      // there is none, or none that can be used: the list comes from the gateway
    }
  }

  #parse(text) {
    this.#tools = JSON.parse(text).tools.filter(
      (tool) => typeof tool.name === "string" && tool.inputSchema?.type === "object",
    );
    this.#text = text;
  }

  #writeFile(text) {
    const path = this.#config.tableFile;
    if (!path) return;
    try {
      const draft = `${path}.${process.pid}`;
      writeFileSync(draft, text, { mode: 0o600 });
      renameSync(draft, path);
    } catch {
      // the list is requested again after the next start
    }
  }
}

function placeholderTool(name, url) {
  return {
    label: name,
    description:
      `${name}, a tool of the openclaw-a2a gateway at ${url}, which has not answered yet. ` +
      "A call tries again, and tells what is wrong.",
    inputSchema: { type: "object", properties: {}, additionalProperties: true },
  };
}

/** The envelope of one call. It never throws: whatever goes wrong is an envelope too. */
async function callTool({ name, params, config, context, signal, report }) {
  const fail = (message, reason, hint) => failure({ name, params, message, reason, hint });
  const url = urlOf(config);
  let response;
  try {
    response = await request(`/tools/${name}`, { config, signal, context, body: params ?? {} });
    const answer = await readAnswer(response, report);
    if (isResult(answer, response.statusCode)) return answer;
    return refusal(answer?.error, { url, status: response.statusCode, fail });
  } catch (error) {
    const after = afterBreak(name);
    if (signal?.aborted) return fail("the call was aborted", ABORTED, after);
    if (error instanceof TokenUnreadable) return fail(error.message, "token_unreadable", CONNECT);
    const why = error.code ?? error.message;
    if (response) return fail(`the gateway at ${url} broke off (${why})`, "broke_off", after);
    return fail(`no gateway answers at ${url} (${why})`, "gateway_unreachable", START);
  }
}

/** True for results of tools: an envelope with `ok`, or the status of calls and plans. */
function isResult(answer, status) {
  if (typeof answer?.ok === "boolean") return true;
  return status === 200 && (typeof answer?.status === "string" || Array.isArray(answer?.results));
}

/** The failure for a response of an endpoint that did not call the tool. */
function refusal(error, { url, status, fail }) {
  if (status === 401 || status === 403) {
    return fail(`the gateway at ${url} does not accept the token`, "token_refused", CONNECT);
  }
  if (typeof error?.message === "string") {
    return fail(`the gateway refused the call (${error.code})`, "refused", error.message);
  }
  const what = `what answers at ${url} (HTTP ${status}) is no openclaw-a2a gateway`;
  return fail(what, "not_a_gateway", "correct url in the plugin's config, or stop that program");
}

const START = "start it with: openclaw-a2a up; see what is wrong with: openclaw-a2a doctor";
const CONNECT = "make a new token with: openclaw-a2a connect openclaw";
const ENVELOPED = "remote_agent";
const ABORTED = "aborted";
const HOW_LONG = "a call may take timeout_ms, or the gateway's outbound.defaults.timeoutMs";
const AFTER_SENDING =
  "the remote agent may still be at work: look with action status and the continuation you have, " +
  "before you send again";
const AFTER_CALLING = "if the call was accepted, its answer still comes into this session";
const AFTER_PLANNING = "look with objective_status what was done, before you do it again";

/** The hint for a call that may have arrived or not. */
function afterBreak(name) {
  if (/^(objective|plan|step)_/.test(name)) return AFTER_PLANNING;
  return name === ENVELOPED ? AFTER_SENDING : AFTER_CALLING;
}

/** The failure in the form of the tool's own results. */
function failure({ name, params, message, reason, hint }) {
  const text = `${message}; ${hint}`;
  if (name !== ENVELOPED) return { status: "error", error: text };
  const action = typeof params?.action === "string" ? params.action : "unknown";
  const error = { code: "INTERNAL_ERROR", message: text, details: { reason, hint } };
  if (reason === ABORTED) {
    // the contract of the tool has no other error for a call that was aborted
    error.code = "A2A_SDK_ERROR";
    error.message = "request timed out";
    error.details.hint = `${hint}; ${HOW_LONG}`;
  }
  return { ok: false, operation: name, action, error };
}

class TokenUnreadable extends Error {}

function tokenOf(config) {
  if (!config.tokenFile) return config.token ?? "";
  try {
    return readFileSync(config.tokenFile, "utf8").trim();
  } catch (error) {
    throw new TokenUnreadable(`the token in ${config.tokenFile} cannot be read (${error.code})`);
  }
}

function urlOf(config) {
  return (config.url ?? USUAL_URL).replace(/\/+$/, "");
}

/** The caller is the one that OpenClaw names, never one that a model wrote into the arguments. */
function headersOf(config, context) {
  const headers = { accept: "text/event-stream, application/json" };
  const token = tokenOf(config);
  if (token) headers.authorization = `Bearer ${token}`;
  const identity = {
    "x-openclaw-session-key": context?.sessionKey,
    "x-openclaw-agent-id": context?.agentId,
  };
  for (const [name, text] of Object.entries(identity)) {
    // a header carries the text's UTF-8 bytes, and no control characters
    if (text && !CONTROLS.test(text)) headers[name] = Buffer.from(text).toString("latin1");
  }
  return headers;
}

// Not fetch: OpenClaw may send that through a proxy, and it gives up when an agent thinks long.
function request(path, { config, signal, context, body, inBackground = false }) {
  return new Promise((resolve, reject) => {
    const url = new URL(urlOf(config) + path);
    const sent = body === undefined ? null : Buffer.from(JSON.stringify(body));
    const headers = headersOf(config, context);
    if (sent) headers["content-type"] = "application/json";
    if (sent) headers["content-length"] = sent.length;
    const outgoing = (url.protocol === "https:" ? https : http).request(url, {
      method: sent ? "POST" : "GET",
      headers,
      signal,
      agent: false,
    });
    if (inBackground) outgoing.on("socket", (socket) => socket.unref());
    outgoing.on("error", reject);
    outgoing.on("response", resolve);
    outgoing.end(sent);
  });
}

/** The result; updates are reported before it. Undefined when the answer is something else. */
async function readAnswer(response, report) {
  if (!(response.headers["content-type"] ?? "").startsWith("text/event-stream")) {
    const text = await wholeText(response);
    try {
      return JSON.parse(text);
    } catch {
      return undefined;
    }
  }
  for await (const { event, data } of events(response)) {
    if (event !== "update") return JSON.parse(data);
    report(JSON.parse(data));
  }
  throw new Error("the stream ended before the result");
}

async function* events(response) {
  let text = "";
  for await (const piece of response.setEncoding("utf8")) {
    const from = Math.max(0, text.length - 3);
    text += piece;
    checkSize(text);
    if (!BLANK_LINE.test(text.slice(from))) continue;
    const frames = text.split(BLANK_LINE);
    text = frames.pop();
    for (const frame of frames.map(readFrame)) if (frame.data) yield frame;
  }
}

function readFrame(frame) {
  const lines = frame.split(/\r?\n/);
  const values = (field) =>
    lines
      .filter((line) => line.startsWith(`${field}:`))
      .map((line) => line.slice(field.length + 1).trimStart());
  return { event: values("event").at(-1), data: values("data").join("\n") };
}

async function wholeText(response) {
  let text = "";
  for await (const piece of response.setEncoding("utf8")) {
    text += piece;
    checkSize(text);
  }
  return text;
}

function checkSize(text) {
  if (text.length > MOST_CHARACTERS) throw new Error(`more than ${MOST_CHARACTERS} characters`);
}

function log(api, level, event, facts) {
  api.logger?.[level]?.(`${event} ${JSON.stringify(facts)}`);
}
