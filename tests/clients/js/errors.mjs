// Ask for tasks that cannot be read with the official @a2a-js/sdk 1.x client; print what it throws.
// Usage, in the folder that has node_modules: node errors.mjs BASE_URL BINDING TASK_ID...
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.cwd(), 'package.json'));
const { ClientFactory, ClientFactoryOptions } = require('@a2a-js/sdk/client');

const [baseUrl, binding, ...taskIds] = process.argv.slice(2);
const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  preferredTransports: [binding],
});
const client = await new ClientFactory(options).createFromUrl(baseUrl);
const report = {};
for (const id of taskIds) {
  try {
    await client.getTask({ tenant: '', id });
    report[id] = null;
  } catch (error) {
    report[id] = error.name === 'Error' ? error.constructor.name : error.name;
  }
}
console.log(JSON.stringify(report));
