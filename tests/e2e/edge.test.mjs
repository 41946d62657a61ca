// What a caller sees on the wire, compared byte for byte: ids, errors of the node, batches, closed namespaces.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { refuseCall, refusedData, bytecode } from './harness/contract.mjs';
import { ask, call, post } from './harness/rpc.mjs';
import { stand } from './harness/stand.mjs';
import { until } from './harness/wait.mjs';

let it;
before(async () => { it = await stand({ gateway: { expose: ['anvil'] } }); });
after(() => it?.close());

// Every one is legal JSON for an id, and most are what some JSON library would spoil.
const IDS = [
  '0', '1', '-1', '-0', '1.5', '1.50', '1e3', '1E+3', '9007199254740993', '18446744073709551615',
  '18446744073709551616', '1234567890123456789012345678901234567890', '1e999', '""', '"1"',
  '"a\\u0041\\n\\"\\/é"', '"\\ud800"', '"3f2b1c9e-7f1d-4f0c-9a55-0d2f6d1b7a10"', 'null',
];

describe('set (a): the envelope', () => {
  test('an id comes back byte for byte, whatever it is', async () => {
    for (const id of IDS) {
      const { status, text } = await post(
        it.url,
        `{"jsonrpc":"2.0","id":${id},"method":"eth_chainId","params":[]}`,
      );
      assert.equal(status, 200, id);
      assert.equal(text, `{"jsonrpc":"2.0","id":${id},"result":"0x7a69"}`);
    }
  });

  test('a batch keeps order and ids, equal ones and odd ones', async () => {
    const ids = [...IDS, ...IDS];
    const members = ids.map(
      (id, i) => `{"jsonrpc":"2.0","id":${id},"method":"eth_call","params":[${echo(i)},"latest"]}`,
    );
    const { status, text } = await post(it.url, `[${members.join(',')}]`);
    assert.equal(status, 200);
    const answers = ids.map((id, i) => `{"jsonrpc":"2.0","id":${id},"result":"${word(i)}"}`);
    assert.equal(text, `[${answers.join(',')}]`);
  });

  test('a revert and a refusal of the node go out unchanged', async () => {
    const { to } = await deploy();
    const questions = [
      `"method":"eth_call","params":[{"to":"${to}","data":"${refuseCall(5n)}"},"latest"]`,
      `"method":"eth_estimateGas","params":[{"to":"${to}","data":"${refuseCall(6n)}"}]`,
      `"method":"eth_call","params":[{"to":"not an address"},"latest"]`,
      `"method":"eth_sendRawTransaction","params":["0xdeadbeef"]`,
    ];
    for (const question of questions) {
      const body = `{"jsonrpc":"2.0","id":7,${question}}`;
      const own = await post(it.anvil.url, body);
      const through = await post(it.url, body);
      assert.equal(through.status, 200);
      assert.equal(errorBytes(through.text), errorBytes(own.text));
    }
    const { error } = await call(it.url, 'eth_call', [{ to, data: refuseCall(5n) }, 'latest']);
    assert.equal(error.data, refusedData(5n));
  });

  test('a namespace is closed until `expose` names it', async () => {
    const closed = await call(it.url, 'evm_mine');
    assert.equal(closed.error?.code, -32601);
    assert.equal(closed.error.data?.source, 'ringway');
    assert.equal(it.a.count('evm_mine') + it.b.count('evm_mine'), 0);
    const height = Number(await ask(it.url, 'eth_blockNumber'));
    await ask(it.url, 'anvil_mine', ['0x2']);
    assert.equal(Number(await ask(it.url, 'eth_blockNumber')), height + 2);
  });

  test('the primary takes everything while it is well', () => {
    assert.ok(it.a.calls > 0);
    assert.equal(it.b.calls, 0);
  });
});

/** The contract of harness/contract.mjs, deployed at the node itself. */
async function deploy() {
  const [from] = await ask(it.anvil.url, 'eth_accounts');
  const hash = await ask(it.anvil.url, 'eth_sendTransaction', [{ from, data: bytecode }]);
  const receipt = await until('receipt', () => ask(it.anvil.url, 'eth_getTransactionReceipt', [hash]));
  return { to: receipt.contractAddress };
}

/** An answer's `error` member as bytes. */
function errorBytes(text) {
  const at = text.indexOf('"error":');
  assert.ok(at > 0, text);
  return text.slice(at, text.lastIndexOf('}'));
}

function word(n) {
  return `0x${n.toString(16).padStart(64, '0')}`;
}

function echo(n) {
  return `{"to":"0x0000000000000000000000000000000000000004","data":"${word(n)}"}`;
}
