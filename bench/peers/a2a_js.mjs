// The bench agent on @a2a-js/sdk with Express, tasks in memory.
// Run, in the folder that has node_modules: NODE_ENV=production node a2a_js.mjs PORT
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.cwd(), 'package.json'));
const express = require('express');
const { InMemoryTaskStore, DefaultRequestHandler, AgentEvent } = require('@a2a-js/sdk/server');
const { jsonRpcHandler, UserBuilder } = require('@a2a-js/sdk/server/express');
const { TaskState, Role } = require('@a2a-js/sdk');

const port = Number(process.argv[2]);
const ts = () => new Date().toISOString();
const part = (text) => ({ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' });

class Bench {
  cancelTask = async () => {};
  async execute(ctx, bus) {
    const { taskId, contextId, userMessage } = ctx;
    const text = userMessage.parts[0]?.content?.value ?? '';
    const [kind, ...rest] = text.split(':');
    const status = (state, message) => bus.publish(AgentEvent.statusUpdate(
      { taskId, contextId, status: { state, timestamp: ts(), message }, metadata: undefined }));
    const art = (t, append, last) => bus.publish(AgentEvent.artifactUpdate({
      taskId, contextId, append, lastChunk: last, metadata: undefined,
      artifact: { artifactId: 'a', name: '', description: '', parts: [part(t)], metadata: undefined, extensions: [] } }));
    bus.publish(AgentEvent.task({ id: taskId, contextId, artifacts: [], history: [userMessage], metadata: undefined,
      status: { state: TaskState.TASK_STATE_SUBMITTED, timestamp: ts(), message: undefined } }));
    status(TaskState.TASK_STATE_WORKING);
    if (kind === 'chunks') {
      const n = +rest[0], body = 'x'.repeat(+rest[1]);
      for (let i = 0; i < n; i++) {
        art(body, i > 0, i === n - 1);
        await new Promise((resolve) => setImmediate(resolve)); // chunks leave one by one
      }
    } else if (kind === 'hist') {
      for (let i = 0; i < +rest[0]; i++)
        status(TaskState.TASK_STATE_WORKING, { role: Role.ROLE_AGENT, messageId: crypto.randomUUID(), parts: [part(`step ${i}`)],
          taskId, contextId, extensions: [], metadata: undefined, referenceTaskIds: [] });
    } else if (kind === 'hold') {
      await new Promise((r) => setTimeout(r, 1000 * +rest[0]));
    } else art(text, false, true);
    status(TaskState.TASK_STATE_COMPLETED);
    bus.finished?.();
  }
}
const iface = (v) => ({ url: `http://127.0.0.1:${port}/`, protocolBinding: 'JSONRPC', tenant: '', protocolVersion: v });
const card = { name: 'bench', description: 'bench', version: '1', supportedInterfaces: [iface('1.0'), iface('0.3')],
  provider: undefined, capabilities: { streaming: true, pushNotifications: false, extensions: [], extendedAgentCard: false },
  securitySchemes: {}, securityRequirements: [], defaultInputModes: ['text'], defaultOutputModes: ['text'], skills: [],
  documentationUrl: '', signatures: [] };
const handler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Bench());
const app = express();
app.use(jsonRpcHandler({ requestHandler: handler, userBuilder: UserBuilder.noAuthentication, legacyCompat: { enabled: true } }));
app.listen(port, '127.0.0.1');
