# What the scripts of this folder share: the instrumented build, on a fresh machine too. Sourced, not run.
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 2
export CARGO_TERM_COLOR=never
TARGETS="request_head response_head chunked envelope response_check config coding"

# libFuzzer is C++: its sources come with a crate and are compiled here.
need_compiler() {
  if command -v "${CXX:-c++}" >/dev/null; then return; fi
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "no C++ compiler: installing g++" >&2
    apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends g++ >&2
  fi
  if ! command -v "${CXX:-c++}" >/dev/null; then
    echo "fuzz: libFuzzer needs a C++ compiler (g++ or clang++): install one, or name it in CXX" >&2
    exit 2
  fi
}

# Stable Rust can count edges and trace comparisons; only sanitizers need a nightly one. The target is named so
# that build scripts and macros stay without.
build() {
  need_compiler
  local pass="-C llvm-args=-sanitizer-coverage" host
  host=$(rustc -vV | sed -n 's/^host: //p')
  RUSTFLAGS="-C passes=sancov-module $pass-level=4 $pass-inline-8bit-counters $pass-pc-table $pass-trace-compares" \
    cargo build --quiet --release --target "$host" "$@" || exit 2
  bin="${CARGO_TARGET_DIR:-target}/$host/release"
}

# The longest input that is tried: as long as it takes to reach every limit, and no longer.
longest() {
  case $1 in
    chunked | config) echo 12000 ;;
    *) echo 4096 ;;
  esac
}

# What every run has: limits on time and memory, so that a slow or a greedy input is a finding too.
options() {
  echo "-max_len=$(longest "$1") -timeout=10 -rss_limit_mb=1024 -print_final_stats=1"
  if [ -f "dict/$1" ]; then echo "-dict=dict/$1"; fi
}
