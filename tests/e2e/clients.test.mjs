// viem and ethers as their users run them, through a Gateway over set (a): one anvil behind two fronts.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import * as ethers from 'ethers';
import {
  BaseError, ContractFunctionRevertedError, createPublicClient, createWalletClient, getAddress, http,
  parseEther, parseEventLogs,
} from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { foundry } from 'viem/chains';
import { CHAIN_ID, KEYS } from './harness/anvil.mjs';
import { abi, bytecode, refusedData } from './harness/contract.mjs';
import { ask } from './harness/rpc.mjs';
import { stand } from './harness/stand.mjs';

let it;
before(async () => { it = await stand(); });
after(() => it?.close());

const recipient = '0x00000000000000000000000000000000000a11ce';

describe('set (a): viem', () => {
  const account = privateKeyToAccount(KEYS[0]);
  const clients = (options) => {
    const transport = http(it.url, options);
    const shared = { chain: foundry, transport, pollingInterval: 50 };
    return [createPublicClient(shared), createWalletClient({ ...shared, account })];
  };

  test('reads a block as the node gives it', async () => {
    const [reader] = clients();
    const block = await reader.getBlock({ blockTag: 'latest' });
    const own = await ask(it.anvil.url, 'eth_getBlockByNumber', [`0x${block.number.toString(16)}`, false]);
    assert.equal(block.hash, own.hash);
    assert.equal(await reader.getChainId(), CHAIN_ID);
  });

  test('deploys a contract, calls it, writes to it, reads the event', async () => {
    const [reader, writer] = clients();
    const deployed = await reader.waitForTransactionReceipt({
      hash: await writer.deployContract({ abi, bytecode }),
    });
    assert.equal(deployed.status, 'success');
    const address = deployed.contractAddress;
    assert.equal(await reader.readContract({ address, abi, functionName: 'get' }), 0n);
    const value = 2n ** 200n + 7n;
    const receipt = await reader.waitForTransactionReceipt({
      hash: await writer.writeContract({ address, abi, functionName: 'set', args: [value] }),
    });
    const [stored] = parseEventLogs({ abi, logs: receipt.logs });
    assert.equal(stored.args.value, value);
    assert.equal(await reader.readContract({ address, abi, functionName: 'get' }), value);
  });

  test('sends a transaction signed here and waits for its receipt', async () => {
    const [reader, writer] = clients();
    const earlier = await reader.getBalance({ address: recipient });
    const hash = await writer.sendTransaction({ to: recipient, value: parseEther('1') });
    const receipt = await reader.waitForTransactionReceipt({ hash });
    assert.equal(receipt.transactionHash, hash);
    assert.equal(receipt.status, 'success');
    assert.equal((await reader.getBalance({ address: recipient })) - earlier, parseEther('1'));
  });

  test('batches over one POST, each answer to its own question', async () => {
    const bodies = [];
    const [reader] = clients({
      batch: { batchSize: 100, wait: 10 },
      onFetchRequest: (_, init) => void bodies.push(init.body),
    });
    const numbers = Array.from({ length: 40 }, (_, i) => BigInt(i + 1));
    // The identity precompile gives the call data back: every answer is known and different.
    const echoes = await Promise.all(
      numbers.map((n) => reader.call({ to: '0x0000000000000000000000000000000000000004', data: word(n) })),
    );
    assert.deepEqual(echoes.map((echo) => BigInt(echo.data)), numbers);
    assert.equal(bodies.length, 1);
    assert.equal(JSON.parse(bodies[0]).length, 40);
  });

  test('gets a revert with its data intact', async () => {
    const [reader, writer] = clients();
    const { contractAddress: address } = await reader.waitForTransactionReceipt({
      hash: await writer.deployContract({ abi, bytecode }),
    });
    const wrong = await reader
      .readContract({ address, abi, functionName: 'refuse', args: [77n] })
      .then(() => assert.fail('it must revert'), (error) => error);
    assert.ok(wrong instanceof BaseError, String(wrong));
    const revert = wrong.walk((error) => error instanceof ContractFunctionRevertedError);
    assert.equal(revert.data?.errorName, 'Refused');
    assert.deepEqual(revert.data.args, [77n]);
    assert.equal(revert.raw, refusedData(77n));
  });
});

describe('set (a): ethers', () => {
  const provide = () => {
    const provider = new ethers.JsonRpcProvider(it.url, undefined, { pollingInterval: 50 });
    return provider;
  };
  const withProvider = async (work) => {
    const provider = provide();
    try {
      // Another account than viem's, so that no test depends on another's nonce. The NonceManager is
      // there because ethers answers a repeated nonce question from its own cache for 250 ms.
      return await work(provider, new ethers.NonceManager(new ethers.Wallet(KEYS[1], provider)));
    } finally {
      provider.destroy();
    }
  };

  test('reads a block as the node gives it', () => withProvider(async (provider) => {
    const block = await provider.getBlock('latest');
    const own = await ask(it.anvil.url, 'eth_getBlockByNumber', [ethers.toQuantity(block.number), false]);
    assert.equal(block.hash, own.hash);
    assert.equal((await provider.getNetwork()).chainId, BigInt(CHAIN_ID));
  }));

  test('deploys a contract, calls it, writes to it, reads the event', () => withProvider(async (_, wallet) => {
    const factory = new ethers.ContractFactory(ethers.Interface.from(abi), bytecode, wallet);
    const contract = await (await factory.deploy()).waitForDeployment();
    assert.equal(await contract.get(), 0n);
    const receipt = await (await contract.set(123456789n)).wait();
    assert.equal(receipt.status, 1);
    assert.equal(receipt.logs[0].args.value, 123456789n);
    assert.equal(await contract.get(), 123456789n);
  }));

  test('sends a transaction signed here and waits for its receipt', () => withProvider(async (provider, wallet) => {
    const to = getAddress('0x00000000000000000000000000000000000b0b0b');
    const sent = await wallet.sendTransaction({ to, value: 5n });
    const receipt = await sent.wait();
    assert.equal(receipt.hash, sent.hash);
    assert.equal(await provider.getBalance(to), 5n);
  }));

  test('batches by default, each answer to its own question', () => withProvider(async (provider) => {
    const sizes = [];
    await provider.on('debug', ({ action, payload }) => {
      if (action === 'sendRpcPayload') sizes.push([payload].flat().length);
    });
    await provider.getNetwork();
    sizes.length = 0;
    const numbers = Array.from({ length: 60 }, (_, i) => BigInt(i + 1000));
    const echoes = await Promise.all(
      numbers.map((n) => provider.call({ to: '0x0000000000000000000000000000000000000004', data: word(n) })),
    );
    assert.deepEqual(echoes.map(BigInt), numbers);
    assert.ok(Math.max(...sizes) >= 50, `payload sizes ${sizes}`);
  }));

  test('gets a revert with its data intact', () => withProvider(async (_, wallet) => {
    const factory = new ethers.ContractFactory(ethers.Interface.from(abi), bytecode, wallet);
    const contract = await (await factory.deploy()).waitForDeployment();
    await assert.rejects(contract.refuse(78n), (error) => {
      assert.equal(error.code, 'CALL_EXCEPTION');
      assert.equal(error.data, refusedData(78n));
      assert.equal(error.revert?.name, 'Refused');
      assert.deepEqual([...error.revert.args], [78n]);
      return true;
    });
  }));
});

function word(n) {
  return `0x${n.toString(16).padStart(64, '0')}`;
}
