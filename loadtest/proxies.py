"""What each proxy is told: one configuration for each, made for the work of a run, and how it is started."""

import dataclasses
import os

import tls

PROXIES = ["ringway", "haproxy", "nginx"]
# Bytes carried and nothing understood: below every proxy.
FLOOR = "relay"
# A spike, not a product: whole requests of all callers, pipelined on so many upstream connections.
SHARED = {"relay-shared-4": 4, "relay-shared-1": 1}
# Ringway in front of two servers that live, where the others' first one is dead.
HEALTHY = "ringway-healthy"
# Ringway with two shards, where the other one has one.
TWO = "ringway-two-shards"

RINGWAY = """\
[server]
listen = ["127.0.0.1:{port}"]
admin = "127.0.0.1:{admin}"
shards = {shards}{server_tls}
{endpoints}[[gateway]]
id = "eth"
path = "/eth"
chain = "ethereum"
network = "mainnet"
[[gateway.route]]
id = "default"
{targets}
"""

ENDPOINT = """\
[[endpoint]]
id = "{id}"
chain = "ethereum"
network = "mainnet"
url = "{scheme}://127.0.0.1:{upstream}/"{endpoint_tls}
"""

# By default HAProxy closes idle upstream connections once a fifth of its descriptors is in use, as with 1,000 callers:
# there a request cost 52 µs of CPU so, and 33 without (medians of four and three rounds on a busy machine).
HAPROXY = """\
global
    nbthread 1
    maxconn 4096
    tune.pool-low-fd-ratio 80
    tune.pool-high-fd-ratio 90{global_tls}
    {bufsize}
defaults
    mode http
    option http-keep-alive
    http-reuse always
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout http-keep-alive 60s
frontend in
    bind 127.0.0.1:{port}{bind_tls}
    default_backend up
backend up
    {retries}
{servers}
"""

NGINX = """\
{user}
daemon off;
worker_processes 1;
error_log {dir}/error.log crit;
pid {dir}/pid;
events {{
    worker_connections 4096;
}}
http {{
    access_log off;
    keepalive_timeout 300s;
    keepalive_requests 1000000000;
    client_body_buffer_size 64k;
    client_max_body_size 8m;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    upstream up {{
{servers}
        keepalive {connections};
        keepalive_timeout 300s;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port}{listen_ssl};{listen_tls}
        location / {{
            proxy_pass {scheme}://up;{proxy_tls}
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffer_size {buffer_k}k;
            proxy_buffers 8 {buffer_k}k;
            proxy_busy_buffers_size {busy_k}k;
            proxy_max_temp_file_size 0;
            {retries}
        }}
    }}
}}
"""

# What each rival's manuals recommend, where one of two servers is dead: it is checked (HAProxy) or left alone for a
# while (nginx), and a request that met it goes on to the other one.
HAPROXY_DEAD = ["option redispatch", "retries 3"]
NGINX_DEAD = ["proxy_next_upstream error timeout non_idempotent;"]
# Where servers answer 503 now and then: the request is asked again. nginx must not take the server out for it.
HAPROXY_FAULTS = ["option redispatch 1", "retries 3", "retry-on 503 conn-failure empty-response"]
NGINX_FAULTS = ["proxy_next_upstream error timeout http_503 non_idempotent;", "proxy_next_upstream_tries 3;"]


@dataclasses.dataclass
class Upstreams:
    """Where the proxies' requests go."""

    ports: list
    # "one", "slow" (it stalls now and then), "dead" (the first of two refuses connections) or "faults" (both answer 503
    # now and then).
    kind: str = "one"


@dataclasses.dataclass
class Setting:
    """What the configurations depend on besides the proxy."""

    upstreams: Upstreams
    connections: int
    # Bytes of a common answer.
    size: int
    fields: dict = dataclasses.field(default_factory=lambda: dict(tls.PLAIN))
    # KiB of the rivals' buffers, in place of what was found best.
    haproxy_k: int = None
    nginx_k: int = None


# Buffers, measured in closed loops of 0.8 s on a busy machine, medians of 4 to 11 rounds, CPU µs per request
# at 16 / 32 / 64 / 96 / 128 / 256 / 512 / 1,024 KiB (- = not tried):
#   HAProxy, 100 KB, 16 connections: 40 / 38 / 44 / - / 40 / 47 / 56 / -, at best 38 / 36 / 38 / - / 32 / 31 / 36 / -
#   HAProxy, 1 MB, 8 connections: 450 / 368 / 267 / 445 / 500 / 414 / - / 829; with splice-response at best 373
#   nginx, 100 KB: 36 / 43 / 32 / - / 29 / 28 / 28 / -
#   nginx, 1 MB: 320 / 548 / 650 / 756 / 660 / 603 / - / 194
#   a mix, 64 connections, at 16 / 64 / 256 KiB: HAProxy 18 / 23 / 35, nginx 17 / 20 / 19
#   2,000 bytes, at 16 / 32 KiB: HAProxy 13.8 / 15.3, nginx 14.4 / 14.8
# So: whole answers as far as 128 KiB, and past that 64 KiB for HAProxy and the whole for nginx. 16 KiB in a mix,
# where nearly all answers are small.
HAPROXY_WHOLE_K_MAX = 128
HAPROXY_PARTS_K = 64


