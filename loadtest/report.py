"""The Markdown of a run, and the overview over all scenarios that lie in one folder."""

import datetime
import json
import os
import platform
import shlex
import statistics
import sys

import cores
import figures
import proxies
import scenarios
import tls
from processes import commit, cpu_model, version, without_folder

LEGEND = (
    "- Medians (least..most). Ratios are taken inside each round. CPU is the scheduler's count over all threads of the "
    "proxy, in the measured window only; core is all time of the proxy's core, interrupts included, less what it is "
    "busy with when nothing runs; CPU wait is time ready without a core: other load."
)


def command():
    return shlex.join(["loadtest/compare", *(without_folder(word) for word in sys.argv[1:])])


def command_of(name):
    """The command for one scenario alone, whatever the list in which it ran."""
    words = [without_folder(word) for word in sys.argv[1:]]
    for at, word in enumerate(words):
        if word == "--scenario":
            words[at + 1] = name
        elif word.startswith("--scenario="):
            words[at] = f"--scenario={name}"
    return shlex.join(["loadtest/compare", *words])


def mode(args):
    text = "closed loop (saturated)" if not args.rate else f"open loop at {args.rate}/s"
    if args.tls:
        text += ", TLS on both sides"
    if args.handshakes:
        text += f", a new connection and a {args.handshakes} handshake for each request"
    return text


def work(args):
    """What is asked, in words."""
    size = "results of a mix" if args.mix else f"results of {args.size} bytes"
    batch = f", {args.batch} Calls in each request" if args.batch > 1 else ""
    return f"{args.connections} connection{'s' if args.connections > 1 else ''}, {size}{batch}"


def places(args):
    """Who runs where."""
    if not args.pinned:
        return f"proxy, load and upstream on cores {args.proxy_core} and {args.load_core} as they like"
    return f"proxy on core {args.proxy_core}, load and upstream on core {args.load_core}"


def head(bench, kept):
    """Command, machine, work, versions."""
    args = bench.args
    name = args.scenario_name
    versions = [
        f"{one}: {version(one, bench.programs[one])}" for one in bench.names if one not in (proxies.HEALTHY, proxies.TWO)
    ]
    lines = [
        f"- Command: `{command_of(name) if name else command()}`, seed {args.seed}",
        f"- {datetime.date.today()}, commit {commit()}, Linux {platform.release()}, {cpu_model()}, "
        f"{os.cpu_count()} CPUs; {places(args)}",
        f"- {work(args)}, {mode(args)}, {args.rounds} round{'' if args.rounds == 1 else 's'} of {args.seconds:g} s "
        f"after {args.warmup:g} s of warm-up, order shuffled in each round ({kept}); "
        f"the proxy's core was {100 * bench.idle:.1f} % busy before they began; "
        f"load of the machine at the end (1, 5, 15 min): {' '.join(f'{one:.1f}' for one in os.getloadavg())}",
        "- " + "; ".join(versions),
        LEGEND,
    ]
    if bench.idle > cores.QUIET_MAX:
        lines.append("- **Not quiet:** other work ran on the proxy's core: what is said of its time is worth little")
    if bench.probed:
        said = ", ".join(f"{one} {rate:.0f}/s" for one, rate in bench.probed.items())
        of = f"{100 * args.share:g} % of the slowest in a closed loop of {args.probe_s:g} s"
        lines.append(f"- The rate is {of}: {said}")
    return lines


def per_call(rows, names, batch):
    """What a batch costs, divided by its Calls."""
    told = []
    for name in names:
        costs = [figures.value(row, scenarios.CPU) for row in rows if row["proxy"] == name]
        told.append(f"{name} {figures.spread([cost / batch for cost in costs if cost is not None], 2)}")
    return [f"- CPU µs for each Call: {'; '.join(told)}"]


def faulted(rows, names):
    """What of the upstream's faults reached the callers."""
    lines = []
    for name in names:
        mine = [row for row in rows if row["proxy"] == name]
        bad = sum(row["errors"]["status"] for row in mine)
        asked = sum(row["requests"] for row in mine)
        share = 100 * bad / max(1, asked)
        lines.append(f"- {name}: {bad} of {asked} requests were answered with the fault ({share:.4f} %)")
    return lines


def slow(rows, names):
    """How many waited because an answer came late."""
    lines = []
    for name in names:
        mine = [row for row in rows if row["proxy"] == name]
        late = sum(row["over_10ms"] for row in mine)
        stalls = scenarios.STALL_RATE * sum(row["requests"] for row in mine)
        lines.append(
            f"- {name}: {late} answers came after more than 10 ms, {late / max(1, stalls):.1f} for each answer that "
            f"the upstream held back for {scenarios.STALL_MS} ms (about {stalls:.0f})"
        )
    return lines


