#!/usr/bin/env bash
# What `test.sh` does with the packages in /test, inside of the system that it booted. Ends with 0
# when every step came out as it says.
set -Eeuo pipefail
cd /test

step() { echo "--- $*"; }
die() { echo "FAILED: $*"; journalctl --no-pager -n 60 -u saltern; exit 1; }
trap '[ "$BASH_SUBSHELL" != 0 ] || die "line $LINENO"' ERR
is() { [ "$1" = "$2" ] || die "\"$1\" is not \"$2\""; }
holds() { "$@" >/dev/null 2>&1 || die "does not hold: $*"; }
fails() { ! "$@" >/dev/null 2>&1 || die "should not hold: $*"; }
install_package() { DEBIAN_FRONTEND=noninteractive dpkg --force-confold --install "$1" >/dev/null; }
main_pid() { systemctl show --value -p MainPID saltern; }
property() { systemctl show --value -p "$1" saltern; }
fingerprint() { sha256sum /etc/salt/pki/master/master.pem | cut -d ' ' -f 1; }
answers() { saltern debug actors >/dev/null || die "the master does not answer"; }

# The test restarts the service more often than systemd's limit allows.
install -d /run/systemd/system/saltern.service.d
printf '%s\n' '[Unit]' 'StartLimitIntervalSec=0' >/run/systemd/system/saltern.service.d/test.conf

step "a clean system: it runs at once, as user salt"
install_package saltern_0.1.0_*.deb
holds systemctl is-active saltern
holds systemctl is-enabled saltern
is "$(property StatusText)" "serving on 0.0.0.0:4506 and 0.0.0.0:4505"
is "$(stat -c %U "/proc/$(main_pid)")" salt
is "$(awk '/^NoNewPrivs|^Seccomp:|^CapEff/ { print $2 }' "/proc/$(main_pid)/status" | xargs)" \
    "0000000000000000 1 2"
answers
is "$(stat -Lc '%U %a' /etc/salt/pki/master/master.pem)" "salt 400"
is "$(cat /run/salt-master.pid)" "$(main_pid)"
holds dpkg --verify saltern
fails journalctl --quiet --grep 'ERROR|CRITICAL' -u saltern
for name in salt-cp salt-key salt-run; do
    is "$(readlink -f /usr/bin/$name)" /usr/bin/saltern
done
holds salt-run manage.up
is "$(salt-key --list=acc)" "Accepted Keys:"
is "$(salt-cp 2>/dev/null >&2; echo $?)" 64
is "$(salt '*' service.restart nginx --no-such-option >/dev/null 2>&1; echo $?)" 64
holds man -w saltern-master
holds bash -n /usr/share/bash-completion/completions/saltern
holds grep -q 'complete line' /usr/share/zsh/vendor-completions/_saltern
holds grep -q 'complete line' /usr/share/fish/vendor_completions.d/saltern.fish
holds logrotate --debug /etc/logrotate.conf
holds systemd-analyze verify saltern.service saltern.socket
systemd-analyze security saltern.service | tail -n 1

step "reload and restart"
before=$(main_pid)
holds systemctl reload saltern
is "$(main_pid)" "$before"
answers
holds systemctl restart saltern
answers

step "the ports are held by systemd over a restart"
systemctl stop saltern
holds systemctl start saltern.socket
exec 9<>/dev/tcp/127.0.0.1/4506
systemctl start saltern
read -r -N 1 -t 20 -u 9 greeting || [ -n "${greeting:-}" ] || die "the early connection was not served"
exec 9<&-
answers
holds systemctl stop saltern.socket saltern
systemctl start saltern

if [ -d /opt/stock ]; then
    step "Python runs inside of the sandbox"
    mkdir -p /srv/runners
    printf 'import os\ndef hello():\n    return f"python as {os.getuid()}"\n' >/srv/runners/custom.py
    printf '%s\n' 'runner_dirs: [/srv/runners]' 'python_bridge: /opt/stock/bin/python' \
        >/etc/salt/master.d/bridge.conf
    systemctl restart saltern
    is "$(saltern run custom.hello)" "python as $(id -u salt)"
    rm /etc/salt/master.d/bridge.conf
    systemctl restart saltern
fi

step "an upgrade: keys and what was changed in files stay"
key=$(fingerprint)
echo SALTERN_ARGUMENTS=--log-level=info >/etc/default/saltern
before=$(main_pid)
install_package saltern_0.1.1_*.deb
holds systemctl is-active saltern
fails test "$before" = "$(main_pid)"
is "$(fingerprint)" "$key"
is "$(cat /etc/default/saltern)" SALTERN_ARGUMENTS=--log-level=info
holds journalctl --quiet --grep 'the master is ready' -u saltern

step "stock comes: its commands win, and its service takes over; ours goes without them"
install_package stock.deb
holds systemctl is-active salt-master
fails systemctl is-active saltern
is "$(salt-run)" "stock salt-run"
is "$(salt-key)" "stock salt-key"
dpkg --remove saltern >/dev/null
is "$(salt-run)" "stock salt-run"
is "$(fingerprint)" "$key"
is "$(cat /etc/default/saltern)" SALTERN_ARGUMENTS=--log-level=info
dpkg --purge saltern >/dev/null
fails test -e /etc/default/saltern
fails test -e /etc/logrotate.d/saltern
fails test -e /etc/salt/master.d/saltern.conf
is "$(fingerprint)" "$key"

step "beside stock: nothing changes until it is said; there and back by two commands"
install_package saltern_0.1.1_*.deb
holds systemctl is-active salt-master
fails systemctl is-active saltern
fails systemctl is-enabled saltern
is "$(salt)" "stock salt"
systemctl disable --now salt-master 2>/dev/null
systemctl enable --now saltern 2>/dev/null
holds systemctl is-active saltern
answers
is "$(fingerprint)" "$key"
systemctl disable --now saltern 2>/dev/null
systemctl enable --now salt-master 2>/dev/null
holds systemctl is-active salt-master
fails systemctl is-active saltern
is "$(fingerprint)" "$key"
dpkg --purge saltern >/dev/null
holds systemctl is-active salt-master

step "a site whose master runs as root"
echo "user: root" >/etc/salt/master
chown -R root: /etc/salt/pki/master /var/cache/salt/master /var/log/salt /run/salt
install_package saltern_0.1.1_*.deb
systemctl disable --now salt-master 2>/dev/null
systemctl enable --now saltern 2>/dev/null
holds systemctl is-active saltern
is "$(stat -c %U "/proc/$(main_pid)")" root
is "$(fingerprint)" "$key"
dpkg --purge saltern >/dev/null
fails test -e /etc/systemd/system/saltern.service.d
fails test -e /usr/bin/saltern
holds test -e /etc/salt/pki/master/master.pem
