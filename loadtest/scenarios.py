"""The scenarios: what each one asks, and what Ringway is to reach in it."""

import dataclasses
import statistics

import figures
from proxies import FLOOR, HEALTHY, PROXIES, SHARED, TWO

CPU, CORE, P99 = "CPU µs/request", "core µs/request", "p99 µs"
ALL = (*PROXIES, FLOOR)


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Settings of a run; options of `compare` take precedence."""

    what: str
    connections: int = 64
    size: int = 120
    # Requests a second; 0 = closed loop.
    rate: int = 0
    # In place of a rate: this share of what the slowest proxy serves in a closed loop, found first.
    share: float = None
    batch: int = 1
    mix: bool = False
    # Where the requests go: see proxies.Upstreams.
    kind: str = "one"
    only: tuple = ALL
    # One core for the proxy and one for load and upstream; or else all free to use all.
    pinned: bool = True
    # What a reader must know of the comparison.
    note: str = None


FAULT_RATE = 0.01
STALL_RATE, STALL_MS = 0.0002, 50

SCENARIOS = {
    "small-64": Scenario("120 bytes, 64 connections, closed loop: the plain case"),
    "small-1": Scenario("120 bytes, one connection, closed loop: each request pays its own wake-ups", connections=1),
    "small-256": Scenario("120 bytes, 256 connections, closed loop", connections=256),
    "small-1000": Scenario("120 bytes, 1,000 connections, closed loop", connections=1000),
    "fixed-20000": Scenario("120 bytes, 64 connections, 20,000/s", rate=20000),
    "one-fixed": Scenario(
        "120 bytes, one connection, 2,000/s: idle between requests, so that every wait is paid",
        connections=1, rate=2000,
    ),
    "small-30pct": Scenario("120 bytes, 64 connections, at 30 % of what the slowest proxy can", share=0.3),
    "small-60pct": Scenario("120 bytes, 64 connections, at 60 % of what the slowest proxy can", share=0.6),
    "half": Scenario("latency at half of what the slowest proxy can; 120 bytes, 64 connections", share=0.5),
    # Fewer connections where answers are large: enough to keep the proxy's core busy while an answer is checked, few
    # enough that what is under way (connections × size) stays within the sockets' buffers and the caches.
    "2k": Scenario("2,000 bytes, 64 connections, closed loop", size=2000),
    "100k": Scenario("100 KB like eth_getLogs, 16 connections, closed loop", size=100_000, connections=16),
    "1m": Scenario("1 MB, 8 connections, closed loop", size=1_000_000, connections=8),
    "batch-20": Scenario(
        "20 Calls in one body, 64 connections, closed loop; a request is a whole batch", batch=20,
        note="This is not the same work: the rivals and the relay carry one body to the upstream, which answers it "
             "whole, while Ringway asks 20 single requests, routes and checks each, and joins their answers. 20 "
             "upstream requests against 1.",
    ),
    "mix": Scenario(
        "methods and sizes as on Ethereum's main network, 64 connections, closed loop", mix=True,
        note="Shares and sizes are those of `loadtest/src/mixture.rs`, drawn from the requests' numbers and keys: each "
             "proxy gets the same sequence. eth_chainId and eth_blockNumber carry no mark: of their answers the id and "
             "the form are checked.",
    ),
    "dead-one": Scenario(
        "two servers, the first refuses connections; 120 bytes, 64 connections, 10,000/s", rate=10000, kind="dead",
        only=(*PROXIES, HEALTHY),
        note=f"`{HEALTHY}` is Ringway in the same rounds with both servers alive. HAProxy checks its servers each "
             "second and redispatches; nginx leaves a server alone for 10 s after a failure and asks the next one.",
    ),
    "faults": Scenario(
        f"two servers that answer {100 * FAULT_RATE:g} % of requests with 503, each proxy retries; 120 bytes, "
        "64 connections, 10,000/s", rate=10000, kind="faults", only=tuple(PROXIES),
        note="Answers with a fault that reached the caller are counted, not held against the round.",
    ),
    "slow-one": Scenario(
        f"one answer of {1 / STALL_RATE:,.0f} takes {STALL_MS} ms longer: who waits behind it; 120 bytes, "
        "64 connections, 20,000/s", rate=20000, kind="slow", only=("ringway", "haproxy", FLOOR, *SHARED),
        note="`relay-shared-N` pipelines the requests of all callers on N upstream connections "
             "([sharing.md](../sharing.md)).",
    ),
    "two-shards": Scenario(
        "two shards against one, 10,000/s in all; 120 bytes, 64 connections", rate=10000, only=("ringway", TWO),
        pinned=False,
        note="Neither the proxy nor load and upstream are kept to a core. Ringway itself keeps each shard to a core: "
             "one shard to the first, two to both. So load and upstream run beside either, and the core's time, which "
             "would hold them too, is not told. On two cores both shards wait for the load now and then, where the "
             "scheduler may spare the single one that: who waits finds more at once and spends less on each "
             "(*CPU wait*). A ratio below 1 is most likely that, not a gain by shards.",
    ),
}


@dataclasses.dataclass(frozen=True)
class Goal:
    """What the median of a figure is to reach: `gate` at least, `aim` at best."""

    one: str
    other: str
    gate: float
    aim: float = None
    metric: str = CPU
    # Of `one` over `other`, at least so much; or else at most.
    at_least: bool = True
    # The figure is one's surplus over gate × other, in µs, in place of a ratio, and may be this large.
    surplus: float = None

    def values(self, rows, metric=None):
        """The figure, round by round."""
        metric = metric or self.metric
        if self.surplus is None:
            return figures.ratios(rows, self.one, self.other, metric)
        return [mine - self.gate * theirs for mine, theirs in figures.pairs(rows, self.one, self.other, metric)]

    def text(self):
        if self.surplus is not None:
            figure = self.metric.removesuffix(" µs")
            return f"{figure} of {self.one} ≤ {self.gate:g} × {self.other}'s + {self.surplus:g} µs"
        sign = "≥" if self.at_least else "≤"
        aim = f" (gate), {sign} {self.aim:g} (aim)" if self.aim is not None else ""
        figure = self.metric.removesuffix(" µs").removesuffix(" µs/request")
        return f"{figure}: {self.one} ÷ {self.other} {sign} {self.gate:g}{aim}"

    def verdict(self, values):
        """Where the median stands: met (the aim, or the gate where there is no other), gate, missed, not measured."""
        if not values:
            return "not measured"
        median = statistics.median(values)
        if self.surplus is not None:
            return "met" if median <= self.surplus else "missed"
        reaches = (lambda bar: median >= bar) if self.at_least else (lambda bar: median <= bar)
        if reaches(self.gate if self.aim is None else self.aim):
            return "met"
        return "gate" if reaches(self.gate) else "missed"


def rivals(gate, aim):
    """Both rivals' CPU time over Ringway's."""
    return [Goal("haproxy", "ringway", gate, aim), Goal("nginx", "ringway", gate, aim)]


GOALS = {
    "small-64": [*rivals(1.35, 1.55), Goal("ringway", FLOOR, 1.25, 1.12, at_least=False)],
    "small-256": rivals(1.5, 1.8),
    "small-1000": rivals(1.5, 1.8),
    "fixed-20000": rivals(1.0, 1.15),
    "small-1": rivals(1.0, 1.15),
    "one-fixed": rivals(1.0, 1.15),
    "100k": [Goal("haproxy", "ringway", 1.05, 1.3), Goal("nginx", "ringway", 0.95, 1.1)],
    "1m": [Goal("haproxy", "ringway", 1.0, 1.2)],
    "half": [Goal("ringway", "haproxy", 1.2, metric=P99, surplus=50.0)],
    "two-shards": [Goal(TWO, "ringway", 1.05, at_least=False)],
    "dead-one": [Goal("ringway", HEALTHY, 1.2, metric=P99, at_least=False)],
}


def goals(name, rows):
    """The table of a scenario's goals and where the rounds stand; none if it has no goal."""
    if name not in GOALS:
        return None
    lines = []
    for goal in GOALS[name]:
        values, digits = goal.values(rows), 0 if goal.surplus is not None else 3
        whole = goal.values(rows, CORE) if goal.metric == CPU else []
        lines.append([
            goal.text(), figures.spread(values, digits), f"**{goal.verdict(values)}**",
            figures.spread(whole, digits), goal.verdict(whole) if goal.metric == CPU else "-",
        ])
    header = ["goal", "measured", "goal met?", "by the core's time", "and then?"]
    return figures.table(header, lines)
