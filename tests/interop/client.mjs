// The official TypeScript clients against a node. Usage: client.mjs (sdk|client) (http URL | stdio COMMAND…) MODE
import assert from 'node:assert/strict';

const [flavour, kind, ...rest] = process.argv.slice(2);
const mode = rest.pop();
const { Client, Http, Stdio, options } = await load(flavour, mode);

async function load(flavour, mode) {
  if (flavour === 'sdk') {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport: Http } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const { StdioClientTransport: Stdio } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    return { Client, Http, Stdio, options: {} };
  }
  const { Client, StreamableHTTPClientTransport: Http } = await import('@modelcontextprotocol/client');
  const { StdioClientTransport: Stdio } = await import('@modelcontextprotocol/client/stdio');
  return { Client, Http, Stdio, options: mode === 'legacy' ? {} : { versionNegotiation: { mode: { pin: '2026-07-28' } } } };
}

const transport = kind === 'stdio'
  ? new Stdio({ command: rest[0], args: rest.slice(1), env: process.env })
  : new Http(new URL(rest[0]), { requestInit: { headers: { Authorization: `Bearer ${process.env.AEGIS_TEST_TOKEN}` } } });
const client = new Client({ name: 'interop', version: '1' }, options);
await client.connect(transport);

const { tools } = await client.listTools();
const names = tools.map((tool) => tool.name);
assert(names.includes('fs.read') && !names.includes('aegis.system.info'), names.join());

const wrote = await client.callTool({ name: 'fs.write', arguments: { path: 'ts.txt', content: 'from typescript' } });
assert.equal(wrote.structuredContent.bytes_written, 15);
const read = await client.callTool({ name: 'fs.read', arguments: { path: 'ts.txt' } });
assert.equal(read.structuredContent.content, 'from typescript');
assert.equal(read._meta['aegis/label'].trust, 'EXTERNAL_UNTRUSTED');
const found = await client.callTool({ name: 'fs.glob', arguments: { pattern: 'ts.*', path: '.' } });
assert.equal(found.content[0].text, 'ts.txt');
const missing = await client.callTool({ name: 'fs.read', arguments: { path: 'nowhere' } });
assert(missing.isError && missing.content[0].text.includes('NOT_FOUND'));
const wrong = await client.callTool({ name: 'fs.read', arguments: { pth: 'x' } });
assert(wrong.isError && wrong.content[0].text.includes("required field 'path'"));
for (const [name, args] of [['fs.read', { path: '../x' }], ['aegis.system.info', {}], ['no.such', {}]]) {
  await assert.rejects(client.callTool({ name, arguments: args }), undefined, `${name} was not refused`);
}
if (transport.terminateSession) await transport.terminateSession();
await client.close();
