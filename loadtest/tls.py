"""TLS for a comparison: certificates of its own, and what each proxy must be told so that all do the same work.

One version (1.3), one suite, one kind of key (ECDSA P-256), sessions resumed by ticket; on both legs.
"""

import re
import ssl
import subprocess

NAME = "localhost"
SUITE = "TLS_AES_256_GCM_SHA384"
# The same, as rustls names it, with its version.
AGREED = f"TLSv1_3 TLS13_{SUITE.removeprefix('TLS_')}"

HAPROXY_GLOBAL = f"""
    ssl-default-bind-options ssl-min-ver TLSv1.3
    ssl-default-bind-ciphersuites {SUITE}
    ssl-default-server-options ssl-min-ver TLSv1.3
    ssl-default-server-ciphersuites {SUITE}"""

NGINX_LISTEN = f"""
        ssl_certificate {{cert}};
        ssl_certificate_key {{key}};
        ssl_protocols TLSv1.3;
        ssl_conf_command Ciphersuites {SUITE};"""

NGINX_PROXY = f"""
            proxy_ssl_protocols TLSv1.3;
            proxy_ssl_conf_command Ciphersuites {SUITE};
            proxy_ssl_trusted_certificate {{ca}};
            proxy_ssl_verify on;
            proxy_ssl_server_name on;
            proxy_ssl_name {NAME};"""

# What a template's fields become without TLS.
PLAIN = {
    "scheme": "http", "server_tls": "", "endpoint_tls": "", "global_tls": "", "bind_tls": "", "up_tls": "",
    "listen_ssl": "", "listen_tls": "", "proxy_tls": "",
}


class Certificates:
    """A root, and a server's certificate for `localhost` and 127.0.0.1."""

    def __init__(self, tool, directory):
        self.ca, self.cert, self.key, self.both = (directory / f"{name}.pem" for name in ("ca", "cert", "key", "both"))
        subprocess.run([tool, "certificates", "--into", directory], timeout=60, check=True)

    def context(self):
        """What Python needs to ask a proxy."""
        return ssl.create_default_context(cafile=str(self.ca))

    def fields(self):
        """What a template's fields become with TLS."""
        files = {"cert": self.cert, "key": self.key, "ca": self.ca}
        return {
            "scheme": "https",
            "server_tls": f'\ntls = {{ cert = "{self.cert}", key = "{self.key}" }}',
            "endpoint_tls": f'\ntls = {{ ca = "{self.ca}" }}',
            "global_tls": HAPROXY_GLOBAL,
            "bind_tls": f" ssl crt {self.both} alpn http/1.1",
            "up_tls": f" ssl verify required ca-file {self.ca} verifyhost {NAME} sni str({NAME}) alpn http/1.1",
            "listen_ssl": " ssl",
            "listen_tls": NGINX_LISTEN.format(**files),
            "proxy_tls": NGINX_PROXY.format(**files),
        }


class Told:
    """What the upstream tells of its handshakes, round by round."""

    def __init__(self, log):
        self.log = log
        self.at = 0

    def since(self):
        """Suites, full and resumed handshakes since the last look."""
        text = self.log.read_text(errors="replace")
        lines = re.findall(r"^agreed (.+) (full|resumed)$", text[self.at:], re.MULTILINE)
        self.at = len(text)
        kinds = [kind for _, kind in lines]
        return {
            "suites": sorted({suite for suite, _ in lines}),
            "full": kinds.count("full"), "resumed": kinds.count("resumed"),
        }


def problems(row, args):
    """What makes a round with TLS unfit for a claim."""
    found = []
    for leg, told in (("callers", row["tls"]), ("upstream", row["tls_upstream"])):
        if told["suites"] != [AGREED]:
            found.append(f"{leg} agreed on {told['suites'] or 'nothing'}")
    full, resumed = row["tls"]["full"], row["tls"]["resumed"]
    # The first connection of each caller has no ticket.
    if args.handshakes == "resumed" and full > args.connections:
        found.append(f"{full} full handshakes, {resumed} resumed")
    if args.handshakes == "full" and resumed:
        found.append(f"{resumed} resumed handshakes, {full} full")
    return found


def metrics(text):
    """Ringway's own counts of handshakes: {side: {outcome: count}}."""
    found = {}
    pattern = r"^ringway_(client|endpoint)_tls_handshakes_total\{(.*)\} ([0-9]+)$"
    for side, labels, count in re.findall(pattern, text, re.MULTILINE):
        outcome = re.search(r'outcome="([a-z]+)"', labels).group(1)
        kinds = found.setdefault(side, {})
        kinds[outcome] = kinds.get(outcome, 0) + int(count)
    return found


def sentences(rows, names):
    """What was agreed on and how often a session was resumed, a line for each proxy."""
    lines = []
    for name in names:
        mine = [row for row in rows if row["proxy"] == name]
        of = {leg: ", ".join(sorted({suite for row in mine for suite in row[leg]["suites"]})) or "nothing"
              for leg in ("tls", "tls_upstream")}
        count = {(leg, kind): sum(row[leg][kind] for row in mine)
                 for leg in ("tls", "tls_upstream") for kind in ("full", "resumed")}
        shares = []
        for leg, side in (("tls", "callers"), ("tls_upstream", "upstream")):
            full, resumed = count[leg, "full"], count[leg, "resumed"]
            share = 100 * resumed / max(1, full + resumed)
            shares.append(f"{side} {of[leg]}, {full} full and {resumed} resumed handshakes ({share:.1f} % resumed)")
        line = f"- {name}, as both ends saw it: {'; '.join(shares)}"
        counted = [row["metrics_tls"] for row in mine if row.get("metrics_tls")]
        if counted:
            sums = {}
            for one in counted:
                for side, kinds in one.items():
                    for kind, number in kinds.items():
                        sums[side, kind] = sums.get((side, kind), 0) + number
            line += "; its own /metrics: " + ", ".join(
                f"{side} {kind} {number}" for (side, kind), number in sorted(sums.items()))
        lines.append(line)
    return lines
