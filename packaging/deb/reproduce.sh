#!/usr/bin/env bash
# Packs the same binary twice, from copies of the sources in two places, under two umasks, time zones,
# locales and times, and compares the packages byte by byte.
#
#   packaging/deb/reproduce.sh BINARY
#
# SOURCE_DATE_EPOCH is that of the last commit unless it is given. Exits with 1 when the packages differ.
set -euo pipefail

die() { echo "reproduce: $*" >&2; exit 1; }

[ $# = 1 ] || die "say BINARY"
binary=$(realpath "$1")
cd "$(dirname "$0")/../.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The sources as they are in the working tree. copy DIRECTORY
copy() {
    mkdir -p "$1"
    git ls-files -z | tar --create --null --files-from=- --ignore-failed-read 2>/dev/null |
        tar --extract --directory="$1" --touch
}

copy "$work/one"
copy "$work/another place/with a longer name"
(umask 077 && TZ=Asia/Kathmandu LC_ALL=C.UTF-8 "$work/one/packaging/deb/build.sh" "$binary" "$work/first")
# What is newer than the sources by a moment would have another time.
sleep 2
(umask 002 && TZ=America/Lima LC_ALL=C "$work/another place/with a longer name/packaging/deb/build.sh" \
    "$binary" "$work/second")

count=0
for package in "$work"/first/*.deb; do
    name=${package##*/}
    cmp "$package" "$work/second/$name" || die "$name differs"
    echo "reproduce: $name: $(sha256sum "$package" | cut -d ' ' -f 1), twice the same"
    count=$((count + 1))
done
[ "$count" = 2 ] || die "two packages were expected, not $count"
