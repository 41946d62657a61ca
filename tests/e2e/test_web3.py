"""web3.py as its users run it, through a Gateway over set (a): one anvil behind two fronts.

The stand (node, fronts, Ringway) is the one of the JavaScript tests: `harness/stand.mjs`.
"""

import json
import pathlib
import subprocess

import pytest
from web3 import Web3
from web3.exceptions import ContractCustomError

HERE = pathlib.Path(__file__).parent
RECIPIENT = Web3.to_checksum_address("0x00000000000000000000000000000000000c0ffe")


@pytest.fixture(scope="module")
def stand():
    program = subprocess.Popen(
        ["node", str(HERE / "harness" / "stand.mjs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    line = program.stdout.readline()
    assert line, "the stand did not come up; its error is above"
    yield json.loads(line)
    program.stdin.close()
    assert program.wait(timeout=20) == 0, "the stand did not end well"


@pytest.fixture
def w3(stand):
    return Web3(Web3.HTTPProvider(stand["url"]))


@pytest.fixture
def account(stand, w3):
    return w3.eth.account.from_key(stand["keys"][2])


def send(w3, account, transaction):
    """Signs here, sends, waits for the receipt."""
    transaction = {
        "from": account.address,
        "nonce": w3.eth.get_transaction_count(account.address),
        "chainId": w3.eth.chain_id,
        "maxFeePerGas": 10**10,
        "maxPriorityFeePerGas": 10**9,
        **transaction,
    }
    transaction.setdefault("gas", w3.eth.estimate_gas(transaction))
    signed = account.sign_transaction(transaction)
    sent = w3.eth.send_raw_transaction(signed.raw_transaction)
    assert sent == signed.hash
    return w3.eth.wait_for_transaction_receipt(sent, timeout=10, poll_latency=0.05)


@pytest.fixture
def contract(stand, w3, account):
    factory = w3.eth.contract(abi=stand["abi"], bytecode=stand["bytecode"])
    receipt = send(w3, account, {"data": factory.constructor().data_in_transaction})
    assert receipt["status"] == 1
    return w3.eth.contract(address=receipt["contractAddress"], abi=stand["abi"])


def test_reads_a_block_as_the_node_gives_it(stand, w3):
    block = w3.eth.get_block("latest")
    own = Web3(Web3.HTTPProvider(stand["node"])).eth.get_block(block["number"])
    assert block == own
    assert w3.eth.chain_id == stand["chainId"]
    assert w3.is_connected()


def test_deploys_a_contract_calls_it_writes_to_it_reads_the_event(w3, account, contract):
    assert contract.functions.get().call() == 0
    data = contract.encode_abi("set", args=[2**255 + 1])
    receipt = send(w3, account, {"to": contract.address, "data": data})
    (stored,) = contract.events.Stored().process_receipt(receipt)
    assert stored["args"]["value"] == 2**255 + 1
    assert contract.functions.get().call() == 2**255 + 1


def test_sends_a_signed_transaction_and_waits_for_its_receipt(w3, account):
    earlier = w3.eth.get_balance(RECIPIENT)
    receipt = send(w3, account, {"to": RECIPIENT, "value": 9})
    assert receipt["status"] == 1
    assert w3.eth.get_balance(RECIPIENT) - earlier == 9


def test_batch_requests_come_back_in_order(w3):
    numbers = list(range(500, 540))
    with w3.batch_requests() as batch:
        for number in numbers:
            call = {"to": "0x0000000000000000000000000000000000000004", "data": f"0x{number:064x}"}
            batch.add(w3.eth.call(call))
        answers = batch.execute()
    assert [int.from_bytes(answer) for answer in answers] == numbers


def test_a_revert_arrives_with_its_data_intact(contract):
    with pytest.raises(ContractCustomError) as caught:
        contract.functions.refuse(79).call()
    selector = Web3.keccak(text="Refused(uint256)")[:4]
    assert caught.value.data == Web3.to_hex(selector + (79).to_bytes(32))
