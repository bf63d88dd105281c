#!/usr/bin/env bash
# A site with stock's own master, three stock minions and a hundred jobs goes over to our package and
# back: what `test.sh` does after `scenario.sh`, where /opt/stock is a stock Salt. Stock's tools ask
# both masters, and the site's scripts (`site-scripts.sh`) print the same with stock's commands under
# each master and with ours under ours.
set -Eeuo pipefail
cd /test

minions="alfa bravo charlie"

step() { echo "--- $*"; }
die() { echo "FAILED: $*"; journalctl --no-pager -n 60; exit 1; }
trap '[ "$BASH_SUBSHELL" != 0 ] || die "line $LINENO"' ERR
is() { [ "$1" = "$2" ] || die "\"$1\" is not \"$2\""; }
stock() { local program=$1; shift; /opt/stock/bin/python "/opt/stock/bin/$program" "$@"; }
keys() { (cd /etc/salt/pki/master && sha256sum minions/* && ls minions_pre minions_rejected); }
processes() { for id in $minions; do systemctl show --value -p MainPID "minion-$id"; done | xargs; }

# Waits until something holds; on a busy machine a boot and three minions take minutes.
until_holds() {
    local end=$((SECONDS + 300))
    until "$@"; do
        [ $SECONDS -lt $end ] || die "waited in vain for: $*"
        sleep 0.2
    done
}
are_known() { [ "$(find /etc/salt/pki/master/minions_pre -type f 2>/dev/null | wc -l)" = 3 ]; }
all_answer() { [ "$(stock salt --out=txt '*' test.ping 2>/dev/null | grep -c ': True$')" = 3 ]; }

# What the site's scripts print; the commands are those of a directory. scripts DIRECTORY RESULT
scripts() { PATH=$1:$PATH ./site-scripts.sh 2>&1 | sed 's/[0-9]\{20\}/JID/g' >"$2"; }
same() { diff -u "$1" "$2" || die "the site's scripts see a difference between $1 and $2"; }

# The id of a job in which all of them echo a word.
echo_job() { stock salt --async --out=txt '*' test.echo "$1" | grep -o '[0-9]\{20\}'; }
# How many returns of a job have that word, as each master lists them.
returns_by_stock() { stock salt-run --out=txt jobs.lookup_jid "$1" 2>/dev/null | grep -o "$2" | wc -l; }
returns_by_ours() { saltern run --out=json jobs.lookup_jid "$1" | grep -c "\"$2\"" || true; }
has_all_returns() { [ "$("$1" "$2" "$3")" = 3 ]; }

step "stock's master, three minions, a hundred jobs"
printf '%s\n' "user: salt" "worker_threads: 2" "python_bridge: /opt/stock/bin/python" \
    "timeout: 30" "gather_job_timeout: 30" >/etc/salt/master
rm -rf /etc/salt/pki/master /var/cache/salt/master
chown -R salt: /run/salt /var/log/salt
install -d -o salt -g salt -m 0700 /etc/salt/pki/master
install -d -o salt -g salt /var/cache/salt/master
install -d /etc/systemd/system/salt-master.service.d
printf '%s\n' '[Service]' ExecStart= \
    'ExecStart=/opt/stock/bin/python /opt/stock/bin/salt-master' \
    >/etc/systemd/system/salt-master.service.d/real.conf
systemctl daemon-reload
systemctl enable --now salt-master 2>/dev/null
systemctl restart salt-master
for id in $minions; do
    install -d "/etc/minion-$id"
    printf '%s\n' "id: $id" "master: 127.0.0.1" "root_dir: /var/lib/minion-$id" \
        "pidfile: /run/minion-$id.pid" "acceptance_wait_time: 1" "recon_max: 1000" \
        >"/etc/minion-$id/minion"
    install -d "/var/lib/minion-$id"
    systemd-run --quiet --unit "minion-$id" \
        /opt/stock/bin/python /opt/stock/bin/salt-minion -c "/etc/minion-$id"
done
until_holds are_known
stock salt-key --yes --accept-all >/dev/null
until_holds all_answer
/opt/stock/bin/python - <<'PYTHON'
import salt.client
client = salt.client.LocalClient("/etc/salt/master")
for number in range(100):
    answers = client.cmd("*", "test.echo", [f"word{number}"], timeout=60)
    assert len(answers) == 3, (number, answers)
client.destroy()
PYTHON
old=$(echo_job before)
until_holds has_all_returns returns_by_stock "$old" before
before_keys=$(keys)
before_processes=$(processes)
mkdir stock-commands
for name in salt salt-cp salt-key salt-run; do
    printf '#!/bin/sh\nexec /opt/stock/bin/python /opt/stock/bin/%s "$@"\n' $name >stock-commands/$name
    chmod 0755 stock-commands/$name
done
scripts /test/stock-commands stock-under-stock
grep '^== ' stock-under-stock

step "ours takes over: the same keys, minions and jobs"
DEBIAN_FRONTEND=noninteractive dpkg --install saltern_0.1.1_*.deb >/dev/null
systemctl disable --now salt-master 2>/dev/null
systemctl enable --now saltern 2>/dev/null
until_holds all_answer
is "$(keys)" "$before_keys"
is "$(processes)" "$before_processes"
is "$(returns_by_stock "$old" before)" 3
new=$(echo_job meanwhile)
until_holds has_all_returns returns_by_ours "$new" meanwhile
until_holds has_all_returns returns_by_stock "$new" meanwhile
jobs=$(stock salt-run --out=json jobs.list_jobs 2>/dev/null | grep -c '"Function": "test.echo"')
[ "$jobs" -ge 102 ] || die "only $jobs jobs"

step "the site's scripts under ours: with stock's commands, and with ours"
scripts /test/stock-commands stock-under-ours
same stock-under-stock stock-under-ours
scripts /usr/lib/saltern ours-under-ours
same stock-under-stock ours-under-ours

step "and stock again: it lists the jobs of both"
systemctl disable --now saltern 2>/dev/null
systemctl enable --now salt-master 2>/dev/null
until_holds all_answer
is "$(keys)" "$before_keys"
is "$(processes)" "$before_processes"
is "$(returns_by_stock "$old" before)" 3
is "$(returns_by_stock "$new" meanwhile)" 3
dpkg --purge saltern >/dev/null
until_holds all_answer
