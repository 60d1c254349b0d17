// Loads the plugin as OpenClaw does, and does what lines on standard input say:
//   {"do": "register", "config": {...}, "mode": "full"}   -> {"registered": [[name, options], ...]}
//   {"do": "tool", "name", "context"}                     -> {"tool": {name, ...} or null}
//   {"do": "call", "id", "name", "context", "params"}     -> {"id", "update"} ..., {"id", "result"}
//     (with "nameless": true the call is made without a call id)
//   {"do": "abort", "id"}                                 -> nothing; the call ends
// The first argument is the plugin's folder. Whatever it logs is printed as {"log": ...}.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const plugin = (await import(pathToFileURL(`${process.argv[2]}/index.js`))).default;
const factories = new Map();
const aborts = new Map();
const print = (line) => console.log(JSON.stringify(line));

const actions = {
  register({ config, mode }) {
    const registered = [];
    const level = (name) => (text) => print({ log: text, level: name });
    plugin.register({
      pluginConfig: config,
      registrationMode: mode,
      logger: { info: level("info"), debug: level("debug"), warn: level("warn") },
      registerTool(factory, options) {
        factories.set(options.name, factory);
        registered.push([options.name, options]);
      },
    });
    print({ registered });
  },
  tool({ name, context }) {
    const tool = factories.get(name)(context ?? {});
    print({ tool: tool && { ...tool, execute: typeof tool.execute } });
  },
  async call({ id, name, context, params, nameless }) {
    const abort = new AbortController();
    aborts.set(id, abort);
    const tool = factories.get(name)(context ?? {});
    const tell = (update) => print({ id, update });
    const result = await tool.execute(
      ...(nameless ? [] : [`call-${id}`]),
      params,
      abort.signal,
      tell,
    );
    print({ id, result });
  },
  abort({ id }) {
    aborts.get(id).abort();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  Promise.resolve(actions[asked.do](asked)).catch((error) => print({ thrown: String(error) }));
}
