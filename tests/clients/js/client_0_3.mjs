// Drive a gateway with the official @a2a-js/sdk 0.3 client and print what it saw as one JSON object.
// Usage, in the folder that has node_modules:
// node client_0_3.mjs BASE_URL DIRECT_URL
// (the agent at DIRECT_URL answers with a message where it can)
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.cwd(), 'package.json'));
const { ClientFactory } = require('a2a-js-sdk-0.3/client');

const [baseUrl, directUrl] = process.argv.slice(2);

const ask = (text, { contextId, blocking = true } = {}) => ({
  message: {
    kind: 'message',
    messageId: crypto.randomUUID(),
    role: 'user',
    parts: [{ kind: 'text', text }],
    contextId,
  },
  configuration: { blocking },
});

const textOf = (parts) => parts.map((part) => part.text ?? '').join('');

const describe = (event) => {
  const { kind } = event;
  if (kind === 'message') return { kind, text: textOf(event.parts) };
  if (kind === 'status-update') return { kind, state: event.status.state, final: event.final };
  if (kind === 'artifact-update') {
    const { append = false, lastChunk = false } = event;
    return { kind, text: textOf(event.artifact.parts), append, lastChunk };
  }
  return {
    kind,
    id: event.id,
    contextId: event.contextId,
    state: event.status.state,
    artifacts: (event.artifacts ?? []).map((artifact) => textOf(artifact.parts)),
    history: (event.history ?? []).map((message) => textOf(message.parts)),
  };
};

const collect = async (events) => {
  const seen = [];
  for await (const event of events) seen.push(describe(event));
  return seen;
};

const errorName = async (call) => {
  try {
    await call;
    return null;
  } catch (error) {
    return error.constructor.name;
  }
};

// Follow a running task with two streams, cancel it, and see both of them end.
const holdAndCancel = async (client) => {
  const sent = [];
  const subscribed = [];
  let canceled = null;
  let taskId = '';
  let second;
  const subscribe = async () => {
    for await (const event of client.resubscribeTask({ id: taskId })) {
      subscribed.push(describe(event));
      canceled ??= describe(await client.cancelTask({ id: taskId }));
    }
  };
  for await (const event of client.sendMessageStream(ask('hold:60'))) {
    sent.push(describe(event));
    const { kind, id, state } = sent.at(-1);
    if (kind === 'task') taskId = id;
    if (state === 'working') second ??= subscribe();
  }
  await second;
  return { stream: sent, subscribe: subscribed, cancel: canceled };
};

const factory = new ClientFactory();
const client = await factory.createFromUrl(baseUrl);
// Resolved against the card's own address, so that the path of the account stays.
const direct = await factory.createFromUrl(`${directUrl}/.well-known/agent-card.json`, '');
const card = await client.getAgentCard();
const send = async (text, more) => describe(await client.sendMessage(ask(text, more)));

const report = {
  card: {
    name: card.name,
    protocolVersion: card.protocolVersion,
    preferredTransport: card.preferredTransport,
  },
  send: await send('echo:hello'),
  stream: await collect(client.sendMessageStream(ask('chunks:5:8'))),
  held: await holdAndCancel(client),
  direct: [
    describe(await direct.sendMessage(ask('echo:hi'))),
    ...(await collect(direct.sendMessageStream(ask('echo:hi')))),
  ],
};
const { id, contextId } = report.send;
report.get = describe(await client.getTask({ id }));
report.getWithoutHistory = describe(await client.getTask({ id, historyLength: 0 }));
report.followUp = await send('echo:again', { contextId });
report.immediate = await send('echo:later', { blocking: false });
report.errors = {
  getUnknown: await errorName(client.getTask({ id: 'no-such-task' })),
  cancelEnded: await errorName(client.cancelTask({ id })),
};
console.log(JSON.stringify(report));
