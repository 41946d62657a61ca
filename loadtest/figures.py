"""What rounds come to: medians with their spread, and ratios that are taken inside each round."""

import statistics

import cores


def user_share(cpu):
    return 100 * cpu["user_ticks"] / max(1, cpu["user_ticks"] + cpu["system_ticks"])


# What is told of a round: how to get it, and its digits.
METRICS = {
    "CPU µs/request": (lambda row: row["cpu"]["us_per_answer"], 2),
    "core µs/request": (lambda row: row.get("core_us_per_answer"), 2),
    "user share %": (lambda row: user_share(row["cpu"]), 0),
    "p50 µs": (lambda row: row["latency_us"]["p50"], 0),
    "p99 µs": (lambda row: row["latency_us"]["p99"], 0),
    "p99.9 µs": (lambda row: row["latency_us"]["p99.9"], 0),
    "requests/s": (lambda row: row["achieved_rate"], 0),
    "sent late %": (lambda row: 100 * row["late"] / max(1, row["requests"]), 2),
    "CPU wait %": (lambda row: 100 * row["cpu"]["waited_ns"] / max(1, row["cpu"]["on_cpu_ns"]), 1),
}
RATIO_METRICS = {
    "CPU/request": "CPU µs/request", "core time/request": "core µs/request", "p50": "p50 µs", "p99": "p99 µs",
    "p99.9": "p99.9 µs", "requests/s": "requests/s",
}


def value(row, metric):
    return METRICS[metric][0](row)


def spread(values, digits):
    """Median (least..most)."""
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def pairs(rows, one, other, metric):
    """The metric of `one` and of `other`, for each round that has both."""
    found = []
    for number in sorted({row["round"] for row in rows}):
        pair = [value(row, metric)
                for name in (one, other) for row in rows if (row["round"], row["proxy"]) == (number, name)]
        if len(pair) == 2 and None not in pair:
            found.append(tuple(pair))
    return found


def ratios(rows, one, other, metric):
    """The metric of `one` over that of `other`, round by round."""
    return [mine / theirs for mine, theirs in pairs(rows, one, other, metric) if theirs]


def kept(rows):
    """The rows of the rounds that count, and a sentence on those that don't."""
    gone = cores.stolen(rows)
    count = len({row["round"] for row in rows})
    rounds = f"{count} round{'' if count == 1 else 's'}"
    words = f"{len(gone)} of {rounds} dropped for steal" if gone else f"{rounds}, none dropped for steal"
    return [row for row in rows if row["round"] not in gone], words


def compared(names):
    """Which are held against which: rivals against Ringway, Ringway and spikes against the floor, other selves."""
    found = [(one, "ringway") for one in names if one in ("haproxy", "nginx")]
    found += [("ringway", one) for one in names if one in ("relay", "ringway-healthy")]
    found += [("ringway-two-shards", "ringway")] if "ringway-two-shards" in names else []
    found += [(one, "relay") for one in names if one.startswith("relay-")]
    return [couple for couple in found if set(couple) <= set(names)]


def measured(rows, names):
    """The table of medians."""
    return table(
        ["proxy", *METRICS],
        [[name] + [spread([value(row, metric) for row in rows if row["proxy"] == name], digits)
                   for metric, (_, digits) in METRICS.items()] for name in names],
    )


def paired(rows, couples):
    """The table of ratios."""
    return table(
        ["paired ratio", *RATIO_METRICS],
        [[f"{one} ÷ {other}"] + [spread(ratios(rows, one, other, metric), 3) for metric in RATIO_METRICS.values()]
         for one, other in couples],
    )
