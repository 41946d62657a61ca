// Transactions through a node that dies between acting and answering, over set (a): one anvil behind
// the fronts A (primary) and B. The chain itself is the witness: exactly one transaction each time.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { createWalletClient, http, keccak256 } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { foundry } from 'viem/chains';
import { KEYS } from './harness/anvil.mjs';
import { ask, call } from './harness/rpc.mjs';
import { stand } from './harness/stand.mjs';
import { until } from './harness/wait.mjs';

const account = privateKeyToAccount(KEYS[0]);
const TO = '0x00000000000000000000000000000000000a11ce';

let it;
beforeEach(async () => {
  it = undefined;
  it = await stand();
});
afterEach(() => it?.close());

/** The account's nonce at the node itself, pending transactions included. */
const nonce = async () =>
  Number(await ask(it.anvil.url, 'eth_getTransactionCount', [account.address, 'pending']));

/** The transactions of `account` in all blocks once the node has mined what it holds, asked at the node itself. */
async function onChain() {
  await until('an empty pool', async () => {
    const { pending, queued } = await ask(it.anvil.url, 'txpool_status');
    return Number(pending) + Number(queued) === 0;
  });
  const height = Number(await ask(it.anvil.url, 'eth_blockNumber'));
  const found = [];
  for (let n = 1; n <= height; n += 1) {
    const block = await ask(it.anvil.url, 'eth_getBlockByNumber', [`0x${n.toString(16)}`, true]);
    found.push(...block.transactions.filter((tx) => tx.from === account.address.toLowerCase()));
  }
  return found.map((tx) => tx.hash);
}

const sign = async () =>
  account.signTransaction({
    type: 'eip1559', chainId: foundry.id, nonce: await nonce(), to: TO, value: 1n, gas: 21_000n,
    maxFeePerGas: 10n ** 10n, maxPriorityFeePerGas: 10n ** 9n,
  });

const unlocked = () => ({ from: account.address, to: TO, value: '0x1', gas: '0x5208' });

describe('set (a): a signed transaction whose answer is lost', () => {
  test('is in the chain exactly once when the caller is bare', async (t) => {
    const raw = await sign();
    const before = await nonce();
    it.a.leaveUnanswered('eth_sendRawTransaction');
    const answer = await call(it.url, 'eth_sendRawTransaction', [raw]);
    t.diagnostic(
      `the caller saw HTTP ${answer.http.status} ${JSON.stringify(answer.result ?? answer.error)}; ` +
        `A ${it.a.count('eth_sendRawTransaction')}, B ${it.b.count('eth_sendRawTransaction')}`,
    );
    assert.equal(it.a.count('eth_sendRawTransaction'), 1);
    assert.deepEqual(await onChain(), [keccak256(raw)]);
    assert.equal(await nonce(), before + 1);
    assert.equal(answer.result, keccak256(raw), JSON.stringify(answer));
  });

  test('is in the chain exactly once when the caller is viem', async (t) => {
    const raw = await sign();
    const before = await nonce();
    it.a.leaveUnanswered('eth_sendRawTransaction');
    const wallet = createWalletClient({ chain: foundry, transport: http(it.url), account });
    const saw = await wallet.sendRawTransaction({ serializedTransaction: raw }).then(
      (hash) => hash,
      (error) => `${error.name}: ${error.details ?? error.shortMessage}`,
    );
    t.diagnostic(`viem saw ${saw}`);
    assert.deepEqual(await onChain(), [keccak256(raw)]);
    assert.equal(await nonce(), before + 1);
    assert.equal(saw, keccak256(raw));
  });
});

describe('set (a): eth_sendTransaction', () => {
  test('whose answer is lost ends as -32054 and is never sent again', async () => {
    const before = await nonce();
    it.a.leaveUnanswered('eth_sendTransaction');
    const answer = await call(it.url, 'eth_sendTransaction', [unlocked()]);
    assert.equal(answer.error?.code, -32054, JSON.stringify(answer));
    assert.equal(answer.error.data?.source, 'ringway');
    assert.equal(answer.error.data.attempts, 1);
    assert.equal(answer.http.status, 200);
    assert.equal(it.a.count('eth_sendTransaction'), 1);
    assert.equal(it.b.count('eth_sendTransaction'), 0);
    assert.equal((await onChain()).length, 1);
    assert.equal(await nonce(), before + 1);
  });

  test('whose answer is lost is not sent again by viem either', async () => {
    it.a.leaveUnanswered('eth_sendTransaction');
    const wallet = createWalletClient({
      chain: foundry, transport: http(it.url), account: account.address,
    });
    const wrong = await wallet
      .sendTransaction({ to: TO, value: 1n })
      .then((hash) => assert.fail(`a lost answer became ${hash}`), (error) => error);
    assert.equal(wrong.walk((error) => error.code === -32054)?.code, -32054, String(wrong));
    assert.equal(it.a.count('eth_sendTransaction') + it.b.count('eth_sendTransaction'), 1);
    assert.equal((await onChain()).length, 1);
  });

  test('goes to the other node when the first was never reached', async () => {
    await it.a.kill();
    const hash = await ask(it.url, 'eth_sendTransaction', [unlocked()]);
    assert.equal(it.a.count('eth_sendTransaction'), 0);
    assert.equal(it.b.count('eth_sendTransaction'), 1);
    assert.deepEqual(await onChain(), [hash]);
  });

  test('goes to the node once when its answer is merely slow', async () => {
    it.a.delay(1_000);
    const hash = await ask(it.url, 'eth_sendTransaction', [unlocked()]);
    assert.deepEqual(await onChain(), [hash]);
    assert.equal(it.b.count('eth_sendTransaction'), 0);
  });
});
