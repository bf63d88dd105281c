#!/usr/bin/env bash
# Tests the Debian package on a clean Debian with a systemd of its own: installed, upgraded, beside a
# stock master, in its place, back to it, removed, purged. What is checked stands in `scenario.sh` and,
# for stock's own master and minions where tests/install-stock.sh has put them, in `switch.sh`.
#
#   packaging/deb/test.sh BINARY
#
# Needs root, debootstrap and systemd-nspawn (Debian: systemd-container), which it installs where
# apt-get is there, and Debian's mirror. The clean system is kept in ~/.cache/saltern/debian.
# It shares neither network nor processes with this machine, and nothing of it is left behind.
set -euo pipefail

die() { echo "deb-test: $*" >&2; exit 1; }

[ $# = 1 ] || die "say BINARY"
binary=$(realpath "$1")
[ "$(id -u)" = 0 ] || die "only root can boot a system"
cd "$(dirname "$0")"

missing=()
command -v debootstrap >/dev/null || missing+=(debootstrap)
command -v systemd-nspawn >/dev/null || missing+=(systemd-container)
command -v dpkg-shlibdeps >/dev/null || missing+=(dpkg-dev)
if [ ${#missing[@]} != 0 ]; then
    command -v apt-get >/dev/null || die "${missing[*]} are missing"
    apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}" \
        >/dev/null
fi

# The binary is linked against the libraries of this machine's release.
# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
clean=${XDG_CACHE_HOME:-$HOME/.cache}/saltern/debian/$suite.tar
include=systemd,systemd-sysv,dbus,adduser,libssl3,logrotate,man-db,procps,python3
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

if [ ! -e "$clean" ]; then
    echo "deb-test: making a clean $suite"
    mkdir -p "${clean%/*}"
    debootstrap --variant=minbase --include=$include "$suite" "$work/clean" >"$work/log" ||
        { cat "$work/log"; die "debootstrap failed"; }
    rm -rf "$work"/clean/var/cache/apt/archives/*.deb "$work"/clean/var/lib/apt/lists/*
    tar -C "$work/clean" -cf "$clean.new" .
    mv "$clean.new" "$clean"
    rm -rf "$work/clean"
fi

root=$work/root
mkdir "$root"
tar -C "$root" -xpf "$clean"
mkdir "$root/test"
export LEVEL=0
VERSION=0.1.0 ./build.sh "$binary" "$root/test"
VERSION=0.1.1 ./build.sh "$binary" "$root/test"
./stock-like.sh "$root/test"
install -m 0755 -t "$root/test" scenario.sh site-scripts.sh switch.sh
printf '%s\n' '#!/bin/sh -e' /test/scenario.sh '[ ! -d /opt/stock ] || /test/switch.sh' \
    >"$root/test/all.sh"
chmod 0755 "$root/test/all.sh"
cat >"$root/etc/systemd/system/scenario.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=-/bin/sh -c '/test/all.sh >/test/output 2>&1; echo $? >/test/code'
ExecStopPost=systemctl poweroff
UNIT
mkdir "$root/etc/systemd/system/default.target.wants"
ln -s ../scenario.service "$root/etc/systemd/system/default.target.wants/"

stock=${SALTERN_STOCK:-$HOME/.cache/saltern/stock}/3008.3
binds=()
if [ -d "$stock" ]; then
    binds=("--bind-ro=$stock:/opt/stock")
    # The Python that it was made with, where user salt can reach it.
    python=$("$stock/bin/python" -c 'import sys; print(sys.base_prefix)')
    if [ "$python" != /usr ]; then
        binds+=("--bind-ro=$python")
        chmod 0755 "$root/root"
    fi
fi
timeout 600 systemd-nspawn --register=no --keep-unit --quiet --private-network --boot \
    --directory="$root" "${binds[@]}" </dev/null >"$work/boot" 2>&1 || true
cat "$root/test/output" 2>/dev/null || { cat "$work/boot"; die "the system did not boot"; }
[ "$(cat "$root/test/code" 2>/dev/null)" = 0 ] || die "failed"
echo "deb-test: all is well"
