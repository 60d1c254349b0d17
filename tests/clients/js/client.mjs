// Drive a gateway with the official @a2a-js/sdk 1.x client and print what it saw as one JSON object.
// Usage, in the folder that has node_modules:
// node client.mjs BASE_URL DIRECT_URL [JSONRPC|HTTP+JSON]
// (the agent at DIRECT_URL answers with a message where it can)
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.cwd(), 'package.json'));
const { ClientFactory, ClientFactoryOptions } = require('@a2a-js/sdk/client');
const { Role, TaskState } = require('@a2a-js/sdk');

const [baseUrl, directUrl, binding = 'JSONRPC'] = process.argv.slice(2);

const ask = (text, { contextId = '', returnImmediately = false } = {}) => ({
  tenant: '',
  metadata: undefined,
  message: {
    messageId: crypto.randomUUID(),
    role: Role.ROLE_USER,
    parts: [{ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' }],
    contextId,
    taskId: '',
    extensions: [],
    referenceTaskIds: [],
    metadata: undefined,
  },
  configuration: {
    acceptedOutputModes: [],
    taskPushNotificationConfig: undefined,
    historyLength: undefined,
    returnImmediately,
  },
});

const stateOf = (status) =>
  TaskState[status.state].replace('TASK_STATE_', '').toLowerCase().replace('_', '-');
const textOf = (parts) => parts.map((part) => part.content?.value ?? '').join('');

const describeTask = (task) => ({
  id: task.id,
  contextId: task.contextId,
  state: stateOf(task.status),
  artifacts: task.artifacts.map((artifact) => textOf(artifact.parts)),
  history: task.history.map((message) => textOf(message.parts)),
});

const describeEvent = ({ payload: { $case: kind, value } }) => {
  if (kind === 'task') return { kind, ...describeTask(value) };
  if (kind === 'message') return { kind, text: textOf(value.parts) };
  if (kind === 'statusUpdate') return { kind: 'status-update', state: stateOf(value.status) };
  return {
    kind: 'artifact-update',
    text: textOf(value.artifact.parts),
    append: value.append,
    lastChunk: value.lastChunk,
  };
};

const describeAnswer = (answer) =>
  answer.status
    ? { kind: 'task', ...describeTask(answer) }
    : { kind: 'message', text: textOf(answer.parts) };

const collect = async (events) => {
  const seen = [];
  for await (const event of events) seen.push(describeEvent(event));
  return seen;
};

const errorName = async (call) => {
  try {
    await call;
    return null;
  } catch (error) {
    return error.name === 'Error' ? error.constructor.name : error.name;
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
    for await (const event of client.resubscribeTask({ tenant: '', id: taskId })) {
      subscribed.push(describeEvent(event));
      canceled ??= describeTask(await client.cancelTask({ tenant: '', id: taskId }));
    }
  };
  for await (const event of client.sendMessageStream(ask('hold:60'))) {
    sent.push(describeEvent(event));
    const { kind, id, state } = sent.at(-1);
    if (kind === 'task') taskId = id;
    if (state === 'working') second ??= subscribe();
  }
  await second;
  return { stream: sent, subscribe: subscribed, cancel: canceled };
};

const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  preferredTransports: [binding],
});
const factory = new ClientFactory(options);
const client = await factory.createFromUrl(baseUrl);
// Resolved against the card's own address, so that the path of the account stays.
const direct = await factory.createFromUrl(`${directUrl}/.well-known/agent-card.json`, '');
const card = await client.getAgentCard();
const get = async (id, more = {}) => describeTask(await client.getTask({ tenant: '', id, ...more }));
const send = async (text, more) => describeAnswer(await client.sendMessage(ask(text, more)));

const report = {
  card: {
    name: card.name,
    interfaces: card.supportedInterfaces.map((i) => [i.protocolBinding, i.protocolVersion]),
  },
  protocol: [client.transport.protocolName, client.protocolVersion],
  send: await send('echo:hello'),
  stream: await collect(client.sendMessageStream(ask('chunks:5:8'))),
  held: await holdAndCancel(client),
  direct: [
    describeAnswer(await direct.sendMessage(ask('echo:hi'))),
    ...(await collect(direct.sendMessageStream(ask('echo:hi')))),
  ],
};
const { id, contextId } = report.send;
report.get = await get(id);
report.getWithoutHistory = await get(id, { historyLength: 0 });
const page = await client.listTasks({
  tenant: '', contextId, status: TaskState.TASK_STATE_UNSPECIFIED, pageSize: undefined, pageToken: '',
  historyLength: undefined, statusTimestampAfter: undefined, includeArtifacts: undefined,
});
report.list = { ids: page.tasks.map((task) => task.id), total: page.totalSize };
report.followUp = await send('echo:again', { contextId });
report.immediate = await send('echo:later', { returnImmediately: true });
report.errors = {
  getUnknown: await errorName(get('no-such-task')),
  cancelEnded: await errorName(client.cancelTask({ tenant: '', id })),
};
console.log(JSON.stringify(report));
