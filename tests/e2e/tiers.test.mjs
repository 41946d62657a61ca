// Real nodes on a tiered Route: lockstep anvils as a minimal, a full and an archive node, and what a re-org does.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createPublicClient, http } from 'viem';
import { CHAIN_ID, KEYS } from './harness/anvil.mjs';
import { fronted } from './harness/fronted.mjs';
import { ask, call } from './harness/rpc.mjs';
import { until } from './harness/wait.mjs';
import { privateKeyToAccount } from 'viem/accounts';

const RICH = privateKeyToAccount(KEYS[0]).address;
const quantity = (n) => `0x${n.toString(16)}`;
const IDS = ['geth', 'nethermind', 'erigon'];

let chain, fronts, ringway, end;

/** Calls of a method that each node got. */
const reached = (method) => fronts.map((front) => front.seen.get(method) ?? 0);
const standing = (id, word) => ringway.metric('ringway_endpoint_standing', `endpoint="${id}"`, `standing="${word}"`);
/** Until the gateway says so of each node. */
const settled = (words) =>
  until(`nodes ${words}`, async () => {
    const all = await Promise.all(IDS.map((id, at) => standing(id, words[at])));
    return all.every((is) => is === 1);
  });
const tip = (number) =>
  until(`tip ${number}`, async () => {
    const tips = await Promise.all(IDS.map((id) => ringway.metric('ringway_endpoint_tip', `endpoint="${id}"`)));
    return tips.every((known) => known === number);
  });

before(async () => {
  ({ chain, fronts, ringway, end } = await fronted(3, async ([geth, nethermind, erigon], chain) => {
    // More than the 128 states of a minimal node.
    for (let n = 0; n < 140; n += 1) await chain.mine();
    return {
      network: { chain_id: CHAIN_ID, poll_interval: '50ms' },
      endpoints: {
        geth: { url: geth, tier: 'minimal', client: 'Geth/v1.15.0' },
        nethermind: { url: nethermind, tier: 'full', client: 'Nethermind/v1.30.0' },
        erigon: { url: erigon, tier: 'archive', client: 'erigon/3.0.0' },
      },
      route: { strategy: 'tiered' },
    };
  }));
  await settled(['fresh', 'fresh', 'fresh']);
});
after(() => end?.());

describe('lockstep nodes on a tiered Route', () => {
  test('each Call goes to the cheapest that has what it asks for', async () => {
    for (let n = 0; n < 50; n += 1) {
      assert.ok(await ask(ringway.url, 'eth_getBalance', [RICH, 'latest']));
      assert.ok(await ask(ringway.url, 'eth_getCode', [RICH, quantity(1)]));
      assert.ok(await ask(ringway.url, 'eth_getBlockReceipts', [quantity(5)]));
      assert.equal(await ask(ringway.url, 'ots_getApiLevel'), 8);
    }
    assert.deepEqual(reached('eth_getBalance'), [50, 0, 0], 'the newest state');
    assert.deepEqual(reached('eth_getCode'), [0, 0, 50], 'an old state');
    assert.deepEqual(reached('eth_getBlockReceipts'), [0, 50, 0], 'an old block');
    assert.deepEqual(reached('ots_getApiLevel'), [0, 0, 50], 'what only Erigon has');
  });

  test('what nobody has is refused, and no node is asked', async () => {
    const { error } = await call(ringway.url, 'zks_L1ChainId');
    assert.equal(error.code, -32601);
    assert.equal(error.data.reason, 'capability');
    assert.deepEqual(reached('zks_L1ChainId'), [0, 0, 0]);
  });

  test('a client library reads through it', async () => {
    const client = createPublicClient({ transport: http(ringway.url) });
    const [block, balance] = [await client.getBlock(), await client.getBalance({ address: RICH })];
    assert.equal(block.number, 140n);
    assert.ok(balance > 0n);
    assert.equal((await client.getBlock({ blockNumber: 3n })).number, 3n);
  });

  test('nothing of a fork is delivered, and a re-org of all is followed and counted', async () => {
    const marks = await chain.everywhere('evm_snapshot', []);
    for (let n = 0; n < 2; n += 1) await chain.mine();
    await tip(142);
    const old = await ask(chain.nodes[0].url, 'eth_getBlockByNumber', ['0x8d', false]);
    // The minimal node alone leaves, and stays behind: it is on a fork now.
    const alone = chain.nodes[0].url;
    assert.equal(await ask(alone, 'evm_revert', [marks[0]]), true);
    // A mark is used up by its use.
    marks[0] = await ask(alone, 'evm_snapshot');
    await ask(alone, 'evm_setNextBlockTimestamp', [1_700_400_000]);
    await ask(alone, 'evm_mine');
    await settled(['fork', 'fresh', 'fresh']);
    const before = reached('eth_getBalance')[0];
    for (let n = 0; n < 500; n += 1) {
      const block = await ask(ringway.url, 'eth_getBlockByNumber', [n % 2 ? 'latest' : '0x8d', false]);
      if (block.number === '0x8d') assert.equal(block.hash, old.hash);
      await ask(ringway.url, 'eth_getBalance', [RICH, 'latest']);
    }
    assert.equal(reached('eth_getBalance')[0], before, 'it is not asked');
    assert.ok((await ringway.metric('ringway_tier_fallbacks_total', 'from="minimal"', 'reason="fork"')) >= 500);
    // All leave, and end higher than before: the old branch is abandoned.
    const reorgs = await ringway.metric('ringway_reorgs_total');
    for (const [at, node] of chain.nodes.entries()) assert.equal(await ask(node.url, 'evm_revert', [marks[at]]), true);
    let time = 1_700_500_000;
    for (let n = 0; n < 4; n += 1) {
      time += 12;
      await chain.everywhere('evm_setNextBlockTimestamp', [time]);
      // What the next block costs does not go back with a revert.
      await chain.everywhere('anvil_setNextBlockBaseFeePerGas', ['0x7']);
      await chain.everywhere('evm_mine', []);
    }
    await tip(144);
    await settled(['fresh', 'fresh', 'fresh']);
    const hashes = await chain.everywhere('eth_getBlockByNumber', ['0x8d', false]);
    assert.ok(hashes.every(({ hash }) => hash === hashes[0].hash && hash !== old.hash));
    for (let n = 0; n < 500; n += 1) {
      const block = await ask(ringway.url, 'eth_getBlockByNumber', ['0x8d', false]);
      assert.equal(block.hash, hashes[0].hash);
    }
    assert.ok((await ringway.metric('ringway_reorgs_total')) > reorgs);
    assert.equal(await ringway.metric('ringway_fork_unresolved_total'), 0);
  });
});
