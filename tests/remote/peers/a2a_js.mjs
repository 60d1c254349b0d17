// A peer on @a2a-js/sdk, JSON-RPC and HTTP+JSON. It does as the text says; see a2a_sdk_1_0.py.
// Run, in the folder that has node_modules: node a2a_js.mjs PORT
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.cwd(), 'package.json'));
const express = require('express');
const { InMemoryTaskStore, DefaultRequestHandler, AgentEvent } = require('@a2a-js/sdk/server');
const { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } = require('@a2a-js/sdk/server/express');
const { TaskState, Role } = require('@a2a-js/sdk');

const port = Number(process.argv[2]);
const part = (text) => ({ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' });
const canceled = new Map();

class Agent {
  cancelTask = async (taskId, bus) => canceled.get(taskId)?.();

  async execute(context, bus) {
    const { taskId, contextId, userMessage, task } = context;
    const text = userMessage.parts[0]?.content?.value ?? '';
    const [kind, ...others] = text.split(':');
    const rest = others.join(':');
    const say = (words) => ({ role: Role.ROLE_AGENT, messageId: crypto.randomUUID(), parts: [part(words)],
      taskId, contextId, extensions: [], metadata: undefined, referenceTaskIds: [] });
    if (kind === 'hello') {
      bus.publish(AgentEvent.message({ ...say('hello back'), taskId: '' }));
      bus.finished();
      return;
    }
    const status = (state, message) => bus.publish(AgentEvent.statusUpdate({ taskId, contextId,
      status: { state, timestamp: new Date().toISOString(), message }, metadata: undefined }));
    const show = (words, append, lastChunk) => bus.publish(AgentEvent.artifactUpdate({ taskId, contextId,
      append, lastChunk, metadata: undefined,
      artifact: { artifactId: 'a', name: '', description: '', parts: [part(words)], metadata: undefined, extensions: [] } }));
    // Every stream of this server begins with the task, also when the task is known already.
    bus.publish(AgentEvent.task({ id: taskId, contextId, artifacts: task?.artifacts ?? [],
      history: [...(task?.history ?? []), userMessage], metadata: undefined,
      status: { state: TaskState.TASK_STATE_SUBMITTED, timestamp: new Date().toISOString(), message: undefined } }));
    status(TaskState.TASK_STATE_WORKING);
    if (kind === 'ask') {
      status(TaskState.TASK_STATE_INPUT_REQUIRED, say('which colour?'));
      bus.finished();
      return;
    }
    if (kind === 'hold') {
      await new Promise((resolve) => canceled.set(taskId, resolve));
      status(TaskState.TASK_STATE_CANCELED);
      bus.finished();
      return;
    }
    if (kind === 'slow') {
      await new Promise((resolve) => setTimeout(resolve, 1500));
      show('at last', false, true);
    } else if (kind === 'chunks') {
      for (let index = 0; index < Number(rest); index++) show(`<${index}>`, index > 0, index === Number(rest) - 1);
    } else show(rest || text, false, true);
    status(TaskState.TASK_STATE_COMPLETED);
    bus.finished();
  }
}

const face = (protocolBinding, path) => ({ url: `http://127.0.0.1:${port}${path}`, protocolBinding, tenant: '', protocolVersion: '1.0' });
const card = { name: 'js', description: 'a peer', version: '1',
  supportedInterfaces: [face('JSONRPC', '/rpc'), face('HTTP+JSON', '/rest')], provider: undefined,
  capabilities: { streaming: true, pushNotifications: false, extensions: [], extendedAgentCard: false },
  securitySchemes: {}, securityRequirements: [], defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'],
  skills: [{ id: 'talk', name: 'Talk', description: 'Talks.', tags: ['t'], examples: [], inputModes: [], outputModes: [], securityRequirements: [] }],
  documentationUrl: '', signatures: [] };
const handler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Agent());
const options = { requestHandler: handler, userBuilder: UserBuilder.noAuthentication };
const app = express();
app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: handler }));
app.use('/rpc', jsonRpcHandler(options));
app.use('/rest', restHandler(options));
app.listen(port, '127.0.0.1');
