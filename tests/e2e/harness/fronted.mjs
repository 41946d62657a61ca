// Lockstep nodes behind a front each, and a gateway before them, which end together.

import assert from 'node:assert/strict';
import { Front } from './front.mjs';
import { lockstep } from './lockstep.mjs';
import { startRingway } from './ringway.mjs';

/** `configure` is given the fronts' URLs and the chain, and says what the gateway is started with. */
export const fronted = async (nodes, configure) => {
  const chain = await lockstep(nodes);
  const fronts = await Promise.all(chain.nodes.map((node) => Front.before(node.port)));
  const below = () => Promise.all([...fronts.map((front) => front.close()), chain.stop()]);
  let ringway;
  try {
    ringway = await startRingway(await configure(fronts.map((front) => front.url), chain));
  } catch (error) {
    await below();
    throw error;
  }
  const end = async () => {
    try {
      await ringway.stop();
    } finally {
      await below();
    }
    assert.deepEqual(fronts.flatMap((front) => front.faults), []);
  };
  return { chain, fronts, ringway, end };
};