def markdown(bench, rows, failed):
    """The summary of a run."""
    args, names = bench.args, bench.names
    scenario = scenarios.SCENARIOS.get(args.scenario_name)
    good, said = figures.kept(rows)
    title = f"{args.scenario_name}: {scenario.what}" if scenario else f"{', '.join(names)}: {mode(args)}"
    lines = [f"# {title}", "", *head(bench, said), ""]
    if scenario:
        lines += [scenario.note, ""] if scenario.note else []
        lines += [figures.paired(good, figures.compared(names)), ""]
        goals = scenarios.goals(args.scenario_name, good)
        lines += [goals, ""] if goals else []
        lines += [figures.measured(good, names), ""]
    else:
        lines += [summary(good, names), ""]
    if args.batch > 1:
        lines += per_call(good, names, args.batch) + [""]
    if args.kind == "faults":
        lines += faulted(good, names) + [""]
    if args.kind == "slow":
        lines += slow(good, names) + [""]
    if args.tls:
        lines += tls.sentences(rows, names) + [""]
    if failed:
        lines += ["**Not clean:**", ""] + [f"- {line}" for line in failed] + [""]
    lines += ["## Configurations", ""]
    for name in names:
        lines += [f"{name}:", "```", bench.configs.get(name, "").rstrip(), "```", ""]
    return "\n".join(lines)


def summary(rows, names):
    """Both tables: medians, and every pair of proxies both ways that somebody reads."""
    text = figures.measured(rows, names)
    couples = [(one, other) for at, one in enumerate(names) for other in names[at + 1:]]
    couples += [couple for couple in figures.compared(names) if couple not in couples]
    return f"{text}\n\n{figures.paired(rows, couples)}" if couples else text


def record(bench):
    """The first line of a scenario's raw rows: what the overview tells of the run."""
    return {
        "scenario": bench.args.scenario_name, "command": command_of(bench.args.scenario_name), "commit": commit(),
        "date": str(datetime.date.today()), "proxies": bench.names, "rate": bench.args.rate,
        "connections": bench.args.connections,
    }


def read(file):
    """A scenario's record and rows; none if the file isn't one's."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines or "scenario" not in lines[0]:
        return None
    return lines[0], lines[1:]


def short(values, digits=2):
    return f"{statistics.median(values):.{digits}f}" if values else "-"


def overview(folder):
    """One table over all scenarios whose raw rows lie in the folder, in the order of the table of scenarios."""
    lines, commands = [], []
    for name, scenario in scenarios.SCENARIOS.items():
        file = folder / f"{name}.jsonl"
        found = read(file) if file.is_file() else None
        if not found:
            continue
        record, rows = found
        good, said = figures.kept(rows)
        unclean = sum("not_clean" in row for row in rows)
        said += f"; {unclean} of {len(rows)} turns not clean" if unclean else ""
        busy = rows[0].get("idle_busy_share", 0) if rows else 0
        said += f"; not quiet ({100 * busy:.0f} % busy before)" if busy > cores.QUIET_MAX else ""
        mine = [figures.value(row, scenarios.CPU) for row in good if row["proxy"] == "ringway"]
        cells = [f"[{name}]({name}.md)", short([one for one in mine if one is not None])]
        for metric in (scenarios.CPU, scenarios.CORE):
            for one, other in (("haproxy", "ringway"), ("nginx", "ringway"), ("ringway", "relay")):
                cells.append(short(figures.ratios(good, one, other, metric)))
        cells.append(short(figures.ratios(good, "ringway", "haproxy", scenarios.P99)))
        cells.append("; ".join(verdicts(name, good)) or "-")
        cells.append(said)
        lines.append(cells)
        commands.append(f"- `{record['command']}`: {scenario.what} ({record['date']}, commit {record['commit']})")
    header = [
        "scenario", "Ringway, CPU µs", "haproxy ÷ ringway", "nginx ÷ ringway", "ringway ÷ relay",
        "core: haproxy ÷ ringway", "nginx ÷ ringway", "ringway ÷ relay", "p99: ringway ÷ haproxy", "goals", "rounds",
    ]
    return "\n".join([
        "# Scenarios: Ringway against HAProxy, nginx and a byte relay",
        "",
        "Written by `loadtest/compare --scenario ...` from the raw rounds in this folder. Medians of paired ratios of "
        "CPU time per request, by the process's count and by its core's whole time; each scenario's file has the "
        "spread, the goals in full and the configurations. [`loadtest/README.md`](../../loadtest/README.md) says how "
        "to read them.",
        "",
        figures.table(header, lines),
        "",
        "## Commands",
        "",
        *commands,
        "",
    ])


def verdicts(name, rows):
    """A word for each goal of a scenario."""
    return [f"{goal.one} ÷ {goal.other}: {goal.verdict(goal.values(rows))}" for goal in scenarios.GOALS.get(name, [])]
