#!/usr/bin/env bash
# Makes the packages twice and compares them byte by byte: from copies of the sources in two places, under
# two umasks, time zones, locales and times.
#
#   packaging/deb/reproduce.sh          builds the binary in each place, too, with cargo's home in two places
#   packaging/deb/reproduce.sh BINARY   packs this binary
#
# SOURCE_DATE_EPOCH is that of the last commit unless it is given. Exits with 1 when the packages differ; those
# that do not, stay in target/reproduced. Where binaries differ, they stay there, and their sections are named.
set -euo pipefail

die() { echo "reproduce: $*" >&2; exit 1; }

[ $# -le 1 ] || die "say BINARY or nothing"
binary=
[ $# = 0 ] || binary=$(realpath "$1")
cd "$(dirname "$0")/../.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
kept=$PWD/target/reproduced
rm -rf "$kept"
mkdir -p "$kept"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The sources as they are in the working tree. copy DIRECTORY
copy() {
    mkdir -p "$1"
    git ls-files -z | tar --create --null --files-from=- --ignore-failed-read 2>/dev/null |
        tar --extract --directory="$1" --touch
}

# Builds handbook and binary in a copy of the sources. build SOURCES HOME BINARY
build() {
    "$handbook" "$1/docs/handbook.py"
    CARGO_HOME=$2 CARGO_NET_OFFLINE=true "$1/packaging/build.sh" "$3"
}

# Names the sections in which two programs differ. sections ONE OTHER
sections() {
    local section
    readelf --section-headers --wide "$1" | sed -n 's/^ *\[ *[0-9]*\] \(\.[^ ]*\).*/\1/p' | while read -r section; do
        rm -f "$work/ours" "$work/theirs"
        objcopy --dump-section "$section=$work/ours" "$1" "$work/copied" 2>/dev/null || continue
        objcopy --dump-section "$section=$work/theirs" "$2" "$work/copied" 2>/dev/null || true
        [ -e "$work/ours" ] && [ -e "$work/theirs" ] || continue
        cmp --silent "$work/ours" "$work/theirs" || echo "reproduce: section $section differs" >&2
    done
}

one=$work/one
# The build of jemalloc bears no space in the name of its directory, packing does.
other="$work/another place/with a longer name"
[ -n "$binary" ] || other=$work/another-place/with-a-longer-name
copy "$one"
copy "$other"
first=$binary second=$binary
if [ -z "$binary" ]; then
    "${CARGO:-cargo}" fetch --locked --quiet
    handbook=$(tests/install-stock.sh --mkdocs)/python
    home=${CARGO_HOME:-$HOME/.cargo}
    mkdir "$work/home"
    cp --archive "$home/registry" "$work/home/"
    first=$kept/one/saltern second=$kept/other/saltern
    (umask 077 && TZ=Asia/Kathmandu LC_ALL=C.UTF-8 build "$one" "$home" "$first")
    (umask 002 && TZ=America/Lima LC_ALL=C build "$other" "$work/home" "$second")
    echo "reproduce: binaries: $(sha256sum "$first" | cut -d ' ' -f 1) and $(sha256sum "$second" | cut -d ' ' -f 1)"
    if ! cmp "$first" "$second"; then
        sections "$first" "$second"
        die "the binaries differ: $kept"
    fi
fi

(umask 077 && TZ=Asia/Kathmandu LC_ALL=C.UTF-8 "$one/packaging/deb/build.sh" "$first" "$work/first")
# What is newer than the sources by a moment would have another time.
sleep 2
(umask 002 && TZ=America/Lima LC_ALL=C "$other/packaging/deb/build.sh" "$second" "$work/second")

count=0
for package in "$work"/first/*.deb; do
    name=${package##*/}
    cmp "$package" "$work/second/$name" || die "$name differs"
    echo "reproduce: $name: $(sha256sum "$package" | cut -d ' ' -f 1), twice the same"
    cp "$package" "$kept/"
    count=$((count + 1))
done
[ "$count" = 2 ] || die "two packages were expected, not $count"
