#!/usr/bin/env bash
# Builds the optimised binary so that it is the same wherever the sources and cargo's home lie.
#
#   packaging/build.sh BINARY   writes BINARY
#
# Beside `make build`, the names of directories in line tables, panics and asserts are replaced: of these
# sources by /usr/src/saltern, of cargo's home by /usr/src/cargo, of the standard library's sources by the
# name that it has in a compiler without them. RUSTFLAGS, CFLAGS and CXXFLAGS of the environment are not
# used. What else the binary depends on is the compiler (packaging/README.md).
set -euo pipefail

die() { echo "build: $*" >&2; exit 1; }

[ $# = 1 ] || die "say BINARY"
mkdir -p "$(dirname "$1")"
binary=$(realpath "$1")
cd "$(dirname "$0")/.."
sources=$(pwd -P)
home=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
# The build of jemalloc takes its flags apart at spaces.
[[ $sources$home != *[[:space:]]* ]] || die "a space in $sources or $home: build elsewhere"

library=$(rustc --print sysroot)/lib/rustlib/src/rust
commit=$(rustc -vV | sed -n 's/^commit-hash: //p')

# The last one that fits holds, and cargo's home may lie in the sources.
names=("$sources=/usr/src/saltern" "$home=/usr/src/cargo" "$library=/rustc/$commit")
rust=() c=()
for name in "${names[@]}"; do
    rust+=("--remap-path-prefix=$name")
    c+=("-ffile-prefix-map=$name")
done
unset RUSTFLAGS CXXFLAGS
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${rust[*]}")
CFLAGS=${c[*]}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export CARGO_ENCODED_RUSTFLAGS CFLAGS SOURCE_DATE_EPOCH

# A directory of its own: other flags would have cargo build all of target/release anew.
"${CARGO:-cargo}" build --release --locked -p saltern --target-dir "$sources/target/remapped"
install -m 0755 target/remapped/release/saltern "$binary"
