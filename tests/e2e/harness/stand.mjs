// Node set (a): one anvil behind the fronts A and B, so that two Endpoints are the same chain, and
// Ringway before them. Run as a program, it is the same for clients that are not JavaScript.

import { pathToFileURL } from 'node:url';
import { CHAIN_ID, KEYS, startAnvil } from './anvil.mjs';
import { abi, bytecode } from './contract.mjs';
import { Front } from './front.mjs';
import { startRingway } from './ringway.mjs';

/** With E2E_DIRECT=1 clients talk to front A without a gateway: it tells a fault of a test from one of Ringway. */
export const DIRECT = process.env.E2E_DIRECT === '1';

/** Builds set (a); `setup` goes to `startRingway`. What is up already goes down again if the rest fails. */
export async function stand(setup = {}) {
  const anvil = await startAnvil();
  const a = await Front.before(anvil.port);
  const b = await Front.before(anvil.port);
  const below = () => Promise.all([a.close(), b.close(), anvil.stop()]);
  let ringway = { url: a.url, stop: async () => {} };
  if (!DIRECT) {
    try {
      ringway = await startRingway({ endpoints: { a: a.url, b: b.url }, ...setup });
    } catch (error) {
      await below();
      throw error;
    }
  }
  return {
    anvil,
    a,
    b,
    ringway,
    url: ringway.url,
    /** Ends everything; a request that a front could not read fails the test here. */
    async close() {
      try {
        await ringway.stop();
      } finally {
        await below();
      }
      const faults = [...a.faults, ...b.faults];
      if (faults.length > 0) throw new Error(`fronts could not read: ${faults.join('; ')}`);
    },
  };
}

// As a program: one line of JSON once all is up, everything down when stdin ends.
if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const it = await stand();
  process.stdout.write(
    `${JSON.stringify({ url: it.url, node: it.anvil.url, direct: DIRECT, chainId: CHAIN_ID, keys: KEYS, abi, bytecode })}\n`,
  );
  process.stdin.resume();
  process.stdin.on('end', async () => {
    await it.close();
    process.exit(0);
  });
}