def whole_answer_k(size):
    """KiB of a buffer that holds an answer whole; 16 to 1,024."""
    buffer_k = 16
    while buffer_k < 1024 and buffer_k * 1024 < size + 2048:
        buffer_k *= 2
    return buffer_k


def haproxy_k(setting):
    """KiB of HAProxy's tune.bufsize."""
    whole = whole_answer_k(setting.size)
    return setting.haproxy_k or (whole if whole <= HAPROXY_WHOLE_K_MAX else HAPROXY_PARTS_K)


def nginx_k(setting):
    """KiB of each of nginx's proxy_buffers."""
    return setting.nginx_k or whole_answer_k(setting.size)


def ringway(setting, port, admin, shards=1):
    """Ringway's configuration."""
    names = ["up", "second"][:len(setting.upstreams.ports)]
    endpoints = "".join(
        ENDPOINT.format(id=name, upstream=upstream, **setting.fields)
        for name, upstream in zip(names, setting.upstreams.ports)
    )
    if len(names) == 1:
        targets = 'targets = ["up"]'
    else:
        # Like the rivals' turn by turn, not Ringway's default, in which the second one only stands by.
        both = ", ".join(f'{{ endpoint = "{name}", weight = 1 }}' for name in names)
        targets = f'strategy = "weighted"\ntargets = [{both}]'
    return RINGWAY.format(
        port=port, admin=admin, shards=shards, endpoints=endpoints, targets=targets, **setting.fields,
    )


def without_gaps(text):
    """Lines that a field left empty go."""
    return "".join(line for line in text.splitlines(keepends=True) if line.strip())


def haproxy(setting, port):
    """HAProxy's configuration."""
    kind, buffer_k = setting.upstreams.kind, haproxy_k(setting)
    retries = {"dead": HAPROXY_DEAD, "faults": HAPROXY_FAULTS}.get(kind, [])
    check = " check inter 1s" if kind == "dead" else ""
    servers = "\n".join(
        f"    server {name} 127.0.0.1:{upstream}{check}{setting.fields['up_tls']}"
        for name, upstream in zip(("up", "second"), setting.upstreams.ports)
    )
    return without_gaps(HAPROXY.format(
        port=port, servers=servers, retries="\n    ".join(retries),
        bufsize=f"tune.bufsize {buffer_k * 1024}" if buffer_k > 16 else "", **setting.fields,
    ))


def nginx(setting, port, home):
    """nginx's configuration."""
    kind, buffer_k = setting.upstreams.kind, nginx_k(setting)
    retries = {"dead": NGINX_DEAD, "faults": NGINX_FAULTS}.get(kind, [])
    manner = {"dead": " max_fails=1 fail_timeout=10s", "faults": " max_fails=0"}.get(kind, "")
    servers = "\n".join(f"        server 127.0.0.1:{upstream}{manner};" for upstream in setting.upstreams.ports)
    return without_gaps(NGINX.format(
        port=port, servers=servers, retries="\n            ".join(retries), dir=home,
        connections=max(256, setting.connections), buffer_k=buffer_k, busy_k=2 * buffer_k,
        user="user root;" if os.geteuid() == 0 else "", **setting.fields,
    ))


def command(name, program, setting, home, port, admin):
    """Writes a proxy's configuration to `home`; says how to start it, and the configuration."""
    home.mkdir(exist_ok=True)
    if name == FLOOR or name in SHARED:
        words = ["relay", "--listen", f"127.0.0.1:{port}", "--to", f"127.0.0.1:{setting.upstreams.ports[0]}"]
        words += ["--share", str(SHARED[name])] if name in SHARED else []
        return [program, *words], " ".join(["ringway-loadtest", *words])
    if name == "haproxy":
        file, text = home / "haproxy.conf", haproxy(setting, port)
        words = ["-db", "-f", file]
    elif name == "nginx":
        file, text = home / "nginx.conf", nginx(setting, port, home)
        words = ["-e", home / "start.log", "-p", home, "-c", file]
    else:
        file, text = home / "ringway.toml", ringway(setting, port, admin, 2 if name == TWO else 1)
        words = ["serve", "--config", file]
    file.write_text(text)
    return [program, *words], text
