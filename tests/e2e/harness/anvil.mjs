// Real nodes: anvil processes on ports that the kernel chose.

import { createRequire } from 'node:module';
import { start } from './child.mjs';
import { ask } from './rpc.mjs';
import { until, within } from './wait.mjs';

/** The native binary of this platform (an optional dependency of the npm package `@foundry-rs/anvil`). */
function binary() {
  const arch = { x64: 'amd64', arm64: 'arm64' }[process.arch];
  const require = createRequire(import.meta.url);
  return require.resolve(`@foundry-rs/anvil-${process.platform}-${arch}/bin/anvil`);
}

/** The first three of anvil's well-known development keys; worthless everywhere else. */
export const KEYS = [
  '0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80',
  '0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d',
  '0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a',
];
export const CHAIN_ID = 31337;

/** Starts one anvil; `port`, `url`, `stop()`. */
export async function startAnvil(args = []) {
  let listening;
  const bound = new Promise((resolve) => (listening = resolve));
  const child = start('anvil', binary(), ['--host', '127.0.0.1', '--port', '0', ...args], {
    line(text) {
      const found = /^Listening on 127\.0\.0\.1:(\d+)/.exec(text);
      if (found) listening(Number(found[1]));
    },
  });
  const died = child.ended.then(({ code, signal }) => {
    throw new Error(`anvil ended at start: code ${code}, signal ${signal}, see ${child.log}`);
  });
  died.catch(() => {});
  const port = await within('anvil listening', 20_000, Promise.race([bound, died]));
  const url = `http://127.0.0.1:${port}/`;
  await until('anvil answering', () => ask(url, 'eth_chainId'), { deadline: 20_000 });
  return { port, url, stop: () => child.stop('SIGKILL') };
}
