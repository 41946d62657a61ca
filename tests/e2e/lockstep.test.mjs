// Two real nodes of one chain over set (b): lockstep anvils behind one front each, on a weighted Route.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { keccak256 } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { CHAIN_ID, KEYS } from './harness/anvil.mjs';
import { bytecode } from './harness/contract.mjs';
import { fronted } from './harness/fronted.mjs';
import { ask, post } from './harness/rpc.mjs';

const account = privateKeyToAccount(KEYS[0]);
const TO = '0x00000000000000000000000000000000000a11ce';
const BLOCKS = 8;

let chain, fronts, ringway, end;
const hashes = [];
const transactions = [];

before(async () => {
  ({ chain, fronts, ringway, end } = await fronted(2, ([x, y]) => ({
    endpoints: { x, y },
    route: { strategy: 'weighted', targets: [{ endpoint: 'x', weight: 3 }, { endpoint: 'y', weight: 1 }] },
  })));
});
after(() => end?.());

const sign = (nonce, body) =>
  account.signTransaction({
    type: 'eip1559', chainId: CHAIN_ID, nonce, gas: 500_000n,
    maxFeePerGas: 10n ** 10n, maxPriorityFeePerGas: 10n ** 9n, ...body,
  });
const quantity = (n) => `0x${n.toString(16)}`;

describe('set (b): two lockstep nodes on a weighted Route', () => {
  test('both nodes have the same chain, hash by hash', async () => {
    const [genesis, other] = await chain.everywhere('eth_getBlockByNumber', ['0x0', false]);
    assert.equal(genesis.hash, other.hash);
    hashes.push(genesis.hash);
    for (let n = 0; n < BLOCKS; n += 1) {
      const raw = await sign(n, n === 0 ? { data: bytecode } : { to: TO, value: BigInt(n) });
      const [x, y] = await chain.mine([raw]);
      assert.equal(x, y, `block ${n + 1}`);
      assert.ok(!hashes.includes(x));
      hashes.push(x);
      transactions.push(keccak256(raw));
    }
    const [receipt, same] = await chain.everywhere('eth_getTransactionReceipt', [transactions[0]]);
    assert.equal(receipt.status, '0x1');
    assert.deepEqual(receipt, same);
  });

  test('answers agree whichever node gives them, and traffic follows the weights', async (t) => {
    const from = fronts.map((front) => front.calls);
    const reads = 400;
    for (let i = 0; i < reads; i += 1) {
      const n = i % hashes.length;
      const block = await ask(ringway.url, 'eth_getBlockByNumber', [quantity(n), false]);
      assert.equal(block.hash, hashes[n]);
    }
    const [x, y] = fronts.map((front, i) => front.calls - from[i]);
    t.diagnostic(`x ${x}, y ${y}`);
    assert.equal(x + y, reads);
    // 400 draws at 3:1 are 300 ± 8.7; nine deviations leave no room for chance.
    assert.ok(x > 222 && x < 378, `x got ${x} of ${reads}`);
  });

  test('batches come back in order, each id with its own answer', async () => {
    const from = fronts.map((front) => front.calls);
    for (let round = 0; round < 60; round += 1) {
      const members = Array.from({ length: 24 }, (_, i) => {
        const n = (i * 5 + round) % hashes.length;
        const id = [i, `s-${i}`, 2 ** 53 - 1 - i, null][i % 4];
        return i % 3 === 2 && n > 0
          ? { id, method: 'eth_getTransactionReceipt', params: [transactions[n - 1]], hash: hashes[n] }
          : { id, method: 'eth_getBlockByNumber', params: [quantity(n), false], hash: hashes[n] };
      });
      const { status, text } = await post(
        ringway.url,
        JSON.stringify(members.map(({ id, method, params }) => ({ jsonrpc: '2.0', id, method, params }))),
      );
      assert.equal(status, 200);
      const answers = JSON.parse(text);
      assert.equal(answers.length, members.length);
      members.forEach(({ id, method, hash }, i) => {
        assert.equal(answers[i].id, id);
        const { result } = answers[i];
        assert.equal(method === 'eth_getBlockByNumber' ? result?.hash : result?.blockHash, hash, text);
      });
    }
    // A batch shares its first draw; 60 draws at 3:1 leave the lighter node out once in 30 million runs.
    fronts.forEach((front, i) => assert.ok(front.calls > from[i], `node ${i} took no part`));
  });

  test('a signed transaction reaches one node and is found there once', async () => {
    const raw = await sign(BLOCKS, { to: TO, value: 1n });
    assert.equal(await ask(ringway.url, 'eth_sendRawTransaction', [raw]), keccak256(raw));
    const pending = await chain.everywhere('eth_getTransactionByHash', [keccak256(raw)]);
    assert.equal(pending.filter((transaction) => transaction !== null).length, 1);
    const sent = fronts.map((front) => front.count('eth_sendRawTransaction'));
    assert.deepEqual(sent.sort(), [0, 1]);
  });
});
