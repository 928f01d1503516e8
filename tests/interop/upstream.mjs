// The official TypeScript clients, and through the node other people's MCP servers.
// Usage: upstream.mjs (sdk | client) URL MODE
import assert from 'node:assert/strict';

const [kind, url, mode] = process.argv.slice(2);
const options = { requestInit: { headers: { Authorization: `Bearer ${process.env.AEGIS_TEST_TOKEN}` } } };
let client;
if (kind === 'sdk') {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
  client = new Client({ name: 'interop', version: '1' });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), options));
} else {
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const negotiation = mode === 'legacy' ? {} : { versionNegotiation: { mode: { pin: mode } } };
  client = new Client({ name: 'interop', version: '1' }, negotiation);
  await client.connect(new StreamableHTTPClientTransport(new URL(url), options));
}

const tools = (await client.listTools()).tools.map((tool) => tool.name);
for (const name of ['everything.echo', 'filesystem.list_directory', 'memory.read_graph', 'git.git_status']) {
  assert(tools.includes(name), `${name} is not in ${tools}`);
}
const echoed = await client.callTool({ name: 'everything.echo', arguments: { message: 'from typescript' } });
assert.match(echoed.content[0].text, /from typescript/);

const resources = (await client.listResources()).resources.map((resource) => resource.uri);
const document = 'demo://resource/static/document/features.md';
assert(resources.includes(document), `${resources}`);
assert((await client.readResource({ uri: document })).contents[0].text.length > 0);

const prompts = (await client.listPrompts()).prompts.map((prompt) => prompt.name);
assert(prompts.includes('everything.simple-prompt'), `${prompts}`);
const prompt = await client.getPrompt({ name: 'everything.simple-prompt' });
assert(prompt.messages.length > 0);

const heard = [];
const slow = { name: 'everything.trigger-long-running-operation', arguments: { duration: 1, steps: 4 } };
const onprogress = (progress) => heard.push(progress.progress);
const done = kind === 'sdk'
  ? await client.callTool(slow, undefined, { onprogress })
  : await client.callTool(slow, { onprogress });
assert(!done.isError && heard.length >= 3, `${heard}`);

const never = { name: 'everything.trigger-long-running-operation', arguments: { duration: 60, steps: 6 } };
const giveUp = { signal: AbortSignal.timeout(500) };
await assert.rejects(kind === 'sdk' ? client.callTool(never, undefined, giveUp) : client.callTool(never, giveUp));
const again = await client.callTool({ name: 'everything.echo', arguments: { message: 'still here' } });
assert.match(again.content[0].text, /still here/);
await client.close();
